package limit

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// TestTakeUpTo takes what there is, by each algorithm, of which each holds 10.
func TestTakeUpTo(t *testing.T) {
	for _, text := range []string{
		"10/1h per user", "10/1h per user fixed-window", "10/month per user zone UTC", "10/1h per user sliding-cells",
		"10/1h per user sliding-counter", "10/1h per user token-bucket", "5/1h per user token-bucket burst 10",
		"10/1h per user leaky-bucket", "10/1h per user queue burst 9",
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &calls{Store: memstore.New(nil)}
			limiter := New(store, nil)
			rules := Named("p", append(MustParse(text).Declared(), Global(time.Hour, 1000))...)
			for _, step := range []struct{ n, taken, left, calls int64 }{
				{3, 3, 7, 1},
				{8, 7, 0, 2},
				{8, 0, 0, 1}, // and that none is left is remembered
				{1, 0, 0, 0}, // that is remembered
				{math.MaxInt64, 0, 0, 1},
			} {
				store.n.Store(0)
				d, taken, err := takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Keys: map[string]string{"user": "alice"}, Cost: step.n, UpTo: true})
				require.NoError(t, err)
				require.Equal(t, step.taken, taken, "%s: %d", text, step.n)
				assert.Equal(t, taken > 0, d.Allowed, text)
				assert.Equal(t, step.left, slices.Collect(d.Rules())[0].Remaining, text)
				assert.Equal(t, 990+step.left, slices.Collect(d.Rules())[1].Remaining, text)
				assert.Equal(t, step.calls, store.n.Load(), text)
				assert.Equal(t, d.Allowed, d.RetryAfter == 0, text)
			}
			d, _, err := takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Keys: map[string]string{"user": "alice"}, Cost: 5, UpTo: true})
			require.NoError(t, err)
			time.Sleep(d.RetryAfter)
			_, taken, err := takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Keys: map[string]string{"user": "alice"}, Cost: 5, UpTo: true})
			require.NoError(t, err)
			assert.Positive(t, taken, "%s: RetryAfter is about one unit", text)
			_, taken, err = takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Keys: map[string]string{"user": "bob"}, Cost: math.MaxInt64, UpTo: true})
			require.NoError(t, err)
			assert.EqualValues(t, 10, taken, "%s: the most that the rule holds", text)
		})
	}
}

func takeUpTo(p *Policy, ctx context.Context, r Request) (d Decision, taken int64, err error) {
	d, err = p.Take(ctx, r)
	return d, d.Taken, err
}

// TestTakeUpToEmpty asks a bucket that begins without tokens.
func TestTakeUpToEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, rules := New(nil, nil), Named("p", MustParse("60/1m global token-bucket burst 10 empty").Declared()...)
		for _, want := range []int64{0, 4, 4} {
			_, taken, err := takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Cost: 6, UpTo: true})
			require.NoError(t, err)
			assert.Equal(t, want, taken)
			time.Sleep(4 * time.Second)
		}
	})
}

// TestTakeUpToWatched takes as much as may be of rules that only watch.
func TestTakeUpToWatched(t *testing.T) {
	rule := Global(time.Hour, 10)
	rule.Shadow = &rules.Shadow{}
	set := Named("p", rule)
	_, taken, err := takeUpTo(mustPolicy(New(nil, nil), set), t.Context(), Request{Cost: math.MaxInt64, UpTo: true})
	require.NoError(t, err)
	assert.EqualValues(t, core.MaxCost, taken)
}

// TestTakeUpToQueue takes turns of a queue whose waits are bounded, where the
// places that are left are none as soon as the next turn is too late.
func TestTakeUpToQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, rules := New(nil, nil), Named("p", MustParse("60/1m global queue burst 9 wait 2s").Declared()...)
		take := func(ctx context.Context, n int64) (Decision, int64) {
			t.Helper()
			d, taken, err := takeUpTo(mustPolicy(limiter, rules), ctx, Request{Cost: n, UpTo: true})
			require.NoError(t, err)
			return d, taken
		}
		_, taken := take(t.Context(), 2)
		assert.EqualValues(t, 2, taken)
		d, taken := take(t.Context(), 20)
		assert.EqualValues(t, 8, taken)
		assert.Equal(t, 2*time.Second, d.Delay)
		d, taken = take(t.Context(), 20)
		assert.Zero(t, taken)
		assert.Equal(t, 8*time.Second, d.RetryAfter, "then the next turn comes in 2 s")
		time.Sleep(d.RetryAfter)

		// A turn after the deadline is given back.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d, taken = take(ctx, 3)
		assert.Zero(t, taken)
		assert.False(t, d.Allowed)
		_, taken = take(t.Context(), 20)
		assert.EqualValues(t, 8, taken, "10 places, of which 2 are taken")
	})
}

