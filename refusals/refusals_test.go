package refusals

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
)

// A counted store counts what it is asked, and calls something meanwhile.
type counted struct {
	core.Store
	asked int
	then  func()
	mode  core.Mode
}

func (c *counted) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	c.asked++
	d, err := c.Store.Take(ctx, policy, charges)
	d.Mode = max(d.Mode, c.mode)
	if c.then != nil {
		c.then()
	}
	return d, err
}

// twins are a store that remembers and one that does not, at one time.
type twins struct {
	time  int64
	inner *counted
	store *Store
	plain core.Store
}

func newTwins() *twins {
	w := &twins{time: 1_700_000_000_000_000}
	options := &memstore.Options{Now: func() int64 { return w.time }}
	w.inner = &counted{Store: memstore.New(options)}
	w.store = newStore(w.inner, func() int64 { return w.time })
	w.plain = memstore.New(options)
	return w
}

func charge(rule, key string, q core.Quota, cost int64) core.Charge {
	return core.Charge{Rule: rule, Key: key, Quota: q, Cost: cost}
}

func perSecond(n int64) core.Quota { return core.Quota{Limit: n, Window: 1_000_000} }

// TestTwins holds that what is remembered is what the store would say: that it
// refuses the request, and all that those rules say which have refused it.
func TestTwins(t *testing.T) {
	quotas := []core.Quota{
		perSecond(1), perSecond(2), {Limit: 2, Window: 5_000_000},
		{Algorithm: core.FixedWindow, Limit: 3, Window: 700_000}, {Algorithm: core.SlidingCells, Limit: 3, Window: 900_000, Cells: 3},
		{Algorithm: core.SlidingCounter, Limit: 3, Window: 800_000}, {Algorithm: core.TokenBucket, Limit: 3, Window: 1_000_000, Burst: 2},
		{Algorithm: core.Queue, Limit: 3, Window: 1_000_000, Burst: 2},
	}
	remembered := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newTwins()
		var admitted [][2]core.Return
		for step := range 200 {
			failed := func() string { return fmt.Sprintf("seed %d, step %d", seed, step) }
			w.time += random.Int64N(300_000) / (1 + 99*int64(random.IntN(2)))
			key := fmt.Sprint(random.IntN(3))
			switch random.IntN(12) {
			case 0:
				require.NoError(t, w.store.Reset(t.Context(), "p", "a", key))
				require.NoError(t, w.plain.Reset(t.Context(), "p", "a", key))
				continue
			case 1:
				if len(admitted) == 0 {
					continue
				}
				i := random.IntN(len(admitted))
				_, err := w.store.Return(t.Context(), "p", admitted[i][:1])
				require.NoError(t, err)
				_, err = w.plain.Return(t.Context(), "p", admitted[i][1:])
				require.NoError(t, err)
				admitted = append(admitted[:i], admitted[i+1:]...)
				continue
			}
			cost := min(int64(random.IntN(6)), 1)
			if random.IntN(8) == 0 {
				cost = 2
			}
			charges := []core.Charge{charge("a", key, quotas[int(seed)%len(quotas)], cost), charge("all", "", perSecond(4), cost)}
			got, err := w.store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			want, err := w.plain.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			require.Equal(t, want.Allowed, got.Allowed, failed())
			require.Equal(t, want.At, got.At, failed())
			for i, o := range got.Outcomes() {
				if got.Mode != core.ModeRemembered || !o.Fits() {
					require.Equal(t, want.Outcomes()[i], o, failed())
				}
			}
			if got.Mode == core.ModeRemembered {
				remembered++
			}
			if got.Allowed && cost > 0 {
				admitted = append(admitted, [2]core.Return{got.Return(0, charges[0]), want.Return(0, charges[0])})
			}
		}
	}
	t.Logf("%d refusals of 60,000 steps were remembered", remembered)
	require.Greater(t, remembered, 1000)
}

// TestOthers holds what is not told to this process for no longer than a second,
// nor past the time that the refusal was for.
func TestOthers(t *testing.T) {
	for _, row := range []struct{ window, holds int64 }{{60_000_000, longest}, {300_000, 300_000}} {
		w := newTwins()
		charges := []core.Charge{charge("a", "k", core.Quota{Limit: 1, Window: row.window}, 1)}
		take := func() core.Decision {
			d, err := w.store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			return d
		}
		require.True(t, take().Allowed)
		w.inner.then = func() { w.time += 1000 } // on the way back
		require.False(t, take().Allowed)
		require.NoError(t, w.inner.Reset(t.Context(), "p", "a", "k")) // by somebody else
		w.time += row.holds - 1001
		d := take()
		require.Equal(t, core.ModeRemembered, d.Mode)
		require.Equal(t, row.window-row.holds+1001, d.RetryAfter(), "since it was heard: waiting for that is enough")
		require.Equal(t, 2, w.inner.asked)
		w.time++
		require.True(t, take().Allowed, "a refusal that is as old as that is asked for again")
	}
}

