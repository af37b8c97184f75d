package redisstore

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// A server is what the store knows of a server that it calls. After a failure it may have been
// restarted without its data, or replaced by a replica without all of it; if the store made no call
// meanwhile, the client redials without an error. And it may be emptied. So its identity is checked
//   - before the first call,
//   - after a failed call,
//   - when the server does not know a script,
//   - beside a call, when the client has opened or closed connections to it,
//   - beside a call that begins more than identifyEvery after the last check. If that is
//     twice as long ago, the call waits for the check.
type server struct {
	failures    atomic.Int64            // of calls
	checked     atomic.Int64            // failures, at the last check
	connections atomic.Uint64           // see connections, at the last check
	asked       atomic.Int64            // ticks when the last check began that has ended
	identifying atomic.Pointer[inquiry] // in the background, or nil
	reaching    atomic.Pointer[inquiry] // for longer, if the server did not answer in time; or nil
	probing     atomic.Pointer[inquiry] // the probe in flight, or of the last probeEvery, or nil
	known       atomic.Bool             // whether it was identified
	clock       clock
	turns       chan struct{} // of calls in flight: see newTurns
	answered    atomic.Int64  // ticks of the last reply
	latency     atomic.Int64  // of calls that were answered lately, in ns
	fastest     atomic.Int64  // of them, since the last check, in ns; 0 if there is none
	distance    atomic.Int64  // see reach, in ns
	exhausted   atomic.Int64  // ticks until when the program uses all connections; 0 if it does not

	mu    sync.Mutex
	run   string // see identity
	token string // the key of the token, beside one that a call has used; or ""
}

// An inquiry is about one server, for all that wait for it meanwhile.
type inquiry struct {
	began int64 // ticks
	done  chan struct{}
	err   error // set before done is closed
}

// join returns the inquiry that is at a place, or has a function make a new one in a goroutine.
func join(place *atomic.Pointer[inquiry], begin func(*inquiry)) *inquiry {
	i := &inquiry{began: ticks(), done: make(chan struct{})}
	for !place.CompareAndSwap(nil, i) {
		if running := place.Load(); running != nil {
			return running
		}
	}
	go begin(i)
	return i
}

// connections returns a number that changes when the client opens a connection
// during a call, and when it closes one.
func connections(client redis.UniversalClient) uint64 {
	stats := client.PoolStats()
	if stats == nil {
		return 0
	}
	return uint64(stats.Misses)<<32 | uint64(stats.StaleConns)
}

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
		known, _ = s.servers.LoadOrStore(address, &server{turns: newTurns(client)})
	}
	return known.(*server), client, nil
}

// knownServerOf is serverOf without a question to the Cluster. It returns nil if the
// client does not know the server.
func (s *Store) knownServerOf(key string) (*server, redis.UniversalClient) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	server, client, err := s.serverOf(ctx, key)
	if err != nil {
		return nil, nil
	}
	return server, client
}

// uncertainty returns that of the clock of the server of a key, in µs.
func (s *Store) uncertainty(key string) int64 {
	server, _ := s.knownServerOf(key)
	if server == nil {
		return 0
	}
	return server.clock.uncertainty(localTime())
}

// An attempt is a call to a server, with what was known when it began.
type attempt struct {
	*server
	client     redis.UniversalClient
	key        string // that it is about
	failures   int64  // of the server
	restarts   int64  // of the store
	identified bool   // whether it has asked for the identity of the server
	entered    bool   // whether it has a turn
	began      int64  // ticks since when

	checking *inquiry // the call waits until this is done
}

// begin begins a call to the server of a key, when it is its turn. The caller leaves a,
// also after an error and a panic.
func (s *Store) begin(ctx context.Context, a *attempt, key string) (err error) {
	a.key, a.restarts = key, s.restarts.Load()
	if a.server, a.client, err = s.serverOf(ctx, key); err != nil {
		return err
	}
	if err = a.enter(ctx); err != nil {
		return err
	}
	a.failures = a.server.failures.Load()
	if !a.known.Load() || a.server.checked.Load() != a.failures {
		err := s.identify(ctx, a)
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			s.identifyDistant(a)
		}
		return err
	}
	if age := a.began - a.asked.Load(); age > int64(identifyEvery) {
		if checking := s.identifyInBackground(a, &a.identifying, s.timeout(), 1); age > 2*int64(identifyEvery) {
			a.checking = checking
		}
	}
	return nil
}

// end ends a call that was answered. It returns an error if the server was found
// to be another one since the call began, since the answer is then from either.
func (s *Store) end(ctx context.Context, a *attempt) error {
	if a.server.failures.Load() != a.failures {
		return s.identify(ctx, a)
	}
	if connections(a.client) != a.server.connections.Load() {
		s.identifyInBackground(a, &a.identifying, s.timeout(), 1)
	}
	if a.checking != nil {
		a.await(ctx)
	}
	return s.unchanged(a)
}

// Suspect finds out whether the server of a charge has lost data since it was last known to hold
// it. It returns nil if not. Calls that begin meanwhile wait for that. Package guard calls it when
// a store counts less than one process has taken.
func (s *Store) Suspect(ctx context.Context, c core.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	s.hasher.replaceOne(&c)
	a := attempt{key: lua.Key(s.partOf(c.Key).prefix, &c), restarts: s.restarts.Load(), began: ticks()}
	var err error
	if a.server, a.client, err = s.serverOf(ctx, a.key); err != nil {
		return err
	}
	a.asked.Add(-3 * int64(identifyEvery))
	for {
		checking := s.identifyInBackground(&a, &a.identifying, s.timeout(), 1)
		<-checking.done
		if checking.began >= a.began { // else it may have read the identity before the loss
			return checking.err
		}
	}
}

// await waits for the check beside the call, but not until the call fails: an answer
// counts if nothing is known against it.
func (a *attempt) await(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	timer := time.NewTimer(time.Until(deadline) / 2)
	defer timer.Stop()
	select {
	case <-a.checking.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// failed remembers that a call has failed, and at which server if that is known. Before any server
// was identified, this process knows nothing that could be lost. After that, slots with what it knows
// may have moved to a server that it has not called yet.
func (s *Store) failed(at *server) {
	if s.anyKnown.Load() {
		s.anyFailure.Store(true)
	}
	if at != nil {
		at.failures.Add(1)
	}
}
