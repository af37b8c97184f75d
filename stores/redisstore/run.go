package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// An invocation is one call of a script.
type invocation struct {
	script *lua.Script
	keys   []string
	args   []any

	// timed says that args[1] is the deadline of the call, that the last of args is its
	// number, and that a reply begins with the time of the server and ends with the number.
	timed bool

	span                           // set by run, but for the end of a call that goes on with another one
	words   []any                  // likewise: the command
	space   [12]any                // of most words
	failing atomic.Pointer[server] // the server that an error is about
	refused atomic.Pointer[error]  // what a probe found

	uncertainty atomic.Int64 // of the clock of the server when a timed call was last sent, µs
}

// answered reports whether a reply is that of a timed call.
func (c *invocation) answered(reply []int64) bool {
	last := len(reply) - 1
	return c.timed && last > 0 && reply[last] == c.args[len(c.args)-1]
}

// late reports whether a reply says that the call came after its deadline.
func (c *invocation) late(reply []int64) bool { return len(reply) == 2 && c.answered(reply) }

// run calls a script once. Every call of the store goes through here. It ends with
// ctx or with the timeout of the store, whatever the options of the client are.
func (s *Store) run(ctx context.Context, c *invocation) ([]int64, error) {
	began := ticks()
	timed := &c.span
	defer timed.begin(ctx, s.timeout())()
	defer timed.cancel(context.Canceled)
	defer time.AfterFunc(min(probeAfter, time.Until(c.end)), func() { s.overdue(c) }).Stop()
	c.words = append(slices.Grow(c.space[:0], 3+len(c.keys)+len(c.args)), "evalsha", c.script.Hash, len(c.keys))
	for _, key := range c.keys {
		c.words = append(c.words, key)
	}
	c.words = append(c.words, c.args...)
	var reply []int64
	var err error
	if s.deadlines {
		reply, err = s.eval(timed, c)
	} else {
		reply, err = s.evalDetached(timed, c)
	}
	if err == nil {
		return reply, nil
	}
	if refused := c.refused.Load(); refused != nil {
		err = *refused
	}
	if problem := s.hindered(timed, c.keys, began, err); problem != nil {
		return nil, s.explain(ctx, problem) // the server has not failed
	}
	err = s.explain(ctx, err)
	if ctx.Err() != nil || errors.Is(err, core.ErrOutOfReach) {
		s.failed(c.failing.Load())
	}
	return nil, err
}

// evalDetached is eval for a client that ignores the deadline of its context. A call that is given
// up holds a connection until the client's own timeout. Their number bounds these calls.
func (s *Store) evalDetached(ctx context.Context, c *invocation) ([]int64, error) {
	var reply []int64
	err := detached(ctx, func() (err error) {
		reply, err = s.eval(ctx, c)
		return err
	})
	if err != nil {
		return nil, err // a call that was given up may still write reply
	}
	return reply, nil
}

// detached calls f in a goroutine of its own, and does not wait for it when ctx ends.
func detached(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- guarded(f) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errPanicked = errors.New("redisstore: the client panicked")

// guarded calls f, which may run hooks of the client, and returns a panic as an error: in
// a goroutine of the store it would end the program.
func guarded(f func() error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%w: %v", errPanicked, problem)
		}
	}()
	return f()
}

// eval sends the hash of the script, and its text only to a server that replies
// NOSCRIPT: after any other error the script may have run. A call that came after its
// deadline took nothing: it is sent again, since the server's clock may have been set.
func (s *Store) eval(ctx context.Context, c *invocation) ([]int64, error) {
	var a attempt
	defer a.leave() // also if a hook of the client panics
	err := s.begin(ctx, &a, c.keys[0])
	if err != nil || !a.identified { // a server that has just answered may be slow, but does not fail
		c.failing.Store(a.server)
	}
	if err != nil {
		return nil, err
	}
	reply, err := s.send(ctx, &a, c)
	if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.failing.Store(a.server)
	}
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT ") {
		if !a.identified { // else the server has not been sent the script yet
			if err := s.identify(ctx, &a); err != nil {
				return nil, err
			}
		}
		c.words = slices.Clone(c.words) // hooks may still have those of the first command
		c.words[0], c.words[1] = "eval", c.script.Text
		reply, err = s.send(ctx, &a, c)
	}
	if err == nil && c.late(reply) && ctx.Err() == nil {
		c.words = slices.Clone(c.words)
		reply, err = s.send(ctx, &a, c)
	}
	if err != nil {
		if _, _, refused := replyOf(err); refused {
			a.replied(ticks())
		}
		return reply, err
	}
	a.replied(ticks())
	return reply, s.end(ctx, &a)
}

func (s *Store) send(ctx context.Context, a *attempt, c *invocation) ([]int64, error) {
	var sent int64
	if c.timed {
		sent = localTime()
		latest, uncertainty := a.clock.latest(ctx, sent)
		c.words[3+len(c.keys)+1] = latest
		c.uncertainty.Store(uncertainty)
	}
	cmd := once{redis.NewIntSliceCmd(ctx, c.words...)}
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	reply, err := cmd.Result()
	if err == nil && c.answered(reply) {
		a.clock.learn(sent, localTime(), reply[0])
	}
	return reply, err
}

// once is a command that the client does not repeat.
type once struct{ *redis.IntSliceCmd }

func (once) NoRetry() bool { return true }

// A span is the context of a call: that of its caller, until an end. One of
// [context.WithTimeout] would cost a lone decision four allocations more. The timer of the
// probe ends it too; timers from a pool would not work in bubbles of package synctest.
type span struct {
	context.Context // of the caller
	end             time.Time
	done            chan struct{}
	once            sync.Once
	err             error // why done is closed
}

// begin begins a span that ends with ctx, and after a timeout unless it has an end. The caller
// calls the function that it returns, and cancels the span.
func (s *span) begin(ctx context.Context, timeout time.Duration) (leave func() bool) {
	s.Context, s.done = ctx, make(chan struct{})
	if s.end.IsZero() {
		s.end = time.Now().Add(timeout)
	}
	if end, ok := ctx.Deadline(); ok && end.Before(s.end) {
		s.end = end
	}
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
}

func (s *span) cancel(err error) { s.once.Do(func() { s.err = err; close(s.done) }) }

func (s *span) Deadline() (time.Time, bool) { return s.end, true }

func (s *span) Done() <-chan struct{} {
	if err := s.Context.Err(); err != nil { // the function of context.AfterFunc may not have run yet
		s.cancel(err)
	}
	return s.done
}

func (s *span) Err() error {
	select {
	case <-s.Done():
		return s.err
	default:
		return nil
	}
}

// overdue probes the server of a call that has no answer yet, and ends the call at its end.
func (s *Store) overdue(c *invocation) {
	defer time.AfterFunc(time.Until(c.end), func() { c.cancel(context.DeadlineExceeded) }).Stop()
	if time.Until(c.end) <= 0 {
		c.cancel(context.DeadlineExceeded)
	} else if err := s.probe(&c.span, c.keys[0]); err != nil {
		c.refused.Store(&err)
		c.cancel(context.Canceled)
	}
}
