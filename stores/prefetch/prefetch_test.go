package prefetch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestStore holds that rules that are not named are decided as by the wrapped store.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		var now int64
		own := memstore.New(&memstore.Options{Now: func() int64 { return now }})
		store := New(own, &Options{Rules: []Rule{{"policy", "another"}}})
		test(t, storetest.Harness{Store: store, SetTime: func(micros int64) { now = micros }})
	})
}

// one is a store with one instance, in a bubble of time.
type one struct {
	*fleet
	store *Store
	ctx   context.Context
}

func newOne(t *testing.T, q core.Quota) *one {
	f := newFleet(t, q, 1, 1)
	return &one{f, f.instances[0], context.WithValue(t.Context(), request{}, true)}
}

func (o *one) take(charges ...core.Charge) core.Decision {
	o.t.Helper()
	d := must.Get(storetest.Take(o.ctx, o.store, "p", charges))(o.t)
	return d
}

// warm sends requests until the instance holds permits, and returns how many it has
// admitted.
func (o *one) warm() (n int64) {
	o.t.Helper()
	for ; n < 200; n++ {
		if n > 20 && o.held() > 5 {
			return n
		}
		time.Sleep(100 * time.Microsecond)
		require.True(o.t, o.take(o.charge(1)).Allowed)
	}
	require.Fail(o.t, "no permits")
	return n
}

func (o *one) held() int64 {
	if p := o.store.rules[Rule{"p", "all"}].find(""); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.expire(o.store.now())
		return p.permits
	}
	return 0
}

// left returns what the store has left.
func (o *one) left() int64 {
	c := o.charge(0)
	c.Quota = planOf(o.quota, hold.Microseconds()).charged
	d := must.Get(storetest.Take(o.ctx, o.own, "p", []core.Charge{c}))(o.t)
	return d.Outcomes()[0].Remaining
}

func in(t *testing.T, q core.Quota, test func(*one)) {
	synctest.Test(t, func(t *testing.T) {
		o := newOne(t, q)
		test(o)
		require.NoError(t, o.store.Close(t.Context()))
	})
}

var perMinute = core.Quota{Limit: 1000, Window: 60_000_000}

// TestOutcomes holds what permits tell clients.
func TestOutcomes(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		calls := o.inner.count()
		for range 5 {
			d := o.take(o.charge(1))
			used++
			out := d.Outcomes()[0]
			require.True(t, d.Allowed)
			require.Equal(t, core.ModeExact, d.Mode)
			require.Equal(t, 1000-used, out.Remaining, "one instance knows all")
			require.Positive(t, out.MoreAfter)
			require.Positive(t, out.ResetAfter)
			require.Zero(t, out.RetryAfter)
		}
		require.Equal(t, calls, o.inner.count())
		peek := o.take(o.charge(0))
		require.Equal(t, 1000-used, peek.Outcomes()[0].Remaining)
	})
}

// TestKept holds that permits set aside for a request that another rule refuses are
// kept, and that the other rules are decided in one call.
func TestKept(t *testing.T) {
	in(t, perMinute, func(o *one) {
		o.warm()
		other := core.Charge{Rule: "key", Key: "k", Quota: core.Quota{Limit: 1, Window: 60_000_000}, Cost: 1}
		require.True(t, o.take(o.charge(1), other).Allowed)
		held, left, calls := o.held(), o.left(), o.inner.count()
		d := o.take(o.charge(1), other)
		require.False(t, d.Allowed)
		require.Equal(t, calls+1, o.inner.count())
		require.Equal(t, held, o.held())
		require.Equal(t, left, o.left())
		require.True(t, d.Outcomes()[0].Fits())
		require.False(t, d.Outcomes()[1].Fits())
		require.EqualValues(t, 60_000_000, d.RetryAfter())
		d = o.take(other, o.charge(1))
		require.True(t, d.Outcomes()[1].Fits(), "in the order of the charges")
	})
}

