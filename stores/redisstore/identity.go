package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/lua"
)

// errForgotten is about a server that may have lost data since the last call.
var errForgotten = fmt.Errorf("%w: Redis was emptied or restarted, or another server took over", core.ErrForgotten)

// errNoIdentity is about a server that could lose its data unnoticed. It does not
// wrap core.ErrOutOfReach, which promises the opposite.
var errNoIdentity = fmt.Errorf("%w: the Redis user may run neither INFO nor EVAL, so a restart that loses data would go unnoticed: "+
	"grant +info", core.ErrUnavailable)

const (
	identifyEvery = time.Second         // while there are calls
	tokenLife     = 30 * 24 * time.Hour // after the last reading
)

// An identity tells one start of a server from another, and its data from data that was
// emptied or is of an earlier time. Neither is known of every server.
type identity struct {
	run   string // id
	token string // see token.lua
}

// differs reports whether what is known of both is of two servers, or of other data.
func (i identity) differs(from identity) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(i.run, from.run) || differ(i.token[:min(len(i.token), tokenID)], from.token[:min(len(from.token), tokenID)])
}

// tokenID is how many bytes of a token tell it from others. Its readings follow.
const tokenID = 17

// identify returns an error if the server may not be the one that it was, or may have
// lost its data. So do all calls that began before. A server that is called for the first
// time after a failed call may have replaced the one that failed.
func (s *Store) identify(ctx context.Context, a *attempt) error {
	a.identified = true
	failures := a.server.failures.Load()
	began, last := ticks(), a.asked.Load()
	defer func() { a.asked.CompareAndSwap(last, began) }() // also if it fails: calls do not wait for what cannot be known
	before, token := s.remembered(a)
	sent := localTime()
	found, now, err := a.readIdentity(ctx, token, before.token)
	if code, _, _ := replyOf(err); code == "MOVED" || code == "ASK" {
		s.chooseToken(a, token)
	}
	if found.run == "" && found.token == "" && err != nil {
		return err
	}
	received := localTime()
	a.mu.Lock()
	defer a.mu.Unlock()
	before.run = a.run
	changed := found.differs(before)
	if changed {
		a.clock.forget()
		a.distance.Store(0)
	}
	s.measured(a.server, time.Duration(received-sent)*time.Microsecond)
	if now > 0 {
		a.clock.learn(sent, received, now)
	}
	if err := s.unchanged(a); err != nil {
		return err
	}
	if found.run != "" {
		a.run = found.run
	}
	if found.token != "" {
		s.tokens.Store(token, found.token)
	}
	a.server.checked.Store(failures)
	a.server.connections.Store(connections(a.client)) // with the one that was opened for the question
	s.anyKnown.Store(true)
	if first := !a.known.Swap(true); !changed && !(first && s.anyFailure.Load()) {
		return nil
	}
	s.restarts.CompareAndSwap(a.restarts, a.restarts+1)
	return errForgotten
}

// remembered returns what is known of a server and its data, and the key of its token.
func (s *Store) remembered(a *attempt) (known identity, token string) {
	a.mu.Lock()
	if a.token == "" {
		a.token = lua.TokenKey(s.prefix, a.key)
	}
	known.run, token = a.run, a.token
	a.mu.Unlock()
	if seen, ok := s.tokens.Load(token); ok {
		known.token = seen.(string)
	}
	return known, token
}

// chooseToken has the next reading choose a token, since the slot of this one has moved.
// What is known of it stays: it is compared if the slot is chosen again, wherever it is.
func (s *Store) chooseToken(a *attempt, moved string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == moved {
		a.token = ""
	}
}

// unchanged returns an error if a server was found to be another one, or to have lost data, since a
// began.
func (s *Store) unchanged(a *attempt) error {
	if s.restarts.Load() != a.restarts {
		return errForgotten
	}
	return nil
}

// identifyInBackground identifies a server a number of times beside the calls, since a call
// to a distant server has no time for a second question. The next Take reports what it finds.
// It returns the inquiry, which may have begun before and then is at the place.
func (s *Store) identifyInBackground(a *attempt, place *atomic.Pointer[inquiry], timeout time.Duration, times int) *inquiry {
	of := *a
	return join(place, func(i *inquiry) {
		defer close(i.done)
		defer place.Store(nil)
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		for range times {
			i.err = guarded(func() error { return s.identify(ctx, &of) }) // after an error a later call asks again
		}
	})
}

// report remembers that a caller of Take receives err. The call that notices a restart may have
// lost its caller, or return another error: then the next Take reports the restart.
func (s *Store) report(err error) error {
	if errors.Is(err, core.ErrForgotten) {
		s.reported.Store(s.restarts.Load())
	}
	return err
}

// readIdentity reads what the user may read of the identity. With the run id it returns the
// server's time in µs, or 0 if the server does not say. The error says what could not be read.
func (a *attempt) readIdentity(ctx context.Context, key, seen string) (found identity, now int64, err error) {
	var info *redis.StringCmd
	var token *redis.Cmd
	_, err = a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		id := make([]byte, tokenID-1)
		_, _ = rand.Read(id) // never fails
		info = p.Info(ctx, "server")
		token = p.Eval(ctx, lua.TokenScript().Text, []string{key}, id, seen, tokenLife.Milliseconds())
		return nil
	})
	if _, _, replied := replyOf(err); err != nil && !replied && !errors.Is(err, redis.Nil) {
		return found, 0, err
	}
	if err != nil && info.Err() == nil && token.Err() == nil { // go-redis gives it to no command
		return found, 0, fmt.Errorf("%w: a new connection: %w", core.ErrOutOfReach, err)
	}
	if text, err := info.Result(); err == nil {
		info := redisfacts.Lines(text)
		found.run = info["run_id"]
		now, _ = strconv.ParseInt(info["server_time_usec"], 10, 64)
	} else if !isRefused(err) {
		return found, 0, err
	}
	found.token, err = token.Text()
	switch {
	case errors.Is(err, redis.Nil): // limitctl reads without writing
		err = nil
	case found.run == "" && isRefused(err):
		err = errNoIdentity
	}
	return found, now, err
}

// isRefused reports whether the server does not run a command for this user, or at all.
func isRefused(err error) bool {
	code, message, replied := replyOf(err)
	return replied && !isUnavailable(code, message)
}
