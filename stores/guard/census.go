package guard

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/routelimit/limit/internal/notice"
)

const (
	censusEvery = 60_000_000      // µs; a store that does not ask for three times as long counts no more
	censusGrace = 15 * 60_000_000 // µs for which there may be more processes than usual, as in a rolling deploy
)

// A census counts the processes that share the store, and notices if they are more than
// Instances for longer than a deploy takes.
type census struct {
	due   atomic.Int64 // when the next count is
	since int64        // when there were first too many in a row, or 0; counts come one after the other
}

// look counts if a count is due, after the store has answered. The request does not wait.
func (c *census) look(s *Store, now int64) {
	due := c.due.Load()
	if now < due || !c.due.CompareAndSwap(due, math.MaxInt64) {
		return
	}
	store, ok := s.store.(interface {
		Sharers(context.Context) (int, error)
	})
	if !ok {
		return
	}
	s.debts.forget(now)
	go func() {
		defer func() {
			_ = recover() // hooks of the store's client may panic
			c.due.Store(now + censusEvery)
		}()
		if n, err := store.Sharers(context.Background()); err == nil {
			c.count(s, int64(n), now)
		}
	}()
}

// count notes how many processes there are.
func (c *census) count(s *Store, processes, now int64) {
	switch {
	case processes <= s.instances:
		c.since = 0
	case c.since == 0:
		c.since = now
	case now-c.since >= censusGrace:
		c.since = now
		s.outage.log.Say(notice.MoreInstances, "processes", processes, "instances", s.instances)
	}
}
