package refusals

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A counted store counts what it is asked, and calls something meanwhile.
type counted struct {
	core.Store
	asked int

	before, then func() // are called around a decision
	mode         core.Mode
	err          error
}

func (c *counted) Take(ctx context.Context, asks []core.Ask) error {
	c.asked++
	before, then := c.before, c.then
	if before != nil {
		before()
	}
	err := c.Store.Take(ctx, asks)
	for i := range asks {
		asks[i].Decision.Mode = max(asks[i].Decision.Mode, c.mode)
	}
	if then != nil {
		then()
	}
	if c.err != nil {
		return c.err
	}
	return err
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

// hashes returns the hashes of charges in policy "p".
func (w *twins) hashes(charges []core.Charge) *[core.MaxCharges]uint64 {
	var hashes [core.MaxCharges]uint64
	w.store.hashAll([]core.Ask{{Charges: charges}}, &hashes)
	return &hashes
}

// collide returns keys of a rule of policy "p" that fall on one set.
func (w *twins) collide(rule string, n int) []string {
	var names []string
	for i := 0; len(names) < n; i++ {
		charges := []core.Charge{{Policy: "p", Rule: rule, Key: fmt.Sprint(i)}}
		if w.hashes(charges)[0]%sets == 0 {
			names = append(names, charges[0].Key)
		}
	}
	return names
}

func charge(rule, key string, q core.Quota, cost int64) core.Charge {
	return core.Charge{Policy: "p", Rule: rule, Key: key, Quota: q, Cost: cost}
}

func perSecond(n int64) core.Quota { return core.Quota{Limit: n, Window: 1_000_000} }

var quotas = []core.Quota{
	perSecond(1), perSecond(2), {Limit: 2, Window: 5_000_000},
	{Algorithm: core.FixedWindow, Limit: 3, Window: 700_000}, {Algorithm: core.SlidingCells, Limit: 3, Window: 900_000, Cells: 3},
	{Algorithm: core.SlidingCounter, Limit: 3, Window: 800_000}, {Algorithm: core.TokenBucket, Limit: 3, Window: 1_000_000, Burst: 2},
	{Algorithm: core.LeakyBucket, Limit: 3, Window: 1_000_000, Burst: 2}, {Algorithm: core.Queue, Limit: 3, Window: 1_000_000, Burst: 2},
}

// TestTwins holds that what is remembered is what the store would say: that it
// refuses the request, which rules refuse it and when they would admit it. The
// rules have keys of their own, which refuse in turn, and expire in between.
func TestTwins(t *testing.T) {
	race.Skip(t)
	remembered, waited := 0, 0
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newTwins()
		rules := []core.Charge{
			charge("ip", "", quotas[random.IntN(len(quotas))], 1),
			charge("user", "", quotas[random.IntN(len(quotas))], 1),
			charge("all", "", perSecond(4), 1),
		}[:2+random.IntN(2)]
		names := []string{"0", "1", "2"}
		if seed%2 == 0 { // more keys than have room, so that they displace each other
			names = w.collide("ip", 6)
		}
		var admitted [][2]core.Return
		take := func(charges []core.Charge) (got, want core.Decision) {
			got = storetest.MustTake(t, w.store, charges...)
			want = storetest.MustTake(t, w.plain, charges...)
			return got, want
		}
		for step := range 200 {
			failed := func() string { return fmt.Sprintf("seed %d, step %d", seed, step) }
			w.time += random.Int64N(300_000) / (1 + 99*int64(random.IntN(2)))
			cost := min(int64(random.IntN(6)), 1)
			if random.IntN(8) == 0 {
				cost = 2
			}
			charges := append([]core.Charge(nil), rules...)
			for i := range charges {
				charges[i].Cost = cost
				if charges[i].Rule != "all" {
					charges[i].Key = names[random.IntN(len(names))]
				}
			}
			switch random.IntN(12) {
			case 0:
				c := charges[random.IntN(len(charges))]
				require.NoError(t, storetest.Reset(t.Context(), w.store, "p", c.Rule, c.Key))
				require.NoError(t, storetest.Reset(t.Context(), w.plain, "p", c.Rule, c.Key))
				continue
			case 1:
				if len(admitted) == 0 {
					continue
				}
				i := random.IntN(len(admitted))
				must.Get(w.store.Return(t.Context(), admitted[i][:1]))(t)
				must.Get(w.plain.Return(t.Context(), admitted[i][1:]))(t)
				admitted = append(admitted[:i], admitted[i+1:]...)
				continue
			}
			got, want := take(charges)
			require.Equal(t, want.Allowed, got.Allowed, failed())
			require.Equal(t, want.At, got.At, failed())
			for i, o := range got.Outcomes() {
				require.Equal(t, want.Outcomes()[i].Fits(), o.Fits(), failed())
				require.LessOrEqual(t, o.Remaining, want.Outcomes()[i].Remaining, failed())
				if got.Mode != core.ModeRemembered || !o.Fits() {
					require.Equal(t, want.Outcomes()[i], o, failed())
				}
			}
			if got.Mode == core.ModeRemembered {
				remembered++
				if random.IntN(4) == 0 {
					waited++
					w.time += got.RetryAfter()
					got, want = take(charges)
					require.True(t, got.Allowed, "%s: a client alone waited for RetryAfter", failed())
				}
			}
			if got.Allowed && cost > 0 {
				admitted = append(admitted, [2]core.Return{got.Return(0, charges[0]), want.Return(0, charges[0])})
			}
		}
	}
	t.Logf("%d refusals of 120,000 steps were remembered; a client waited for %d of them", remembered, waited)
	require.Greater(t, remembered, 5000)
}

