package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// A server has fewer turns than the client has connections to it, and a call of the store holds
// one. So the calls of all policies together leave connections to the program, and wait here, in
// order of arrival, rather than in the pool of the client, which has no order. Meanwhile the
// batches of their policies grow.

// newTurns returns the turns of a server, or nil for a client of unknown size.
func newTurns(client redis.UniversalClient) chan struct{} {
	size := poolSize(client)
	if size == 0 {
		return nil
	}
	return make(chan struct{}, max(1, size-max(2, size/5)))
}

// poolSize returns how many connections a client has at most, or 0 if that is unknown.
func poolSize(client redis.UniversalClient) int {
	c, ok := client.(*redis.Client)
	if !ok {
		return 0
	}
	o := c.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// errNoTurn is the error of a call that was never sent.
var errNoTurn = errors.New("redisstore: no turn")

// errExhausted is the error of a call that was not made, since another one has just found
// that the program uses all connections.
var errExhausted = errors.New("redisstore: no connection")

// exhaustedFor is how long calls are not made after one has found that the program uses
// all connections. Then one call tries again.
const exhaustedFor = 25 * time.Millisecond

// enter waits for a turn. The channel hands turns to its senders in order of arrival.
func (a *attempt) enter(ctx context.Context) error {
	if a.turns != nil {
		if until, now := a.exhausted.Load(), ticks(); until != 0 {
			deadline, _ := ctx.Deadline()
			pause := time.Until(deadline) + exhaustedFor // others wait for what this call finds, which sets another pause
			if now < until || !a.exhausted.CompareAndSwap(until, now+int64(pause)) {
				return errExhausted
			}
		}
		if err := a.wait(ctx); err != nil {
			return err
		}
		a.entered = true
	}
	a.began = ticks()
	return nil
}

func (a *attempt) wait(ctx context.Context) error {
	select {
	case a.turns <- struct{}{}:
		return nil
	default:
	}
	deadline, _ := ctx.Deadline()
	timer := time.NewTimer(a.patience(time.Until(deadline)))
	defer timer.Stop()
	select {
	case a.turns <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return errNoTurn
}

// patience returns how much of the time that is left a call may wait for its turn. The rest is for
// the server: a call that is sent too late would look like a failure of the server, and costs its
// connection.
func (s *server) patience(left time.Duration) time.Duration {
	if latency := time.Duration(s.latency.Load()); latency > 0 {
		return max(left/2, left-4*latency-10*time.Millisecond)
	}
	return left / 2
}

// replied notes when the server has replied to a call, which may still wait for a check.
func (a *attempt) replied(now int64) {
	a.answered.Store(now)
	if a.exhausted.Load() != 0 {
		a.exhausted.Store(0)
	}
	latency, took := a.latency.Load(), now-a.began
	a.latency.Store(latency + (took-latency)/8)
	if fastest := a.fastest.Load(); fastest == 0 || took < fastest {
		a.fastest.Store(took)
	}
}

func (a *attempt) leave() {
	if a.entered {
		<-a.turns
	}
}

var born = time.Now()

// ticks reads a clock of this process that never steps, in ns.
func ticks() int64 { return int64(time.Since(born)) }

// errBlocked returns the error of a call that was not sent although the server answers others.
func (s *Store) errBlocked(size int) error {
	return &core.Diagnosis{Code: notice.NoConnection, Err: fmt.Errorf("redisstore: %w: all connections of the client were in use for %v, "+
		"and Redis answers: raise PoolSize in the options of the client, now %d, or give the limiter a client of its own",
		core.ErrBlocked, s.timeout(), size)}
}

// blocked returns an error if a call to the server of a key, begun at a time, found no
// connection although the server answers. A server may have stopped since its last
// answer: then the calls that have a connection fail.
func (s *Store) blocked(key string, began int64) error {
	server, client := s.knownServerOf(key)
	if server == nil {
		return nil
	}
	size := poolSize(client)
	if size == 0 {
		return nil
	}
	stats, answered := client.PoolStats(), server.answered.Load()
	exhausted := stats.IdleConns == 0 && int(stats.TotalConns) >= size
	switch {
	case answered > began && (exhausted || len(server.turns) == cap(server.turns)):
	case exhausted && answered > began-int64(probeEvery): // only probes are answered where the program has all connections
		server.exhausted.Store(ticks() + int64(exhaustedFor))
	default:
		server.exhausted.Store(0)
		return nil
	}
	return s.errBlocked(size)
}