// TestOwnPermits holds that an instance refuses no request that its own permits, and
// what the store has left, would admit; and that waiting for RetryAfter is enough.
func TestOwnPermits(t *testing.T) {
	in(t, core.Quota{Limit: 100, Window: 2_000_000}, func(o *one) {
		used := o.warm()
		held := o.held()
		require.Positive(t, held)
		require.True(t, o.take(o.charge(100-used)).Allowed, "what others hold is given back first")
		require.Zero(t, o.held())
		d := o.take(o.charge(1))
		require.False(t, d.Allowed)
		time.Sleep(time.Duration(d.RetryAfter()) * time.Microsecond)
		require.True(t, o.take(o.charge(1)).Allowed)
		require.Equal(t, core.Never, func() int64 { d := o.take(o.charge(101)); return d.RetryAfter() }())
	})
}

// TestNothingLeft holds that requests beyond a limit cost few calls, that a client that
// waits for its RetryAfter is admitted, and that a return is seen at once.
func TestNothingLeft(t *testing.T) {
	in(t, core.Quota{Limit: 100, Window: 2_000_000}, func(o *one) {
		var last core.Decision
		refused := 0
		for range 10_000 {
			time.Sleep(50 * time.Microsecond)
			d := o.take(o.charge(1))
			if d.Allowed {
				last = d
			} else {
				refused++
			}
		}
		calls := o.inner.count() + o.inner.chunks
		t := o.t
		t.Logf("%d refused, %d calls", refused, calls)
		require.Greater(t, refused, 9_000)
		require.Less(t, calls, 300)

		must.Get(storetest.Return(o.ctx, o.store, "p", []core.Return{last.Return(0, o.charge(1))}))(t)
		require.True(t, o.take(o.charge(1)).Allowed)
		for range 50 {
			for range 40 {
				time.Sleep(50 * time.Microsecond)
				o.take(o.charge(1))
			}
			if d := o.take(o.charge(1)); !d.Allowed {
				require.Positive(t, d.RetryAfter())
				time.Sleep(time.Duration(d.RetryAfter()) * time.Microsecond)
				require.True(t, o.take(o.charge(1)).Allowed)
			}
		}
	})
}

// TestLargerCost holds that the refusal of a small chunk says nothing of a larger cost.
func TestLargerCost(t *testing.T) {
	in(t, perMinute, func(o *one) {
		o.warm()
		p := o.store.rules[Rule{"p", "all"}].find("")
		first := core.NewDecision(0, 1)
		first.Mode, first.Outcomes()[0].RetryAfter = core.ModeRemembered, 2000
		p.refusal = refusal{until: o.store.now() + 1000, units: 2, first: first}
		held := o.held()
		calls := o.inner.count()
		require.Equal(t, core.ModeExact, o.take(o.charge(held+3)).Mode)
		require.Equal(t, calls+1, o.inner.count())
		o.take(o.charge(o.held()))
		require.Equal(t, core.ModeRemembered, o.take(o.charge(2)).Mode)
		d := o.take(o.charge(2), core.Charge{Rule: "key", Quota: perMinute, Cost: 1})
		require.Equal(t, core.ModeExact, d.Mode, "the other rule must be asked")
	})
}

// TestIdle holds that permits are given back after a Hold, and that a key that nobody
// asks for is forgotten.
func TestIdle(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		time.Sleep(2 * hold)
		synctest.Wait()
		require.Zero(t, o.held())
		require.Equal(t, 1000-used, o.left())
		require.EqualValues(t, 1, o.store.pools.Load())
		time.Sleep(hold * keepIdle)
		require.Zero(t, o.store.pools.Load())
		calls := o.inner.count()
		o.take(o.charge(1))
		require.Equal(t, calls+1, o.inner.count(), "a lone request is decided by the store")
	})
}

// TestReturns holds that returned units become permits, or are given back to the store.
func TestReturns(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		d := o.take(o.charge(2))
		r := d.Return(0, o.charge(2))
		held := o.held()
		given := must.Get(storetest.Return(o.ctx, o.store, "p", []core.Return{r}))(t)
		require.Equal(t, []int64{2}, given)
		require.Equal(t, held+2, o.held())

		d = o.take(o.charge(2))
		time.Sleep(3 * hold)
		require.Equal(t, 1000-used-2, o.left())
		r = d.Return(0, o.charge(1))
		given = must.Get(storetest.Return(o.ctx, o.store, "p", []core.Return{r}))(t)
		require.Equal(t, []int64{1}, given)
		require.Zero(t, o.held())
		require.Equal(t, 1000-used-1, o.left())

		_, err := storetest.Return(o.ctx, o.store, "p", nil)
		require.ErrorIs(t, err, core.ErrCharges)
	})
}

