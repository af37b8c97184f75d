package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"testing"
)

// A Mortal is a redis-server that a test kills and starts again, on one port. It
// keeps nothing on disk.
type Mortal struct {
	Addr string

	t      testing.TB
	port   string
	server *exec.Cmd
}

// NewMortal starts a server. It skips the test where there is none to be had.
func NewMortal(t testing.TB) *Mortal {
	t.Helper()
	if !Installed(t) {
		t.Skip("no redis-server is installed")
	}
	port := strconv.Itoa(freePort(t))
	m := &Mortal{Addr: net.JoinHostPort("127.0.0.1", port), t: t, port: port}
	t.Cleanup(m.Kill)
	m.Start()
	return m
}

// Start starts the server again, and returns when it answers.
func (m *Mortal) Start() {
	m.t.Helper()
	m.server = exec.Command("redis-server", "--port", m.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err := m.server.Start(); err != nil {
		m.t.Fatal(err)
	}
	if err := ready(m.Addr); err != nil {
		m.t.Fatal(err)
	}
}

// Kill kills the server as kill -9 does.
func (m *Mortal) Kill() {
	m.server.Process.Kill()
	m.server.Wait()
}
