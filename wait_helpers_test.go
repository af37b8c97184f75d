package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

// A wait is a call of Wait under way, of a bubble of synctest.
type wait struct {
	cancel context.CancelFunc
	d      Decision
	err    error
	took   time.Duration // since the bubble began
}

// waits starts calls of Wait in the order in which it is called.
type waits struct {
	t       *testing.T
	limiter *Limiter
	rules   RuleSet
	start   time.Time
	done    sync.WaitGroup
}

func newWaits(t *testing.T, store core.Store, rules ...Rule) *waits {
	return &waits{t: t, limiter: New(store, nil), rules: Named("p", rules...), start: time.Now()}
}

func (w *waits) within(ctx context.Context, user string, n int64) *wait {
	ctx, cancel := context.WithCancel(ctx)
	result := &wait{cancel: cancel}
	w.done.Go(func() {
		defer cancel()
		result.d, result.err = mustPolicy(w.limiter, w.rules).Wait(ctx, Request{Keys: map[string]string{"user": user}, Cost: n})
		result.took = time.Since(w.start)
	})
	synctest.Wait() // it has been admitted, or stands in a line
	return result
}

func (w *waits) add(user string, n int64) *wait { return w.within(w.t.Context(), user, n) }

func (w *waits) take(user string, n int64) Decision {
	d := must.Get(mustPolicy(w.limiter, w.rules).Take(w.t.Context(), Request{Keys: map[string]string{"user": user}, Cost: n}))(w.t)
	return d
}

// end waits for all, and checks that nothing of them is remembered.
func (w *waits) end() {
	w.done.Wait()
	assert.True(w.t, w.limiter.engine.Queues.Len() == 0)
}

// admitted checks that waits were admitted at the times given.
func admitted(t *testing.T, at []time.Duration, waits ...*wait) {
	t.Helper()
	for i, w := range waits {
		require.NoError(t, w.err, i)
		assert.True(t, w.d.Allowed, i)
		assert.Equal(t, at[i], w.took, i)
	}
}

// calls counts the calls of a store.
type calls struct {
	core.Store
	n atomic.Int64
}

func (c *calls) Take(ctx context.Context, asks []core.Ask) error {
	c.n.Add(1)
	return c.Store.Take(ctx, asks)
}

// scripted is a store whose calls a test answers or delays.
type scripted struct {
	core.Store
	n      atomic.Int64
	before func(call int64) error
}

func (s *scripted) Take(ctx context.Context, asks []core.Ask) error {
	if err := s.before(s.n.Add(1)); err != nil {
		return err
	}
	return s.Store.Take(ctx, asks)
}