// TestRetryAfterOfOtherRules has a client refused by its address, and then a client
// at another address that takes the last unit of the user they share.
func TestRetryAfterOfOtherRules(t *testing.T) {
	w := newTwins()
	request := func(ip string) []core.Charge {
		return []core.Charge{charge("ip", ip, perSecond(1), 1), charge("user", "u", core.Quota{Limit: 2, Window: 10_000_000}, 1)}
	}
	take := func(ip string) core.Decision {
		return storetest.MustTake(t, w.store, request(ip)...)
	}
	require.True(t, take("1").Allowed)
	require.False(t, take("1").Allowed)
	require.True(t, take("2").Allowed)
	d := take("1")
	require.Equal(t, core.ModeRemembered, d.Mode, "without a call")
	require.Zero(t, d.Outcomes()[1].Remaining)
	require.EqualValues(t, 10_000_000, d.RetryAfter())
	w.time += d.RetryAfter()
	require.True(t, take("1").Allowed)
}

// TestSteadyState holds that clients that go on regardless cost a call a second
// each, while others use the rules that they share with them.
func TestSteadyState(t *testing.T) {
	race.Skip(t)
	w := newTwins()
	shared := core.Quota{Algorithm: core.SlidingCells, Limit: 1_000_000, Window: 10_000_000, Cells: 10}
	decisions := 0
	take := func(ip string) {
		decisions++
		storetest.MustTake(t, w.store, charge("ip", ip, core.Quota{Limit: 1, Window: 3_600_000_000}, 1), charge("all", "", shared, 1))
	}
	const clients, seconds = 100, 10
	for ip := range clients {
		take(fmt.Sprint(ip))
	}
	w.inner.asked, decisions = 0, 0
	admitted := 0
	for range seconds * 100 {
		w.time += 10_000
		for ip := range clients {
			take(fmt.Sprint(ip))
		}
		for range 10 { // new clients, which are admitted
			admitted++
			take(fmt.Sprint("new", admitted))
		}
	}
	t.Logf("%d decisions, %d admitted, %d calls", decisions, admitted, w.inner.asked)
	require.LessOrEqual(t, w.inner.asked-admitted, clients*(seconds+1)+clients)
}

// TestUndecided holds that nothing is remembered of a key after a call that may
// have taken from it, or that something else has decided.
func TestUndecided(t *testing.T) {
	for name, change := range map[string]func(*counted){
		"an error":       func(c *counted) { c.err = core.ErrUnavailable },
		"local decision": func(c *counted) { c.mode = core.ModeLocal },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins()
			take := func(ip string) {
				_, err := core.Take(t.Context(), w.store, []core.Charge{charge("ip", ip, perSecond(1), 1), charge("all", "", perSecond(9), 1)})
				require.ErrorIs(t, err, w.inner.err)
			}
			take("1")
			take("1")
			before := *w.inner
			change(w.inner)
			take("2")
			w.inner.err, w.inner.mode = before.err, before.mode
			w.time++
			asked := w.inner.asked
			take("1")
			require.Equal(t, asked+1, w.inner.asked, "what the others left is unknown")
			take("1")
			require.Equal(t, asked+1, w.inner.asked)
		})
	}
}

