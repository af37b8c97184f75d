// Package redisserver starts a redis-server for a benchmark, on a free loopback port and
// without persistence.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Patience is a timeout of calls that a pause of the machine does not reach.
const Patience = 20 * time.Second

// A Server is a private redis-server.
type Server struct {
	Client  *redis.Client
	process *exec.Cmd
	dir     string
}

// Start starts a server by a command, such as taskset with its arguments, or by itself.
// Call Stop when it is no longer needed.
func Start(by ...string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "limit-bench-")
	if err != nil {
		return nil, err
	}
	command := append(by, "redis-server", "--port", port, "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")
	s := &Server{process: exec.Command(command[0], command[1:]...), dir: dir}
	if err := s.process.Start(); err != nil {
		os.RemoveAll(dir)
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%s is not installed: %w", command[0], err)
		}
		return nil, err
	}
	s.Client = redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", port), PoolSize: 64,
		ReadTimeout: Patience, ContextTimeoutEnabled: true})
	for range 100 {
		if err = s.Client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// Stop stops the server and its client.
func (s *Server) Stop() {
	s.Client.Close()
	s.process.Process.Kill()
	s.process.Wait()
	os.RemoveAll(s.dir)
}

// Version returns the version of the server.
func (s *Server) Version(ctx context.Context) (string, error) {
	return s.field(ctx, "server", "redis_version")
}

// CPU returns how many seconds of processor time the server has used.
func (s *Server) CPU(ctx context.Context) (float64, error) {
	system, err := s.Number(ctx, "cpu", "used_cpu_sys")
	if err != nil {
		return 0, err
	}
	user, err := s.Number(ctx, "cpu", "used_cpu_user")
	return system + user, err
}

// Calls returns how many scripts the server has run.
func (s *Server) Calls(ctx context.Context) (float64, error) {
	line, err := s.field(ctx, "commandstats", "cmdstat_evalsha")
	if err != nil {
		return 0, err
	}
	count, _, _ := strings.Cut(strings.TrimPrefix(line, "calls="), ",")
	return strconv.ParseFloat(count, 64)
}

// Number returns a field of a section of INFO.
func (s *Server) Number(ctx context.Context, section, name string) (float64, error) {
	text, err := s.field(ctx, section, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

func (s *Server) field(ctx context.Context, section, name string) (string, error) {
	text, err := s.Client.Info(ctx, section).Result()
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

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}