// TestReturnMeanwhile holds that a refusal is not remembered which may be older
// than what came back.
func TestReturnMeanwhile(t *testing.T) {
	w := newTwins()
	charges := []core.Charge{charge("a", "k", perSecond(1), 1)}
	first, err := w.store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	w.inner.then = func() {
		w.inner.then = nil
		_, err := w.store.Return(t.Context(), "p", []core.Return{first.Return(0, charges[0])})
		require.NoError(t, err)
	}
	d, err := w.store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	d, err = w.store.Take(t.Context(), "p", charges)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// TestNotRemembered has the refusals that may be over at any time, and requests
// that differ in a single thing.
func TestNotRemembered(t *testing.T) {
	whole := []core.Charge{charge("a", "k", perSecond(1), 1), charge("b", "k", perSecond(9), 1)}
	change := func(of func(c []core.Charge)) []core.Charge {
		c := append([]core.Charge(nil), whole...)
		of(c)
		return c
	}
	long := make([]byte, maxKeys+1)
	slot := core.Charge{Rule: "a", Key: "k", Cost: 1, Lease: 1, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 1_000_000}}
	other := slot
	other.Lease = 2
	for name, row := range map[string]struct {
		first, second, third []core.Charge
		mode                 core.Mode
	}{
		"several units":    {whole[:1], change(func(c []core.Charge) { c[0].Quota.Limit, c[0].Cost = 2, 2 })[:1], nil, core.ModeExact},
		"slots":            {[]core.Charge{slot}, []core.Charge{other}, nil, core.ModeExact},
		"another key":      {whole, whole, change(func(c []core.Charge) { c[1].Key = "l" }), core.ModeExact},
		"another rule":     {whole, whole, change(func(c []core.Charge) { c[1].Rule = "c" }), core.ModeExact},
		"another cost":     {whole, whole, change(func(c []core.Charge) { c[1].Cost = 2 }), core.ModeExact},
		"a raised limit":   {whole, whole, change(func(c []core.Charge) { c[0].Quota.Limit = 5 }), core.ModeExact},
		"fewer rules":      {whole, whole, whole[:1], core.ModeExact},
		"a look":           {whole, whole, change(func(c []core.Charge) { c[0].Cost, c[1].Cost = 0, 0 }), core.ModeExact},
		"more than it has": {nil, change(func(c []core.Charge) { c[0].Cost = 2 }), nil, core.ModeExact},
		"by a failure":     {whole[:1], whole[:1], nil, core.ModeLocal},
		"a long key":       {change(func(c []core.Charge) { c[0].Key = string(long) }), change(func(c []core.Charge) { c[0].Key = string(long) }), nil, core.ModeExact},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins()
			w.inner.mode = row.mode
			for _, charges := range [][]core.Charge{row.first, row.second} {
				if charges != nil {
					_, err := w.store.Take(t.Context(), "p", charges)
					require.NoError(t, err)
				}
			}
			third := row.third
			if third == nil {
				third = row.second
			}
			asked := w.inner.asked
			_, err := w.store.Take(t.Context(), "p", third)
			require.NoError(t, err)
			assert.Equal(t, asked+1, w.inner.asked)
		})
	}
	w := newTwins()
	for range 5 {
		_, err := w.store.Take(t.Context(), "p", whole)
		require.NoError(t, err)
	}
	require.Equal(t, 2, w.inner.asked, "the same is remembered")
	_, err := w.store.Take(t.Context(), "q", whole)
	require.NoError(t, err)
	require.Equal(t, 3, w.inner.asked, "another policy")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.store.Take(ctx, "p", whole)
	require.ErrorIs(t, err, context.Canceled)
}

// TestCollisions has more keys than slots, so that they take each other's.
func TestCollisions(t *testing.T) {
	w := newTwins()
	for key := range 3 * slots {
		charges := []core.Charge{charge("a", fmt.Sprint(key), perSecond(1), 1)}
		for try := range 2 {
			d, err := w.store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			require.Equal(t, try == 0, d.Allowed, "key %d", key)
		}
	}
}

func TestNilStore(t *testing.T) {
	require.PanicsWithValue(t, "refusals: the store is nil: write refusals.New(guard.New(redisstore.New(client, nil), nil))", func() { New(nil) })
}

func TestAllocations(t *testing.T) {
	w := newTwins()
	charges := []core.Charge{charge("a", "k", perSecond(1), 1), charge("b", "k", perSecond(9), 1)}
	take := func() { _, _ = w.store.Take(t.Context(), "p", charges) }
	take()
	take()
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = w.store.Take(ctx, "p", charges) }))
	require.Equal(t, 2, w.inner.asked)
}

func BenchmarkRemembered(b *testing.B) {
	store := New(memstore.New(nil))
	charges := []core.Charge{charge("a", "k", core.Quota{Limit: 1, Window: 1_000_000}, 1), charge("b", "k", perSecond(9), 1)}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = store.Take(b.Context(), "p", charges)
	}
}
