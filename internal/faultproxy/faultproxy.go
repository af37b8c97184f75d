// Package faultproxy is a proxy between Redis clients and a server that injects
// faults for tests: it loses, delays, duplicates, swaps and forges replies, cuts
// connections at any byte, and leaves calls without an answer.
//
//	proxy := faultproxy.Start(t, serverAddr)
//	proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.LoseReply}, "evalsha"))
//	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
package faultproxy

import (
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Kind says what happens to a command or its reply.
type Kind int

// The faults of a command.
const (
	None           Kind = iota // it passes
	LoseReply                  // the server runs it; then the connection ends without a reply
	DuplicateReply             // the reply comes twice
	SwapReply                  // it gets the reply of the next swapped command, on any connection, which gets its own
	CutRequest                 // the server gets the first Fault.At bytes; then the connection ends
	CutReply                   // the server runs it, and the client gets the first Fault.At bytes
	NoReply                    // the server runs it, and the client gets neither a reply nor the end of the connection
	Swallow                    // the server does not get it, and the client gets nothing
	Forge                      // the server does not get it, and the client gets Fault.Reply
)

// A Fault is what happens to one command. The zero Fault is none.
type Fault struct {
	Kind  Kind
	At    int           // bytes that pass before a cut
	Delay time.Duration // before the reply
	Reply string        // the forged reply, in the protocol of Redis, such as "-LOADING\r\n"
}

// A Command is a command from a client.
type Command struct {
	Name   string // in lower case
	Number int    // counts the commands of this name that the proxy has seen, from 1
	Size   int    // bytes
	Words  []string
}

// A Proxy passes connections on to a server. Its methods may be called at any
// time.
type Proxy struct {
	server   string
	addr     string
	running  sync.WaitGroup
	mu       sync.Mutex
	listener net.Listener               // nil while refusing
	conns    map[net.Conn]chan struct{} // that closes when the connection has
	silent   bool
	fault    func(Command) Fault
	seen     map[string]int
	partner  chan []byte // of a reply that waits to be swapped
	swapped  []byte
}

// Start starts a proxy on a free port of the loopback interface, in front of
// the server at an address. It ends with the test, and leaves no goroutine behind.
func Start(t testing.TB, server string) *Proxy {
	t.Helper()
	p := &Proxy{server: server, conns: make(map[net.Conn]chan struct{}), seen: make(map[string]int)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = listener.Addr().String()
	p.listen(listener)
	t.Cleanup(func() {
		p.Refuse(true)
		p.running.Wait()
	})
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// Break has a function choose the fault of each command, one at a time; nil
// ends all faults of commands.
func (p *Proxy) Break(fault func(Command) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// On returns a function for [Proxy.Break] that gives a fault to the commands of some names,
// or to all commands without a name.
func On(fault Fault, names ...string) func(Command) Fault {
	return func(c Command) Fault {
		if len(names) == 0 || slices.Contains(names, c.Name) {
			return fault
		}
		return Fault{}
	}
}

// Silence makes the proxy a black hole: it accepts connections and never answers.
// Open connections stay open.
func (p *Proxy) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// Refuse ends all connections as Cut does and refuses new ones, as a dead server
// does; Refuse(false) accepts them again.
func (p *Proxy) Refuse(refuse bool) error {
	if refuse {
		defer p.Cut()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !refuse && p.listener == nil {
		listener, err := net.Listen("tcp", p.addr)
		if err != nil {
			return err
		}
		p.listen(listener)
	}
	if refuse && p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	return nil
}

// Cut ends all connections. When it returns they are closed: a client that looks at
// one of its idle connections sees that.
func (p *Proxy) Cut() {
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.mu.Unlock()
	for conn, closed := range conns {
		// This returns at once if a goroutine of the connection is closing it.
		conn.Close()
		<-closed
	}
}

func (p *Proxy) listen(listener net.Listener) {
	p.listener = listener
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
}

// keep remembers a connection, unless the proxy has ended in the meantime.
func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return false
	}
	p.conns[conn] = make(chan struct{})
	return true
}

// drop ends a connection that no other goroutine of its own uses any more.
func (p *Proxy) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if closed := p.conns[conn]; closed != nil {
		close(closed)
		delete(p.conns, conn)
	}
}

// choose returns the fault of a command.
func (p *Proxy) choose(raw []byte, words []string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := strings.ToLower(words[0])
	p.seen[name]++
	switch {
	case p.silent:
		return Fault{Kind: Swallow}
	case p.fault == nil:
		return Fault{}
	}
	return p.fault(Command{Name: name, Number: p.seen[name], Size: len(raw), Words: words})
}
