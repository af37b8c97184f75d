package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server process that ends with its test, or with Kill.
type Server struct {
	Addr string

	t       testing.TB
	args    []string
	process *exec.Cmd // nil while it is dead
}

// Launch starts a redis-server that ends with the test, as [Start] does. Without one installed,
// it skips the test.
func Launch(t testing.TB, args ...string) *Server {
	t.Helper()
	if !Installed(t) {
		t.Skip("no redis-server is installed")
	}
	s, err := Start(append([]string{"--dir", t.TempDir()}, args...)...)
	if err != nil {
		t.Fatalf("cannot start redis-server: %v", err)
	}
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

// Start starts a redis-server that keeps nothing on disk, on a free port. Further args are as
// on its command line. Of the methods, only Kill serves outside of tests.
func Start(args ...string) (s *Server, err error) {
	for range 5 { // another process may take the port in between
		port := freePort()
		s = &Server{Addr: net.JoinHostPort("127.0.0.1", port)}
		s.args = append([]string{
			"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning",
		}, args...)
		if err = s.start(); err == nil {
			break
		}
	}
	return s, err
}

func (s *Server) start() error {
	s.process = exec.Command("redis-server", s.args...)
	if err := s.process.Start(); err != nil {
		s.process = nil
		return err
	}
	if err := ready(s.Addr); err != nil {
		s.Kill()
		return err
	}
	return nil
}

// Kill ends the process at once, as kill -9 does.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Process.Kill()
		s.process.Wait()
		s.process = nil
	}
}

// Restart starts a killed server again at its address, without its data.
// Further args are added to those it had.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	s.args = append(s.args, args...)
	if err := s.start(); err != nil {
		s.t.Fatalf("cannot restart redis-server: %v", err)
	}
}

// Pause pauses the process as [Pause] does.
func (s *Server) Pause() {
	s.t.Helper()
	Pause(s.t, s.process.Process)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	Resume(s.t, s.process.Process)
}

// Pause stops a process, as when a machine is paused: connections stay open, and
// nothing is answered until Resume. It skips the test on Windows.
func Pause(t testing.TB, process *os.Process) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a Unix, where a process can be paused")
	}
	send(t, process, "STOP")
}

// Resume lets a paused process go on.
func Resume(t testing.TB, process *os.Process) {
	t.Helper()
	send(t, process, "CONT")
}

// send sends a signal. A shell knows these on each Unix, and package syscall does not
// have them on other systems.
func send(t testing.TB, process *os.Process, signal string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("kill -%s %d", signal, process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", signal, err, out)
	}
}

// Client returns a client of this server alone.
func (s *Server) Client() *redis.Client { return Closing(s.t, s.dial()) }

func (s *Server) dial() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, ReadTimeout: time.Minute,
	})
}

// replication returns what the server says of itself and its replicas, or "" if it does
// not say that at once.
func (s *Server) replication(t testing.TB) string {
	client := s.dial()
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return client.Info(ctx, "replication").Val()
}

// leads reports whether the server is a primary.
func (s *Server) leads(t testing.TB) bool {
	return strings.Contains(s.replication(t), "role:master")
}

// Await polls until a condition holds, and fails the test after a time. That is longer by twice the
// time during which this process stands still: programs may wait as long as a read took them.
func Await(t testing.TB, within time.Duration, what string, condition func() bool) time.Time {
	t.Helper()
	for end := time.Now().Add(within); ; {
		if condition() {
			return time.Now()
		}
		now := time.Now()
		if now.After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
		end = end.Add(2 * max(0, time.Since(now)-10*time.Millisecond))
	}
}
