package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

const (
	knockAfter = 10 * time.Millisecond // a call without an answer
	knockEvery = time.Second           // at most, where somebody has opened
)

// Knocks find out whether nobody listens where a call has no answer yet. By
// default go-redis does not say so: it dials five times, 100 ms apart. Of a server
// that is slow, or out of reach without a word, a knock tells nothing.
type knocks struct {
	mu sync.Mutex
	at map[string]*knock // those under way, and answered less than knockEvery ago
}

type knock struct {
	done chan struct{}
	err  error // why nobody opens; set before done is closed
}

// knock returns when nobody listens on the server of a key, and says why, or
// when ctx has ended.
func (s *Store) knock(ctx context.Context, key string) error {
	for {
		_, client, err := s.serverOf(ctx, key)
		if client, ok := client.(*redis.Client); ok && err == nil {
			if err := s.knocks.on(ctx, client.Options(), s.timeout); err != nil {
				return err
			}
		}
		select {
		case <-time.After(knockEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// on opens a connection, and closes it. Its error says that this failed; nil
// says nothing.
func (all *knocks) on(ctx context.Context, o *redis.Options, timeout time.Duration) error {
	all.mu.Lock()
	k := all.at[o.Addr]
	if k == nil {
		k = &knock{done: make(chan struct{})}
		all.at[o.Addr] = k
		go all.dial(k, o, timeout)
	}
	all.mu.Unlock()
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		return nil
	}
}

func (all *knocks) dial(k *knock, o *redis.Options, timeout time.Duration) {
	forget := func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.at, o.Addr)
	}
	defer func() {
		if recover() != nil { // the user's Dialer: in this goroutine, it would end the program
			k.err = nil
		}
		if k.err != nil {
			forget()
		} else {
			time.AfterFunc(knockEvery, forget)
		}
		close(k.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	switch {
	case err == nil:
		conn.Close()
	case ctx.Err() == nil:
		k.err = fmt.Errorf("%w: %w", core.ErrOutOfReach, err)
	}
}