func TestTakeUpToMistakes(t *testing.T) {
	limiter, set := New(nil, nil), Named("p", PerUser(time.Hour, 5))
	for _, n := range []int64{0, -1, math.MinInt64} {
		_, taken, err := takeUpTo(mustPolicy(limiter, set), t.Context(), Request{Keys: map[string]string{"user": "alice"}, Cost: n, UpTo: true})
		assert.ErrorAs(t, err, new(*rules.Error))
		assert.Zero(t, taken)
	}
	_, _, err := takeUpTo(mustPolicy(limiter, set), t.Context(), Request{Cost: 1, UpTo: true})
	assert.ErrorContains(t, err, `no key "user"`)
	down := errors.New("down")
	limiter = New(&scripted{Store: memstore.New(nil), before: func(int64) error { return down }}, nil)
	_, taken, err := takeUpTo(mustPolicy(limiter, set), t.Context(), Request{Keys: map[string]string{"user": "alice"}, Cost: 1, UpTo: true})
	assert.ErrorIs(t, err, ErrUndecided)
	assert.ErrorIs(t, err, down)
	assert.Zero(t, taken)
}

// TestTakeUpToConcurrently has several empty a key, to the last unit.
func TestTakeUpToConcurrently(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("p", PerUser(time.Hour, 10_000), Global(time.Hour, 30_000))
	var of [4]atomic.Int64
	var done sync.WaitGroup
	for i := range 16 {
		done.Go(func() {
			for n := int64(i + 1); ; n = n%97 + 1 {
				d, taken, err := takeUpTo(mustPolicy(limiter, rules), t.Context(), Request{Keys: map[string]string{"user": string(rune('a' + i%4))}, Cost: n, UpTo: true})
				if !assert.NoError(t, err) || !d.Allowed {
					return
				}
				of[i%4].Add(taken)
			}
		})
	}
	done.Wait()
	var all int64
	for i := range of {
		all += of[i].Load()
		assert.LessOrEqual(t, of[i].Load(), int64(10_000))
	}
	assert.EqualValues(t, 30_000, all)
}

// TestTakeUpToContended has others take some before each call.
func TestTakeUpToContended(t *testing.T) {
	for _, test := range []struct {
		others []int64 // taken before each call
		taken  int64
		asks   []int64
	}{
		{[]int64{0}, 100, []int64{100}},
		{[]int64{40}, 60, []int64{100, 60}},
		{[]int64{40, 10}, 50, []int64{100, 60, 50}},
		{[]int64{40, 10, 10}, 1, []int64{100, 60, 50, 1}},
		{[]int64{40, 10, 10, 40}, 0, []int64{100, 60, 50, 1}},
		{[]int64{99, 1}, 0, []int64{100, 1}},
	} {
		memory := memstore.New(nil)
		store := &contended{Store: memory, others: test.others}
		d, taken, err := takeUpTo(mustPolicy(New(store, nil), Named("p", Global(time.Hour, 100))), t.Context(), Request{Cost: 100, UpTo: true})
		require.NoError(t, err)
		assert.Equal(t, test.taken, taken)
		assert.Equal(t, taken > 0, d.Allowed)
		assert.Equal(t, test.asks, store.asks)
	}
}

// contended has others take units before each call.
type contended struct {
	core.Store
	others []int64
	asks   []int64
}

func (c *contended) Take(ctx context.Context, asks []core.Ask) error {
	if len(c.others) > 0 {
		other := asks[0].Charges[0]
		other.Cost, c.others = c.others[0], c.others[1:]
		of := []core.Ask{{Charges: []core.Charge{other}}}
		if err := c.Store.Take(ctx, of); err != nil || !of[0].Decision.Allowed {
			panic("the others must be admitted")
		}
	}
	c.asks = append(c.asks, asks[0].Charges[0].Cost)
	return c.Store.Take(ctx, asks)
}
