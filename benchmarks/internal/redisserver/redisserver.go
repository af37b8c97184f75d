// Package redisserver starts a redis-server for a benchmark, on a free loopback port and
// without persistence.
package redisserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Start starts a server. It returns a client, and a function that stops both. It fails with
// [exec.ErrNotFound] if no redis-server is installed.
func Start() (client *redis.Client, stop func(), err error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "limit-bench-")
	if err != nil {
		return nil, nil, err
	}
	server := exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err := server.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	client = redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
	stop = func() {
		client.Close()
		server.Process.Kill()
		server.Wait()
		os.RemoveAll(dir)
	}
	for range 100 {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return client, stop, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return nil, nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// Field returns a field of a section of INFO.
func Field(ctx context.Context, client *redis.Client, section, name string) (string, error) {
	text, err := client.Info(ctx, section).Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("INFO %s has no %s", section, name)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
