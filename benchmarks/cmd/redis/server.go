package main

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

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
)

// A server is a private redis-server on a free loopback port, without persistence.
type server struct {
	process *exec.Cmd
	dir     string
	client  *redis.Client
}

// patience is the timeout of a call. A machine that is paused for a moment must not end
// the comparison.
const patience = 20 * time.Second

// startServer starts a server, on the given core if it is not negative.
func startServer(core, pool int) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "limit-bench-")
	if err != nil {
		return nil, err
	}
	command := []string{"redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning"}
	if core >= 0 {
		command = append([]string{"taskset", "-c", strconv.Itoa(core)}, command...)
	}
	s := &server{process: exec.Command(command[0], command[1:]...), dir: dir}
	if err := s.process.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{
		Addr:                  net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		PoolSize:              pool,
		ReadTimeout:           patience,
		ContextTimeoutEnabled: true,
	})
	for range 100 {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

func (s *server) stop() {
	s.client.Close()
	s.process.Process.Kill()
	s.process.Wait()
	os.RemoveAll(s.dir)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// cpu returns how much processor time the server has used.
func (s *server) cpu() (time.Duration, error) {
	system, err := s.info("cpu", "used_cpu_sys")
	if err != nil {
		return 0, err
	}
	user, err := s.info("cpu", "used_cpu_user")
	return time.Duration((system + user) * float64(time.Second)), err
}

// memory returns how many bytes the server has allocated. It first closes all other
// connections, since their buffers would count.
func (s *server) memory(ctx context.Context) (float64, error) {
	if err := s.client.ClientKillByFilter(ctx, "TYPE", "normal").Err(); err != nil {
		return 0, err
	}
	time.Sleep(100 * time.Millisecond)
	return s.info("memory", "used_memory")
}

// calls returns how many scripts the server has run.
func (s *server) calls() (float64, error) {
	line, err := s.field("commandstats", "cmdstat_evalsha")
	if err != nil {
		return 0, err
	}
	count, _, _ := strings.Cut(strings.TrimPrefix(line, "calls="), ",")
	return strconv.ParseFloat(count, 64)
}

func (s *server) info(section, field string) (float64, error) {
	text, err := s.field(section, field)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// field returns a field of INFO.
func (s *server) field(section, name string) (string, error) {
	return redisserver.Field(context.Background(), s.client, section, name)
}

// pinClient moves this process, all its threads, to one core.
func pinClient(core int) error {
	out, err := exec.Command("taskset", "-a", "-c", "-p", strconv.Itoa(core), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}
