package limit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

// oneASecond is a queue of up to three, one of which goes on each second.
var oneASecond = Named("queue", Rule{Key: Everyone, Limit: 60, Window: time.Minute, Algorithm: Queue{Burst: 3}})

// TestWaitIsWoken has a caller wait for units that come back long before any decision
// said: by Settle, Reset and Release.
func TestWaitIsWoken(t *testing.T) {
	for name, test := range map[string]struct {
		rules RuleSet
		back  func(*testing.T, *Policy, Decision)
	}{
		"settle": {Named("p", PerUser(time.Hour, 5)), func(t *testing.T, _ *Policy, d Decision) { require.NoError(t, d.Settle(t.Context(), 1)) }},
		"reset": {Named("p", PerUser(time.Hour, 5)), func(t *testing.T, p *Policy, _ Decision) {
			require.NoError(t, p.Reset(t.Context(), map[string]string{"user": "alice"}))
		}},
		"release": {Named("p", Rule{Key: ByUser, Limit: 5, Algorithm: Concurrency{}}), func(_ *testing.T, _ *Policy, d Decision) { d.Release() }},
	} {
		for _, store := range []core.Store{nil, &calls{Store: memstore.New(nil)}} { // decorated by a memory of refusals
			synctest.Test(t, func(t *testing.T) {
				p := mustPolicy(New(store, nil), test.rules)
				alice := map[string]string{"user": "alice"}
				held := must.Get(p.Take(t.Context(), Request{Keys: alice, Cost: 5, Settle: true}))(t)
				start := time.Now()
				var done sync.WaitGroup
				for range 2 {
					done.Go(func() {
						d, err := p.Wait(t.Context(), Request{Keys: alice, Cost: 2, Settle: true})
						assert.NoError(t, err, name)
						assert.Equal(t, time.Second, time.Since(start), name)
						assert.EqualValues(t, 2, d.Taken)
						if name != "release" {
							assert.NoError(t, d.Settle(t.Context(), 1), "a wait can be settled")
						}
						d.Release()
					})
				}
				time.Sleep(time.Second)
				test.back(t, p, held)
				done.Wait()
			})
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, start := New(nil, nil), time.Now()
		var decisions []Decision
		for i := range 4 {
			d := must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
			require.True(t, d.Allowed)
			assert.Equal(t, time.Duration(i)*time.Second, d.Delay)
			decisions = append(decisions, d)
		}
		for i, d := range decisions {
			require.NoError(t, d.Wait(t.Context()))
			assert.Equal(t, time.Duration(i)*time.Second, time.Since(start), "from the decision on, not from the call")
		}
		assert.NoError(t, decisions[1].Wait(t.Context()), "its turn has been")
	})
}

func TestWaitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, start := New(nil, nil), time.Now()
		for range 4 {
			must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
		}
		d := must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
		assert.False(t, d.Allowed)
		assert.Zero(t, d.Delay)
		assert.Equal(t, time.Second, d.RetryAfter)
		var refused *RefusedError
		require.ErrorAs(t, d.Wait(t.Context()), &refused)
		assert.Equal(t, d, refused.Decision)
		assert.Zero(t, time.Since(start))
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, start := New(nil, nil), time.Now()
		first := must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
		second := must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		assert.ErrorIs(t, second.Wait(ctx), context.Canceled)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		assert.ErrorIs(t, second.Wait(ctx), context.Canceled, "also at once")
		assert.NoError(t, first.Wait(ctx), "there is nothing to wait for")

		time.Sleep(time.Minute)
		assert.ErrorIs(t, second.Wait(ctx), context.Canceled, "also after its turn")

		ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		d := must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
		require.Zero(t, d.Delay)
		d = must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{}))(t)
		assert.ErrorAs(t, d.Wait(ctx), new(*RefusedError), "the turn is after the deadline")
	})
}

// TestLate checks that nobody is made to wait past a deadline, and that whoever
// comes again as late as told is in time.
func TestLate(t *testing.T) {
	for _, cost := range []int64{1, 2} {
		for _, patience := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 1300 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				limiter := New(nil, nil)
				for range 2 {
					must.Get(mustPolicy(limiter, oneASecond).Take(t.Context(), Request{Cost: 1}))(t)
				}
				take := func() Decision {
					ctx, cancel := context.WithTimeout(t.Context(), patience+time.Nanosecond)
					defer cancel()
					d := must.Get(mustPolicy(limiter, oneASecond).Take(ctx, Request{Cost: cost}))(t)
					return d
				}
				d := take()
				require.False(t, d.Allowed)
				assert.Zero(t, d.Delay)
				assert.Equal(t, []string{"global-1m"}, d.refusing())
				require.Equal(t, 2*time.Second-patience, d.RetryAfter, "its turn is given back")
				time.Sleep(d.RetryAfter)
				again := take()
				assert.True(t, again.Allowed)
				assert.Equal(t, patience, again.Delay)
			})
		}
	}
}

// TestLateAmongOthers holds that a late request gives back what it has taken of
// other rules.
func TestLateAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := New(nil, nil)
		rules := Named("a", oneASecond.Declared()[0], Global(time.Hour, 2))
		must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d := must.Get(mustPolicy(limiter, rules).Take(ctx, Request{}))(t)
		assert.False(t, d.Allowed)
		assert.Equal(t, time.Second-time.Millisecond, d.RetryAfter)
		assert.Equal(t, []string{"global-1m"}, d.refusing())
		time.Sleep(d.RetryAfter)
		d = must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{}))(t)
		assert.True(t, d.Allowed)
	})
}