// TestInstances has two processes on one store. What a process remembers refuses
// nothing that the store would admit; its RetryAfter misses at most what the other
// process took within a second.
func TestInstances(t *testing.T) {
	race.Skip(t)
	short, remembered := 0, 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		now := int64(1_700_000_000_000_000)
		clock := func() int64 { return now }
		inner, plain := memstore.New(&memstore.Options{Now: clock}), memstore.New(&memstore.Options{Now: clock})
		stores := []*Store{newStore(inner, clock), newStore(inner, clock)}
		taken := make(map[string]int64) // when a process last took of a key
		for step := range 200 {
			now += random.Int64N(200_000)
			charges := []core.Charge{
				charge("ip", fmt.Sprint(random.IntN(3)), perSecond(1), 1),
				charge("user", fmt.Sprint(random.IntN(2)), core.Quota{Limit: 3, Window: 4_000_000}, 1),
			}
			place := func(process, i int) string { return fmt.Sprint(process, " ", charges[i].Rule, charges[i].Key) }
			process := random.IntN(2)
			got := storetest.MustTake(t, stores[process], charges...)
			want := storetest.MustTake(t, plain, charges...)
			require.Equal(t, want.Allowed, got.Allowed, "seed %d, step %d", seed, step)
			require.GreaterOrEqual(t, want.RetryAfter(), got.RetryAfter(), "seed %d, step %d", seed, step)
			if got.Mode == core.ModeRemembered {
				remembered++
			}
			if want.RetryAfter() > got.RetryAfter() {
				short++
				last := max(taken[place(1-process, 0)], taken[place(1-process, 1)])
				require.Less(t, now-last, int64(longest), "seed %d, step %d", seed, step)
			}
			if got.Allowed {
				taken[place(process, 0)], taken[place(process, 1)] = now, now
			}
		}
	}
	t.Logf("%d of %d remembered refusals had a RetryAfter that another process had made longer", short, remembered)
}

// TestBans asks the store as long as a refusal is a strike, and refuses from memory
// once the key is barred, also what costs nothing.
func TestBans(t *testing.T) {
	w := newTwins()
	ban := core.Quota{Algorithm: core.Ban, Limit: 3, Window: 1_000_000, Bar: 5_000_000}
	charges := []core.Charge{charge("r", "k", perSecond(1), 1), charge("ban", "k", ban, 0)}
	modes := []core.Mode{core.ModeExact, core.ModeExact, core.ModeExact, core.ModeExact, core.ModeRemembered, core.ModeRemembered}
	for i, mode := range modes {
		d := storetest.MustTake(t, w.store, charges...)
		require.Equal(t, i == 0, d.Allowed)
		require.Equal(t, mode, d.Mode, "request %d", i)
		if i >= 3 {
			require.EqualValues(t, 5_000_000, d.RetryAfter())
		}
	}
	charges[0].Cost = 0
	for _, list := range [][]core.Charge{charges, charges[1:]} {
		d := storetest.MustTake(t, w.store, list...)
		require.False(t, d.Allowed)
		require.Equal(t, core.ModeRemembered, d.Mode)
	}
	require.NoError(t, storetest.Reset(t.Context(), w.store, "p", "ban", "k"))
	d := storetest.MustTake(t, w.store, charges...)
	require.True(t, d.Allowed)
}

// TestValues asks the store for each value: one that is known fits.
func TestValues(t *testing.T) {
	w := newTwins()
	shows := charge("d", "k", core.Quota{Algorithm: core.Distinct, Limit: 1, Window: 1_000_000}, 1)
	for _, id := range []uint64{1, 2, 2, 1, 0} {
		shows.ID = id
		d := storetest.MustTake(t, w.store, shows)
		require.Equal(t, id != 2, d.Allowed)
		require.Equal(t, core.ModeExact, d.Mode)
	}
}
