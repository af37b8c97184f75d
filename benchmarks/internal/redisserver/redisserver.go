// Package redisserver starts a redis-server for a benchmark.
package redisserver

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Patience is a timeout of calls that a pause of the machine does not reach.
const Patience = 20 * time.Second

// Start starts a server on a free loopback port, without persistence, and returns a client
// of it. The function stop ends both. Without redis-server in the path, the error is
// [exec.ErrNotFound].
func Start(ctx context.Context) (client *redis.Client, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	addr := listener.Addr().(*net.TCPAddr)
	listener.Close()
	server := exec.Command("redis-server", "--port", strconv.Itoa(addr.Port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	client = redis.NewClient(&redis.Options{Addr: addr.String(), PoolSize: 64,
		ReadTimeout: Patience, ContextTimeoutEnabled: true})
	stop = func() {
		client.Close()
		server.Process.Kill()
		server.Wait()
	}
	for range 100 {
		if err = client.Ping(ctx).Err(); err == nil {
			return client, stop, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return nil, nil, fmt.Errorf("redis-server does not answer: %w", err)
}
