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
	d, err := mustPolicy(w.limiter, w.rules).Take(w.t.Context(), Request{Keys: map[string]string{"user": user}, Cost: n})
	require.NoError(w.t, err)
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

// TestLimiterWaitTogether has several admitted at a time.
// TestLimiterWaitShared checks the order where a key that all share refuses,
// and others refuse some of them for longer.
// TestLimiterWaitEarlierTicket has one who came earlier join a line in which
// others stand already, while others stand behind it in the line that it leaves.
// TestLimiterWaitDeadlineBehindOthers checks what is said to who stands behind
// others, and has not been refused itself.
// TestLimiterWaitDeadlineBehindLarge checks that who asks for less than the one
// in front of it waits: that one may give up.
// TestLimiterWaitLarge has small costs come without end beside a large one.
// TestLimiterWaitLargeAmongUsers has users each wait for a key of their own,
// whose time comes just when there is one more unit of the key that all share.
// A large cost waits for five of these.
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

// TestLimiterWaitSideBySide has a store that is slower than the rule: waits that
// asked it one after the other would take five times as long as the rule allows.
// TestLimiterWaitOvertakenByOthers has another process take what those who ask
// side by side were told of: they stand in line again, in their order.
// TestLimiterWaitEndsInFlight has a wait cancelled while the store decides.
// TestLimiterWaitManyCancels lets many come and go, and then checks that the
// rules have held in every window, and that nothing holds up those who stay.
