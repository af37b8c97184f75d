package limit

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

func TestLimiterWaitAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Minute, 1), Global(time.Hour, 10))
		w.take("alice", 1)
		var all []*wait
		for range 5 {
			all = append(all, w.add("alice", 1))
		}
		left := func() int64 {
			d := must.Get(mustPolicy(w.limiter, w.rules).Peek(t.Context(), Request{Keys: map[string]string{"user": "bob"}}))(t)
			return slices.Collect(d.Rules())[1].Remaining
		}
		assert.EqualValues(t, 9, left(), "who waits holds nothing")
		time.Sleep(90 * time.Second)
		assert.EqualValues(t, 8, left())
		for _, w := range all[1:] {
			w.cancel()
		}
		w.end()
		assert.EqualValues(t, 8, left())
		time.Sleep(10 * time.Minute)
		assert.EqualValues(t, 8, left(), "a wait that has ended takes nothing")
		for _, w := range all[1:] {
			assert.Equal(t, context.Canceled, w.err)
			assert.Equal(t, Decision{}, w.d)
		}
	})
}

func TestLimiterWaitCancelled(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		costs   []int64 // of those who stand in line for 5 a second, of which 3 are taken at 0
		cancel  int     // which of them gives up at 300 ms
		expects []time.Duration
	}{
		{"the first; the next asks for as much", []int64{5, 5}, 0, []time.Duration{300 * ms, 1000 * ms}},
		{"the first; the next asks for less", []int64{5, 2, 1}, 0, []time.Duration{300 * ms, 300 * ms, 1000 * ms}},
		{"the first; the next asks for more", []int64{4, 5}, 0, []time.Duration{300 * ms, 1000 * ms}},
		{"the middle", []int64{5, 5, 5}, 1, []time.Duration{1000 * ms, 300 * ms, 2000 * ms}},
		{"the last", []int64{5, 2, 5}, 2, []time.Duration{1000 * ms, 2000 * ms, 300 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaits(t, nil, PerUser(time.Second, 5))
			w.take("alice", 3)
			var all []*wait
			for _, cost := range test.costs {
				all = append(all, w.add("alice", cost))
			}
			time.Sleep(300 * ms)
			all[test.cancel].cancel()
			w.end()
			for i, got := range all {
				assert.Equal(t, test.expects[i], got.took, "%s: %d", test.name, i)
				assert.Equal(t, i == test.cancel, got.err != nil, test.name)
			}
			assert.ErrorIs(t, all[test.cancel].err, context.Canceled)
		})
	}
}

func TestLimiterWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Store: memstore.New(nil)}
		w := newWaits(t, store, PerUser(time.Second, 1), Global(time.Hour, 100))
		w.take("alice", 1)
		within := func(patience time.Duration) *wait {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			return w.within(ctx, "alice", 1)
		}
		tooEarly := func(got *wait) {
			t.Helper()
			var refused *RefusedError
			require.ErrorAs(t, got.err, &refused)
			assert.Zero(t, got.took, "at once")
			assert.False(t, refused.Decision.Allowed)
			assert.Equal(t, time.Second, refused.Decision.RetryAfter)
			assert.Equal(t, []string{"per-user-1s"}, refused.Decision.refusing())
			assert.EqualValues(t, 99, slices.Collect(refused.Decision.Rules())[1].Remaining)
			assert.EqualError(t, got.err, "limit: refused by per-user-1s, retry after 1s")
		}
		tooEarly(within(999 * time.Millisecond))
		tooEarly(within(time.Second)) // ctx has ended then
		assert.EqualValues(t, 1, store.n.Load(), "the admission said when the next unit fits")
		first := within(time.Second + 1)
		tooEarly(within(999 * time.Millisecond)) // nobody behind the first is sooner than it
		second := within(1500 * time.Millisecond)
		third := within(2500 * time.Millisecond)
		w.end()
		admitted(t, []time.Duration{time.Second, 2 * time.Second}, first, third)
		// When the first has gone, it is certain that there will be nothing in time.
		assert.ErrorAs(t, second.err, new(*RefusedError))
		assert.Equal(t, time.Second, second.took)
	})
}

// TestLimiterWaitDeadlineBehindOthers checks what is said to who stands behind
// others, and has not been refused itself.
func TestLimiterWaitDeadlineBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5), Global(time.Minute, 8), PerUser(time.Hour, 100))
		w.take("alice", 5)
		first := w.add("alice", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var refused *RefusedError
		require.ErrorAs(t, w.within(ctx, "alice", 4).err, &refused)
		assert.Equal(t, []string{"per-user-1s", "global-1m"}, refused.Decision.refusing())
		assert.Equal(t, time.Minute, refused.Decision.RetryAfter)
		assert.EqualValues(t, 95, slices.Collect(refused.Decision.Rules())[2].Remaining)
		w.end()
		admitted(t, []time.Duration{time.Second}, first)
	})
}

// TestLimiterWaitDeadlineBehindLarge checks that who asks for less than the one
// in front of it waits: that one may give up.
func TestLimiterWaitDeadlineBehindLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5))
		w.take("alice", 3)
		large := w.add("alice", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		lucky := w.within(ctx, "alice", 1)
		unlucky := w.within(ctx, "alice", 2)
		time.Sleep(100 * time.Millisecond)
		large.cancel()
		w.end()
		admitted(t, []time.Duration{100 * time.Millisecond}, lucky)
		assert.ErrorAs(t, unlucky.err, new(*RefusedError))
		assert.Equal(t, 100*time.Millisecond, unlucky.took)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5))
		w.take("alice", 3)
		large := w.add("alice", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		small := w.within(ctx, "alice", 1)
		w.end()
		assert.Equal(t, context.DeadlineExceeded, small.err)
		assert.Equal(t, 500*time.Millisecond, small.took)
		admitted(t, []time.Duration{time.Second}, large)
	})
}

func TestLimiterWaitQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, oneASecond.Declared()...)
		var all []*wait
		var at []time.Duration
		for i := range 8 {
			all = append(all, w.add("", 1))
			at = append(at, time.Duration(i)*time.Second)
		}
		assert.EqualValues(t, 4, w.limiter.engine.Queues.Len(), "the others have a turn")
		w.end()
		admitted(t, at, all...)

		w.add("", 1)
		turn := w.add("", 1)
		turn.cancel()
		w.end()
		assert.Equal(t, context.Canceled, turn.err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		assert.ErrorAs(t, w.within(ctx, "", 1).err, new(*RefusedError))
	})
}

func TestLimiterWaitMistakes(t *testing.T) {
	limiter := New(nil, nil)
	set := Named("mails", PerUser(time.Hour, 5), Global(time.Hour, 100))
	alice := map[string]string{"user": "alice"}
	for _, test := range []struct {
		n    int64
		says string
	}{
		{-1, "limit: cost -1: write 0 or more"},
		{6, `limit: rule "5/1h per user": cost 6: the rule never has room for more than 5: write less`},
		{math.MaxInt64, `limit: rule "5/1h per user": cost 281474976710655: the rule never has room for more than 5: write less`},
	} {
		_, err := mustPolicy(limiter, set).Wait(t.Context(), Request{Keys: alice, Cost: test.n})
		assert.EqualError(t, err, test.says)
		assert.ErrorAs(t, err, new(*rules.Error))
	}
	_, err := mustPolicy(limiter, set).Wait(t.Context(), Request{})
	assert.ErrorContains(t, err, `no key "user"`)
	_, err = mustPolicy(limiter, Rules(Global(time.Hour, 1))).Wait(t.Context(), Request{Cost: 1})
	assert.ErrorContains(t, err, "outside HTTP a policy needs a name")
	_, err = mustPolicy(limiter, Named("costly", Rule{Key: Everyone, Limit: 5, Window: time.Hour, Cost: otherCost})).Wait(t.Context(), Request{})
	assert.ErrorContains(t, err, "Cost is a function of an HTTP request")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = mustPolicy(limiter, set).Wait(ctx, Request{Keys: alice})
	assert.Equal(t, context.Canceled, err)
	d := must.Get(mustPolicy(limiter, set).Wait(t.Context(), Request{Keys: alice, Cost: 5}))(t)
	assert.EqualValues(t, 95, slices.Collect(d.Rules())[1].Remaining, "the wait that had ended took nothing")
	d = must.Get(mustPolicy(limiter, set).Wait(t.Context(), Request{Keys: alice, Costs: map[string]int64{"per-user-1h": 0, "global-1h": 0}}))(t)
	assert.True(t, d.Allowed, "a cost of 0 takes nothing, and is admitted")
}

func TestLimiterWaitStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		store := &scripted{Store: memstore.New(nil), before: func(call int64) error {
			switch call {
			case 2: // of the first waiter, when its time has come: the first refusal is remembered
				return down
			case 3:
				panic(down)
			}
			return nil
		}}
		w := newWaits(t, store, PerUser(time.Second, 1))
		w.take("alice", 1)
		first := w.add("alice", 1)
		panics := make(chan any, 1)
		go func() {
			defer func() { panics <- recover() }()
			mustPolicy(w.limiter, w.rules).Wait(t.Context(), Request{Keys: map[string]string{"user": "alice"}})
		}()
		synctest.Wait()
		third := w.add("alice", 1)
		fourth := w.add("alice", 1)
		w.end()
		assert.ErrorIs(t, first.err, ErrUndecided)
		assert.ErrorIs(t, first.err, down)
		assert.Equal(t, down, <-panics)
		admitted(t, []time.Duration{time.Second, 2 * time.Second}, third, fourth)
	})
}

// TestLimiterWaitEndsInFlight has a wait cancelled while the store decides.
func TestLimiterWaitEndsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(nil)
		store := &scripted{Store: memory, before: func(int64) error {
			time.Sleep(100 * time.Millisecond) // a slow reply
			return nil
		}}
		w := newWaits(t, store, PerUser(time.Second, 1))
		first := w.add("alice", 1)
		time.Sleep(50 * time.Millisecond)
		first.cancel()
		w.end()
		admitted(t, []time.Duration{100 * time.Millisecond}, first)

		second := w.add("alice", 1)
		time.Sleep(150 * time.Millisecond)
		second.cancel()
		w.end()
		assert.Equal(t, context.Canceled, second.err, "it was refused, and there is nothing to return")
	})
}

func TestLimiterWaitAllocates(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("p", PerUser(time.Hour, 50000), Global(time.Hour, 50000))
	alice := map[string]string{"user": "alice"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	policy := mustPolicy(limiter, rules)
	_, err := policy.Take(ctx, Request{Keys: alice, Cost: 10000}) // the log has grown
	require.NoError(t, err)
	take := testing.AllocsPerRun(1000, func() { policy.Take(ctx, Request{Keys: alice}) })
	wait := testing.AllocsPerRun(1000, func() { policy.Wait(ctx, Request{Keys: alice}) })
	assert.LessOrEqual(t, wait, take+4, "the waiter, and what can be settled")
}