// TestReset holds that a reset key is full: no permits of before are handed out. What a call
// takes that was under way is lost, since nobody knows whether it came before the reset.
func TestReset(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		in(t, perMinute, func(o *one) {
			o.warm()
			p := o.store.rules[Rule{"p", "all"}].find("")
			h, _ := p.take(o.ctx, 1, true)
			calls := func() (n, size int64) {
				synctest.Wait()
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.inFlight, p.size
			}
			n, lost := calls()
			require.EqualValues(t, 1, n)
			if !underWay {
				time.Sleep(3 * hold)
				n, _ = calls()
				require.Zero(t, n)
				lost = 0
			}
			require.NoError(t, storetest.Reset(o.ctx, o.store, "p", "all", ""))
			p.put(h.chunk, 1) // of a request that another rule has refused
			require.Zero(t, o.held())
			require.EqualValues(t, 1000, o.left())
			time.Sleep(4 * hold)
			require.Zero(t, o.held())
			require.EqualValues(t, 1000-lost, o.left())
		})
	}
}

// TestBoundedDebt hands out nothing while a key owes, and forgives nothing that the instance holds.
func TestBoundedDebt(t *testing.T) {
	q := core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Window: perMinute.Window, Burst: 1000}
	in(t, q, func(o *one) {
		used := o.warm()
		require.Positive(t, o.held())
		c := o.charge(1000 - used + 500)
		c.Debt, c.MaxDebt = true, 500
		d := o.take(c)
		require.True(t, d.Allowed)
		require.Zero(t, o.held())
		require.LessOrEqual(t, d.Forgiven, int64(1), "what has been refilled meanwhile")
		for range 100 {
			require.False(t, o.take(o.charge(1)).Allowed)
		}
	})
}

// TestAccount holds that the wrapper shows what the store knows of debts, of all rules.
func TestAccount(t *testing.T) {
	store := New(memstore.New(&memstore.Options{Now: func() int64 { return 1_800_000_000_000_000 }}), &Options{Rules: []Rule{{"p", "all"}}})
	defer store.Close(t.Context())
	for _, rule := range []string{"all", "other"} {
		c := core.Charge{Policy: "p", Rule: rule, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Window: perMinute.Window, Burst: 1000}}
		owed := c
		owed.Cost, owed.Debt, owed.MaxDebt = 1300, true, 500
		must.Get(core.Take(t.Context(), store, []core.Charge{owed}))(t)
		account := must.Get(core.AccountOf(t.Context(), store, c))(t)
		require.InDelta(t, 300, account.Owed, 20, rule) // a prefetched bucket is a little smaller
	}
}

// TestClosed holds that a closed store holds nothing and decides exactly.
func TestClosed(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		require.NoError(t, o.store.Close(o.ctx))
		require.Equal(t, 1000-used, o.left())
		for range 200 {
			o.take(o.charge(1))
		}
		require.Zero(t, o.held())
		require.Equal(t, 1000-used-200, o.left())
	})
}

// TestSlowRequest has a request that holds permits while its pool becomes idle, and
// then is refused.
func TestSlowRequest(t *testing.T) {
	in(t, perMinute, func(o *one) {
		used := o.warm()
		p := o.store.rules[Rule{"p", "all"}].find("")
		h, _ := p.take(o.ctx, 1, true)
		require.True(t, h.ok())
		time.Sleep(hold * (keepIdle + 5))
		require.Zero(t, o.store.pools.Load())
		p.put(h.chunk, 1)
		require.Equal(t, 1000-used, o.left())
	})
}

type failing struct {
	core.Store
	err *error
}

