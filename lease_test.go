package limit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

// twoAtOnce has leases that live for 3 s, and so are renewed each second.
var twoAtOnce = Named("two", Rule{Key: Everyone, Limit: 2, Window: 3 * time.Second, Algorithm: Concurrency{}})

// watched is a store whose renewals and releases are counted, and can be made
// to fail or to be lost.
type watched struct {
	core.Store
	mu       sync.Mutex
	ids      []uint64
	renewals int // calls
	releases int
	failing  bool
	contexts []context.Context
	last     time.Time // when leases were taken or renewed last
}

func (w *watched) Take(ctx context.Context, asks []core.Ask) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range asks[0].Charges {
		w.ids = append(w.ids, c.ID)
	}
	w.last = time.Now()
	return w.Store.Take(ctx, asks)
}

func (w *watched) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewals++
	if w.failing {
		return nil, errors.New("out of reach")
	}
	w.last = time.Now()
	return w.Store.Renew(ctx, charges)
}

func (w *watched) Release(ctx context.Context, charges []core.Charge) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releases++
	w.contexts = append(w.contexts, ctx)
	return w.Store.Release(ctx, charges)
}

// beats returns how many renewals there were.
func (w *watched) beats() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewals
}

func (w *watched) left(t *testing.T, rules RuleSet) int64 {
	t.Helper()
	d := must.Get(mustPolicy(New(w.Store, nil), rules).Peek(t.Context(), Request{}))(t)
	return slices.Collect(d.Rules())[0].Remaining
}

func hold(t *testing.T, l *Limiter, rules RuleSet) Decision {
	t.Helper()
	d := must.Get(mustPolicy(l, rules).Take(t.Context(), Request{}))(t)
	return d
}

// TestLeaseLives holds a lease for much longer than it lives by itself.
func TestLeaseLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New(nil)}
		limiter := New(store, nil)
		first, second := hold(t, limiter, twoAtOnce), hold(t, limiter, twoAtOnce)
		require.True(t, first.Allowed && second.Allowed)
		for range 10 {
			time.Sleep(2500 * time.Millisecond)
			d := hold(t, limiter, twoAtOnce)
			require.False(t, d.Allowed)
			assert.LessOrEqual(t, d.RetryAfter, 3*time.Second)
			assert.Greater(t, d.RetryAfter, 2*time.Second-time.Microsecond)
			d.Release() // of a refusal
		}
		synctest.Wait()
		assert.InDelta(t, 29, store.beats(), 4, "both together, every third of the window or up to a quarter earlier")

		copied := first
		first.Release()
		assert.EqualValues(t, 1, store.left(t, twoAtOnce))
		copied.Release()
		first.Release()
		assert.EqualValues(t, 1, store.left(t, twoAtOnce), "once, and nobody else's")
		assert.Equal(t, 1, store.releases)
		require.True(t, hold(t, limiter, twoAtOnce).Allowed) // and is never released

		var all sync.WaitGroup
		for range 20 {
			all.Go(second.Release)
		}
		all.Wait()
		assert.Equal(t, 2, store.releases)
		assert.NotContains(t, store.ids, uint64(0))
		slices.Sort(store.ids)
		assert.Len(t, slices.Compact(store.ids), 13, "each has an id of its own")

		before := store.beats()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.InDelta(t, before+12, store.beats(), 2, "what is released is not renewed")
		assert.EqualValues(t, 1, store.left(t, twoAtOnce))
	})
}

// TestLeaseIsRenewedAgain has renewals fail, for less and for more than a lease
// lives.
func TestLeaseIsRenewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New(nil), failing: true}
		d := hold(t, New(store, nil), twoAtOnce)
		fail := func(failing bool) { store.mu.Lock(); store.failing = failing; store.mu.Unlock() }
		time.Sleep(1500 * time.Millisecond)
		fail(false)
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, store.left(t, twoAtOnce), "the second beat was in time")

		fail(true)
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, 2, store.left(t, twoAtOnce), "lost")
		fail(false)
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 2, store.left(t, twoAtOnce), "and stays so")
		before := store.beats()
		time.Sleep(10 * time.Second)
		assert.Equal(t, before, store.beats(), "what is lost beats no more")
		d.Release()
		assert.Zero(t, store.releases)
	})
}

// slow renews only when the call is given up.
type slow struct{ *watched }

func (s slow) Renew(ctx context.Context, _ []core.Charge) ([]bool, error) {
	s.mu.Lock()
	s.renewals++
	s.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLeaseOutOfReach has renewals hang: each is given up when the next begins,
// and releasing meanwhile waits for none of them.
func TestLeaseOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New(nil)}
		d := hold(t, New(slow{store}, nil), twoAtOnce)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 2, store.beats())
		start := time.Now()
		d.Release()
		assert.Zero(t, time.Since(start))
		assert.EqualValues(t, 2, store.left(t, twoAtOnce))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 2, store.beats())
	})
}

