package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
)

func newDemoCommand() *cobra.Command {
	var addr, redisURL string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Serve limited routes on Gin, Echo and net/http until interrupted",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), addr, redisURL)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080", "`address` to listen on; port 0 takes a free one")
	cmd.Flags().StringVar(&redisURL, "redis", "", "`URL` of the Redis that keeps the quotas, such as redis://127.0.0.1:6379/0; empty keeps them in memory")
	return cmd
}

// runDemo serves the demo until ctx ends.
func runDemo(ctx context.Context, out io.Writer, addr, redisURL string) error {
	shared, place, err := connect(ctx, redisURL)
	if err != nil {
		return err
	}
	if shared != nil {
		defer shared.Close()
	}

	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another demo: use a free port with --addr 127.0.0.1:0 (make demo ADDR=127.0.0.1:0)", addr)
	}
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	token := rand.Text()
	var text bytes.Buffer // written at once, so that whoever sees the address sees all of it
	fmt.Fprintf(&text, "Serving on %[1]s, with the quotas %[2]s, until interrupted.\n\nIn a browser: %[1]s/?token=%[3]s\n"+
		"Live page: %[1]s/limits/?token=%[3]s\n", base, place, token)
	if err := textTemplate.ExecuteTemplate(&text, "try", base); err != nil {
		return err
	}
	if _, err := text.WriteTo(out); err != nil {
		return err
	}

	server := &http.Server{
		Handler:           newDemo(ctx, shared, place, token),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	fmt.Fprintln(out, "Stopped.")
	return nil
}

// connect returns a client of the Redis of a URL, or nil without one, and a phrase that
// says where the quotas are.
func connect(ctx context.Context, redisURL string) (client *redis.Client, place string, err error) {
	if redisURL == "" {
		return nil, "in memory", nil
	}
	options, err := (&redisclient.Address{URL: redisURL}).Server(ctx) // it silences go-redis: package guard logs errors
	if err != nil {
		return nil, "", usageError{err}
	}
	client = redis.NewClient(options)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, "", err
	}
	return client, "in Redis at " + options.Addr, nil
}