func (f *failing) Take(ctx context.Context, asks []core.Ask) error {
	if *f.err != nil {
		return *f.err
	}
	return f.Store.Take(ctx, asks)
}

// TestErrors holds that what cannot be decided takes nothing.
func TestErrors(t *testing.T) {
	in(t, perMinute, func(o *one) {
		o.warm()
		held := o.held()
		_, err := storetest.Take(o.ctx, o.store, "p", []core.Charge{o.charge(-1)})
		require.ErrorIs(t, err, core.ErrCharges)
		_, err = storetest.Take(o.ctx, o.store, "p", []core.Charge{o.charge(1), o.charge(1)})
		require.ErrorIs(t, err, core.ErrCharges)
		_, err = storetest.Take(o.ctx, o.store, "p", make([]core.Charge, core.MaxCharges+1))
		require.ErrorIs(t, err, core.ErrCharges)
		_, err = storetest.Take(o.ctx, o.store, "p", nil)
		require.ErrorIs(t, err, core.ErrCharges)
		ctx, cancel := context.WithCancel(o.ctx)
		cancel()
		_, err = storetest.Take(ctx, o.store, "p", []core.Charge{o.charge(1)})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, held, o.held())

		synctest.Wait() // no chunk is on its way
		o.store.store = &failing{Store: o.inner, err: &core.ErrUnavailable}
		other := core.Charge{Rule: "key", Key: "k", Quota: perMinute, Cost: 1}
		_, err = storetest.Take(o.ctx, o.store, "p", []core.Charge{o.charge(1), other})
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.Equal(t, held, o.held())
		synctest.Wait()
		o.store.store = o.inner
	})
	require.Panics(t, func() { New(nil, nil) })
	require.Panics(t, func() { New(memstore.New(nil), &Options{}) })
	require.Panics(t, func() { New(memstore.New(nil), &Options{Rules: []Rule{{"p", "r"}}, Chunk: -1}) })
}

// TestPlans holds which quotas have permits, and what the store is charged with.
func TestPlans(t *testing.T) {
	const ms = 1000
	for name, row := range map[string]struct {
		q             core.Quota
		hold          int64
		window, burst int64
		wantHold      int64
	}{
		"a log":                {core.Quota{Limit: 5, Window: 1000 * ms}, 0, 1010 * ms, 0, 10 * ms},
		"a long window":        {core.Quota{Limit: 5, Window: 3_600_000 * ms}, 0, 3_601_000 * ms, 0, 1000 * ms},
		"a short window":       {core.Quota{Limit: 5, Window: 50 * ms}, 0, 50 * ms, 0, 0},
		"the longest window":   {core.Quota{Limit: 5, Window: core.MaxWindow}, 0, core.MaxWindow, 0, 0},
		"a bucket":             {core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Window: 1000 * ms, Burst: 100}, 0, 1000 * ms, 89, 10 * ms},
		"a small bucket":       {core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Window: 1000 * ms, Burst: 15}, 0, 1000 * ms, 15, 0},
		"a bucket that starts": {core.Quota{Algorithm: core.TokenBucket, Limit: 10, Window: 1000 * ms, Burst: 100, Missing: 1}, 0, 1000 * ms, 100, 0},
		"a queue":              {core.Quota{Algorithm: core.Queue, Limit: 10, Window: 1000 * ms, Burst: 100}, 0, 1000 * ms, 100, 0},
		"leases":               {core.Quota{Algorithm: core.Concurrency, Limit: 10, Window: 1000 * ms}, 0, 1000 * ms, 0, 0},
		"cells":                {core.Quota{Algorithm: core.SlidingCells, Limit: 10, Window: 1000 * ms, Cells: 10}, 50 * ms, 1000 * ms, 0, 50 * ms},
	} {
		p := planOf(row.q, row.hold)
		require.Equal(t, [3]int64{row.window, row.burst, row.wantHold}, [3]int64{p.charged.Window, p.charged.Burst, p.hold}, name)
	}
}