// TestReleaseIsNotTheRequests releases after the context of the request has
// ended, within a bound of its own.
func TestReleaseIsNotTheRequests(t *testing.T) {
	store := &watched{Store: memstore.New(nil)}
	limiter := New(store, nil)
	ctx, cancel := context.WithCancel(t.Context())
	d := must.Get(mustPolicy(limiter, twoAtOnce).Take(ctx, Request{}))(t)
	cancel()
	d.Release()
	assert.EqualValues(t, 2, store.left(t, twoAtOnce))
	deadline, ok := store.contexts[0].Deadline()
	assert.True(t, ok)
	assert.LessOrEqual(t, time.Until(deadline), engine.SettleTimeout)
}

// TestLeaseBesideOtherRules takes leases of several rules, with costs.
func TestLeaseBesideOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New(nil)}
		limiter := New(store, nil)
		rules := Named("stack",
			Rule{Name: "ten", Key: Everyone, Limit: 10, Window: 30 * time.Second, Algorithm: Concurrency{}},
			Global(time.Hour, 5),
			Rule{Name: "four", Key: Everyone, Limit: 4, Window: 3 * time.Second, Algorithm: Concurrency{}})
		d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Cost: 3}))(t)
		require.True(t, d.Allowed)
		assert.Equal(t, store.ids[0], store.ids[2], "one id for all leases of a decision")
		assert.Zero(t, store.ids[1])
		refused := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Cost: 2}))(t)
		assert.Equal(t, []string{"four"}, slices.DeleteFunc(refused.refusing(), func(name string) bool { return name == "global-1h" })) // which has 2 left
		nothing := map[string]int64{}
		for _, r := range rules.Rules() {
			nothing[r.Name] = 0
		}
		free := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Costs: nothing}))(t)
		assert.True(t, free.Allowed)
		free.Release()
		assert.Zero(t, store.releases, "nothing was taken")
		peeked := must.Get(mustPolicy(limiter, rules).Peek(t.Context(), Request{}))(t)
		peeked.Release()

		time.Sleep(31 * time.Second)
		assert.EqualValues(t, 7, store.left(t, rules))
		d.Release()
		after := must.Get(mustPolicy(limiter, rules).Peek(t.Context(), Request{}))(t)
		left := slices.Collect(after.Rules())
		assert.Equal(t, []int64{10, 2, 4}, []int64{left[0].Remaining, left[1].Remaining, left[2].Remaining},
			"what is counted stays so")
	})
}

// TestLateReleases refuses a request whose turn is after its deadline: it holds
// nothing, and the headers know.
func TestLateReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memstore.New(nil)}
		limiter := New(store, nil)
		rules := Named("late",
			Rule{Name: "held", Key: Everyone, Limit: 2, Window: 30 * time.Second, Algorithm: Concurrency{}},
			Rule{Name: "line", Key: Everyone, Limit: 1, Window: time.Minute, Algorithm: Queue{Burst: 5}})
		first := hold(t, limiter, rules)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := must.Get(mustPolicy(limiter, rules).Take(ctx, Request{}))(t)
		assert.Equal(t, []string{"line"}, d.refusing())
		assert.EqualValues(t, 1, slices.Collect(d.Rules())[0].Remaining, "it has given its own back")
		assert.EqualValues(t, 1, store.left(t, rules))
		first.Release()
		assert.EqualValues(t, 2, store.left(t, rules))
	})
}

// TestObserveThatPanics leaves nothing behind.
func TestObserveThatPanics(t *testing.T) {
	store := &watched{Store: memstore.New(nil)}
	limiter := New(store, &Options{Observe: func(*http.Request, Decision, error) { panic("oops") }})
	h := limiter.Limit(twoAtOnce)(http.NotFoundHandler())
	assert.Panics(t, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
	assert.EqualValues(t, 2, store.left(t, twoAtOnce))
	assert.Equal(t, 1, store.releases)
}

// TestUsualLease leaves out the Window of a rule.
func TestUsualLease(t *testing.T) {
	rule := Named("p", Rule{Key: ByUser, Limit: 5, Algorithm: Concurrency{}}).Declared()[0]
	assert.Equal(t, "5/30s per user concurrency", rule.String())
	rules := must.Get(Parse(rule.String()))(t)
	assert.Equal(t, []Rule{rule}, rules.Declared())
	assert.NoError(t, Rules(rule, PerUser(30*time.Second, 5)).Validate(), "their names differ")

	w := httptest.NewRecorder()
	New(nil, nil).Limit(Named("p", Rule{Key: Everyone, Limit: 5, Algorithm: Concurrency{}}))(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, []string{`"global-concurrency";q=5;qu="concurrent-requests"`}, w.Header()["Ratelimit-Policy"])
	assert.Equal(t, []string{`"global-concurrency";r=4;t=30`}, w.Header()["Ratelimit"])
}

// TestNoLeaseCostsNothing takes without leases.
func TestNoLeaseCostsNothing(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("none", Global(time.Hour, 1_000))
	d := hold(t, limiter, rules)
	assert.Zero(t, testing.AllocsPerRun(100, d.Release))
	Decision{}.Release()
	policy := mustPolicy(limiter, rules)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		d, err := policy.Take(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		d.Release()
	}), 1.0, "that of the keys")
}
