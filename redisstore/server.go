package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

// A server is what the store knows of one that it calls. After a failure it may
// have been started anew, without its data, or be another one, which has not got
// all of it; and if nobody asked meanwhile, the client redials without a word. Then
// it has another run id, which it is asked for when it is called for the first
// time, when a call to it has failed, and when it has lost the scripts; and beside
// the calls, when the client has opened or closed connections to it.
type server struct {
	runID       atomic.Pointer[string] // nil before it was asked, "" if it does not tell
	failures    atomic.Int64           // of calls
	checked     atomic.Int64           // failures when it was asked for its run id
	connections atomic.Uint64          // see connections, by then
	asking      atomic.Bool            // beside the calls
}

// connections returns a number that changes when the client opens a connection that
// a call waits for, and when it has closed one.
func connections(client redis.UniversalClient) uint64 {
	stats := client.PoolStats()
	if stats == nil {
		return 0
	}
	return uint64(stats.Misses)<<32 | uint64(stats.StaleConns)
}

// errForgotten is about a server that may have lost its data, or never had all of
// it. Nothing is known to have been taken by the call. What stands around the
// store then knows better.
var errForgotten = fmt.Errorf("%w: the server of Redis is not the one that it was", core.ErrForgotten)

// serverOf returns the server that a key is on, and a client of it.
func (s *Store) serverOf(ctx context.Context, key string) (*server, redis.UniversalClient, error) {
	var address string
	client := s.client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		client, address = node, node.Options().Addr
	}
	known, ok := s.servers.Load(address)
	if !ok {
		known, _ = s.servers.LoadOrStore(address, new(server))
	}
	return known.(*server), client, nil
}

// A visit is a call to a server, and what was known when it began.
type visit struct {
	*server
	client   redis.UniversalClient
	failures int64 // of the server
	losses   int64 // of the store
	asked    bool  // for its run id
}

// visit begins a call to the server of a key.
func (s *Store) visit(ctx context.Context, key string) (v visit, err error) {
	v.losses = s.losses.Load()
	if v.server, v.client, err = s.serverOf(ctx, key); err != nil {
		return v, err
	}
	v.failures = v.server.failures.Load()
	if v.runID.Load() == nil || v.checked.Load() != v.failures {
		err = s.identify(ctx, &v)
	}
	return v, err
}

// end ends a call that was answered. Its answer is not to be believed if the
// server has been found to be another one meanwhile, or is now.
func (s *Store) end(ctx context.Context, v *visit) error {
	if v.server.failures.Load() != v.failures {
		return s.identify(ctx, v)
	}
	if connections(v.client) != v.server.connections.Load() && v.asking.CompareAndSwap(false, true) {
		go s.askAside(*v)
	}
	return s.same(v)
}

// askAside asks a server for its run id beside the calls, since a call has no time for
// a second question where the server is far away. Who takes is told of a loss next.
func (s *Store) askAside(v visit) {
	defer v.asking.Store(false)
	defer func() { _ = recover() }() // of a hook: in this goroutine, it would end the program
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	_ = s.identify(ctx, &v) // or the next call has it asked again
}

func (s *Store) same(v *visit) error {
	if s.losses.Load() != v.losses {
		return errForgotten
	}
	return nil
}

// failed remembers that a call has failed, to a server if it is known.
func (s *Store) failed(to *server) {
	s.anyFailure.Store(true)
	if to != nil {
		to.failures.Add(1)
	}
}

// tell remembers that a caller of Take hears err. Whoever finds a loss may have given
// up by then, or be told of something worse: then the next one is told.
func (s *Store) tell(err error) error {
	if errors.Is(err, core.ErrForgotten) {
		s.told.Store(s.losses.Load())
	}
	return err
}

// identify returns an error if the server is not the one that it was, as far as
// it tells, as do all calls that have begun before. A server that does not tell is in
// doubt after each failure; so is one that is called for the first time after a
// failure of any.
func (s *Store) identify(ctx context.Context, v *visit) error {
	v.asked = true
	failures := v.server.failures.Load()
	id, err := runID(ctx, v.client)
	if err != nil {
		return err
	}
	if err := s.same(v); err != nil {
		return err
	}
	before := v.runID.Swap(&id)
	checked := v.checked.Swap(failures)
	v.server.connections.Store(connections(v.client)) // with the one that was opened to ask
	switch {
	case before == nil:
		if !s.anyFailure.Load() {
			return nil
		}
	case *before == "" || id == "":
		if checked == failures {
			return nil
		}
	case *before == id:
		return nil
	}
	s.losses.CompareAndSwap(v.losses, v.losses+1)
	return errForgotten
}

// runID asks a server which start of it this is. It is "" if the server does not
// tell.
func runID(ctx context.Context, client redis.UniversalClient) (string, error) {
	text, err := client.Info(ctx, "server").Result()
	if code, message, replied := replyOf(err); replied && !isUnavailable(code, message) {
		return "", nil // it may not be asked
	}
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut(text, "\nrun_id:")
	id, _, _ := strings.Cut(after, "\r")
	return id, nil
}
