package redisstore

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

const (
	probeAfter = 10 * time.Millisecond // a call without an answer
	probeEvery = time.Second           // at most, while the server accepts connections
)

// probe returns an error when the server of a key refuses connections, or nil when ctx has ended.
// By default go-redis reports that late: it dials five times, 100 ms apart. A probe also notes that
// the server replies on a connection of its own, for a call that has none: see blocked.
func (s *Store) probe(ctx context.Context, key string) error {
	for {
		server, client, err := s.serverOf(ctx, key)
		if client, ok := client.(*redis.Client); ok && err == nil {
			if err := server.connect(ctx, client.Options(), s.timeout()); err != nil {
				return err
			}
		}
		select {
		case <-time.After(probeEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// connect opens a connection, and closes it. It returns an error if the server
// refuses; nil says nothing. Calls at the same time share one connection.
func (s *server) connect(ctx context.Context, o *redis.Options, timeout time.Duration) error {
	p := join(&s.probing, func(p *inquiry) { s.dial(p, o, timeout) })
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return nil
	}
}

// dial makes the connection of a probe. If that works, the probe stays for probeEvery.
func (s *server) dial(p *inquiry, o *redis.Options, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := dial(ctx, o)
	if err != nil && ctx.Err() == nil {
		p.err = fmt.Errorf("%w: %w", core.ErrOutOfReach, err)
		s.probing.Store(nil)
	} else {
		time.AfterFunc(probeEvery, func() { s.probing.Store(nil) })
	}
	close(p.done)
	if conn == nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(min(timeout, probeEvery))) // so that few are open, however long calls wait
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return
	}
	if n, _ := conn.Read(make([]byte, 1)); n > 0 { // an error too: only the server's silence matters
		s.answered.Store(ticks())
	}
}

// dial calls the program's Dialer. One that panics says nothing about the server; in
// this goroutine a panic would end the program.
func dial(ctx context.Context, o *redis.Options) (conn net.Conn, err error) {
	defer func() {
		if recover() != nil {
			conn, err = nil, nil
		}
	}()
	return o.Dialer(ctx, o.Network, o.Addr)
}
