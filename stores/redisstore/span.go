package redisstore

import (
	"context"
	"sync"
	"time"
)

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

// begin begins a span that ends with ctx, and after a timeout unless it has an end. The caller calls the function
// that it returns, and cancels the span.
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
