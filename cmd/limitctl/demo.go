package main

import (
	"context"
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
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
	"github.com/routelimit/limit/redisstore"
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
	store, place, closeStore, err := openStore(ctx, redisURL)
	if err != nil {
		return err
	}
	defer closeStore()

	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another demo: use a free port with --addr 127.0.0.1:0 (make demo ADDR=127.0.0.1:0)", addr)
	}
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	fmt.Fprintf(out, "Serving on %s, with the quotas %s, until interrupted.\n\n%s\n", base, place, whatToTry(base))

	server := &http.Server{
		Handler:           newDemo(store, place),
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

// openStore returns the store, and a phrase that says where it keeps the quotas.
func openStore(ctx context.Context, redisURL string) (store core.Store, place string, closeStore func() error, err error) {
	if redisURL == "" {
		return memstore.New(nil), "in memory", func() error { return nil }, nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, "", nil, fmt.Errorf("--redis: %w: write a URL such as redis://127.0.0.1:6379/0", err)
	}
	redisclient.Quiet() // package guard logs errors
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, "", nil, fmt.Errorf("no Redis at %s: %w", options.Addr, err)
	}
	return redisstore.New(client, nil), "in Redis at " + options.Addr, client.Close, nil
}