// TestAllocations holds that a request with permits allocates nothing.
func TestAllocations(t *testing.T) {
	store := New(memstore.New(nil), &Options{Rules: []Rule{{"p", "all"}}, Hold: time.Minute})
	charges := []core.Charge{{Rule: "all", Quota: core.Quota{Limit: 100_000, Window: 3_600_000_000}, Cost: 1}}
	asks := []core.Ask{{Charges: storetest.Of("p", charges...)}}
	take := func() { _ = store.Take(context.Background(), asks) }
	for range 5_000 {
		take()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(2000, take), 0.1, "but for chunks")
	require.NoError(t, store.Close(t.Context()))
}

// TestManyKeys holds that the number of keys with permits is bounded, and that the
// others are decided with the same quotas.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := New(memstore.New(nil), &Options{Rules: []Rule{{"p", "all"}}})
		for i := range 2 * maxPools {
			c := core.Charge{Rule: "all", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 1, Window: 60_000_000}, Cost: 1}
			for want := range 2 {
				d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{c}))(t)
				require.Equal(t, want == 0, d.Allowed)
				require.Greater(t, d.Outcomes()[0].ResetAfter, int64(60_000_000), "in the wider window")
			}
		}
		require.EqualValues(t, maxPools, store.pools.Load())
		require.NoError(t, store.Close(t.Context()))
	})
}

// TestConcurrent has instances with real time and many goroutines. No window has more
// admissions than the limit.
func TestConcurrent(t *testing.T) {
	own := memstore.New(nil)
	concurrently(t, []core.Store{own, own, own}, core.Quota{Limit: 2000, Window: 200_000})
}

func concurrently(t *testing.T, stores []core.Store, q core.Quota) {
	type span struct{ from, to time.Duration }
	var mu sync.Mutex
	var spans []span
	began := time.Now()
	var wait sync.WaitGroup
	var instances []*Store
	for _, inner := range stores {
		store := New(inner, &Options{Rules: []Rule{{"p", "all"}}, Hold: 20 * time.Millisecond})
		instances = append(instances, store)
		for range 8 {
			wait.Go(func() {
				var mine []span
				for time.Since(began) < time.Second {
					from := time.Since(began)
					d, err := storetest.Take(context.Background(), store, "p", []core.Charge{{Rule: "all", Quota: q, Cost: 1}})
					if err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						mine = append(mine, span{from, time.Since(began)})
					} else {
						time.Sleep(100 * time.Microsecond)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				spans = append(spans, mine...)
			})
		}
	}
	wait.Wait()
	for _, store := range instances {
		require.NoError(t, store.Close(t.Context()))
	}
	// Admissions that began and ended in the window that begins with one of them.
	var from, to []time.Duration
	for _, s := range spans {
		from, to = append(from, s.from), append(to, s.to)
	}
	slices.Sort(from)
	slices.Sort(to)
	most := int64(0)
	for i, begin := range from {
		ended, _ := slices.BinarySearch(to, begin+time.Duration(q.Window)*time.Microsecond)
		most = max(most, int64(ended-i))
	}
	t.Logf("%d admitted, at most %d of %d in a window", len(spans), most, q.Limit)
	require.LessOrEqual(t, most, q.Limit)
	require.NotEmpty(t, spans) // how many there are depends on the machine
}

// TestStrikes checks that a request with a ban is decided once, by the store: a refusal
// is one strike, and an admission none, even where permits would have to be given back.
func TestStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOne(t, core.Quota{Limit: 1000, Window: 1_000_000})
		o.warm()
		ban := core.Charge{Rule: "ban", Quota: core.Quota{Algorithm: core.Ban, Limit: 3, Window: 1_000_000, Bar: 9_000_000}}
		strikes := func() int64 {
			d := o.take(ban)
			return 3 - d.Outcomes()[0].Remaining
		}
		held, left := o.held(), o.left()
		require.True(t, o.take(o.charge(left), ban).Allowed)
		require.Zero(t, strikes())
		require.False(t, o.take(o.charge(1), ban).Allowed, "permits are for requests without a ban")
		require.EqualValues(t, 1, strikes())
		require.Equal(t, held, o.held())
		require.False(t, o.take(o.charge(held+1), ban).Allowed)
		require.EqualValues(t, 2, strikes())
	})
}
