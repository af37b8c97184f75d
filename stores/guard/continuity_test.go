package guard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A fleet is some instances in front of one store, all by one clock.
type fleet struct {
	now     atomic.Int64
	store   *frail // that the instances share
	guards  []*Store
	cut     []*frail // between each instance and the store
	detects bool     // the store reports lost data
	lost    func()   // if set, called after the store has lost its data and answers
	random  *rand.Rand
}

func newFleet(instances int, random *rand.Rand) *fleet {
	f := &fleet{random: random}
	f.now.Store(1_750_000_000 * sec)
	f.store = &frail{Store: at(&f.now), now: f.now.Load, lostAt: make(map[string]int64)}
	for range instances {
		cut := &frail{Store: f.store}
		f.cut = append(f.cut, cut)
		f.guards = append(f.guards, newStore(cut, &Options{Instances: instances, Log: nowhere}, at(&f.now), f.now.Load))
	}
	return f
}

// lose starts the store again, without its data.
func (f *fleet) lose() {
	f.store.Store = memstore.New(&memstore.Options{Now: f.now.Load})
	clear(f.store.lostAt)
	for _, cut := range f.cut {
		cut.gone.Store(f.detects)
	}
}

// notice has all instances notice at once that the store has lost its data.
func (f *fleet) notice(t *testing.T, c core.Charge) {
	c.Cost, c.Key = 0, "none"
	for i, cut := range f.cut {
		cut.fail(nil)
		f.guards[i].breaker.leave(f.now.Load(), true, answered)
		for range 2 {
			storetest.MustTake(t, f.guards[i], c)
			f.guards[i].payNext()
		}
	}
}

// down is the error of a store that fails.
func (f *fleet) down() error {
	if f.detects {
		return errAway
	}
	return errDown
}

// cycle is a time with the store and a time without it, for all instances or for
// some, after which the store may have lost its data. Every instance calls it at
// least once while it fails. Cycle calls ask for each request.
func (f *fleet) cycle(window int64, ask func(instance int)) { f.cycleOf(window, true, ask) }

// cycleOf is cycle, of a store that may lose its data or may not.
func (f *fleet) cycleOf(window int64, loses bool, ask func(instance int)) {
	step := func() {
		if g := f.guards[f.random.IntN(len(f.guards))]; f.random.IntN(4) == 0 && (g.debts.count.Load() > 0 || len(g.raises.next) > 0) {
			g.payNext()
		}
		f.now.Add(f.random.Int64N(1 + window/20))
		if f.random.IntN(30) == 0 {
			f.now.Add(f.random.Int64N(2 * window))
		}
	}
	some := func(n int) {
		favorite := f.random.IntN(len(f.guards))
		for range n {
			step()
			instance := favorite
			if f.random.IntN(3) == 0 {
				instance = f.random.IntN(len(f.guards))
			}
			ask(instance)
		}
	}
	some(f.random.IntN(60))
	all := f.random.IntN(2) == 0
	f.store.lost.Store(f.random.IntN(4) == 0) // replies are lost, and not requests
	for i := range f.cut {
		if all || f.random.IntN(2) == 0 {
			f.cut[i].fail(f.down())
			f.cut[i].lost.Store(f.random.IntN(4) == 0)
		}
	}
	some(f.random.IntN(60))
	if all {
		for i := range f.guards {
			// With the breaker open, no call need find out again.
			ask(i)
		}
		if loses && f.random.IntN(2) == 0 {
			f.lose()
			if f.lost != nil {
				defer f.lost()
			}
		}
	}
	for i := range f.cut {
		f.cut[i].fail(nil)
	}
}

// most returns the most of the times that any window holds.
func most(times []int64, window int64) int64 {
	most, first := 0, 0
	for i, t := range times {
		for t-times[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return int64(most)
}

// TestContinuityOfOne compares a single instance with what it would decide if its store
// never failed: request by request, over 200 cycles of a store that fails and
// recovers, in each of many runs.
func TestContinuityOfOne(t *testing.T) {
	race.Skip(t)
	stories, cycles := 20, 200
	if testing.Short() {
		stories = 2
	}
	modes := make(map[core.Mode]int)
	for story := range stories {
		random := rand.New(rand.NewPCG(13, uint64(story)))
		f := newFleet(1, random)
		small := core.Quota{Limit: 1 + random.Int64N(8), Window: sec}
		large := core.Quota{Limit: small.Limit + random.Int64N(140), Window: (1 + random.Int64N(20)) * sec}
		states := make(map[string]core.State)
		admitted := make(map[string][]int64)
		quotas := []core.Quota{small, large}
		for range cycles {
			f.cycle(small.Window, func(int) {
				charges := []core.Charge{
					{Rule: "0", Key: fmt.Sprint(random.IntN(2)), Quota: small, Cost: 1},
					{Rule: "1", Quota: large, Cost: random.Int64N(3)},
				}
				if random.IntN(2) == 0 {
					charges[0], charges[1] = charges[1], charges[0]
				}
				var model []core.State
				for _, c := range charges {
					if states[c.Rule+c.Key] == nil {
						states[c.Rule+c.Key] = core.NewState(c.Quota.Algorithm)
					}
					model = append(model, states[c.Rule+c.Key])
				}
				want := core.Decide(f.now.Load(), charges, model)
				got := storetest.MustTake(t, f.guards[0], charges...)
				modes[got.Mode]++
				require.Equal(t, want.Allowed, got.Allowed, "story %d, %v", story, got.Mode)
				require.Equal(t, want.Outcomes(), got.Outcomes(), "story %d, %v", story, got.Mode)
				for _, c := range charges {
					for range c.Cost * int64(map[bool]int{true: 1}[got.Allowed]) {
						admitted[c.Rule+c.Key] = append(admitted[c.Rule+c.Key], f.now.Load())
					}
				}
			})
		}
		full := 0
		for key, times := range admitted {
			q := quotas[key[0]-'0']
			in := most(times, q.Window)
			require.LessOrEqual(t, in, q.Limit, "story %d, rule %s", story, key)
			if in == q.Limit {
				full++
			}
		}
		require.Positive(t, full, "a story in which no limit is reached proves nothing")
	}
	t.Logf("%d stories of %d cycles: %v", stories, cycles, modes)
}

// TestContinuityOfThree checks that three instances admit at most N + 2⌈N/3⌉ in any window,
// and that some runs come near it.
func TestContinuityOfThree(t *testing.T) {
	race.Skip(t)
	stories, cycles := 10, 200
	if testing.Short() {
		stories = 2
	}
	for i, q := range []core.Quota{
		{Limit: 9, Window: sec}, {Limit: 10, Window: sec},
		{Algorithm: core.SlidingCells, Limit: 9, Window: sec, Cells: 5},
		{Limit: 9, Window: sec}, {Limit: 10, Window: sec}, // of a store that detects lost data
		{Algorithm: core.SlidingCells, Limit: 9, Window: sec, Cells: 5},
	} {
		worst := int64(0)
		bound := q.Limit + 2*((q.Limit+2)/3)
		for story := range stories {
			f := newFleet(3, rand.New(rand.NewPCG(31, uint64(story))))
			if f.detects = i >= 3; f.detects {
				f.lost = func() { f.notice(t, core.Charge{Rule: "r", Quota: q}) }
			}
			var times []int64
			for range cycles {
				f.cycle(q.Window, func(instance int) {
					d := storetest.MustTake(t, f.guards[instance], core.Charge{Rule: "r", Quota: q, Cost: 1})
					if d.Allowed {
						times = append(times, f.now.Load())
					}
				})
			}
			worst = max(worst, most(times, q.Window))
		}
		require.LessOrEqual(t, worst, bound)
		require.Greater(t, worst, q.Limit, "no story in which an outage mattered")
		t.Logf("%v, %d in a window: at most %d, bound %d", q.Algorithm, q.Limit, worst, bound)
	}
}

// TestContinuityWorst is the worst case of that bound: one instance has taken everything
// from the store when it fails, and the others have taken nothing.
func TestContinuityWorst(t *testing.T) {
	for i, limit := range []int64{9, 10, 9, 10} {
		f := newFleet(3, nil)
		f.detects = i >= 2
		c := []core.Charge{{Rule: "r", Quota: core.Quota{Limit: limit, Window: sec}, Cost: 1}}
		admitted := int64(0)
		all := func(instance int) {
			for range 2 * limit {
				d := storetest.MustTake(t, f.guards[instance], c...)
				if d.Allowed {
					admitted++
				}
			}
		}
		all(0)
		require.Equal(t, limit, admitted)
		for i := range f.cut {
			f.cut[i].fail(f.down())
		}
		for i := range f.guards {
			all(i)
		}
		f.lose()
		for i := range f.cut {
			f.cut[i].fail(nil)
		}
		f.now.Add(sec / 2)
		for i := range f.guards {
			all(i)
		}
		require.Equal(t, limit+2*((limit+2)/3), admitted)
	}
}

// admits returns how many of n requests of a key the first instance admits, by a rule
// of 9 in 10 s.
func (f *fleet) admits(t *testing.T, key string, n int) (admitted int) {
	c := charge("r", 9, core.Local)
	c.Key = key
	for range n {
		d := storetest.MustTake(t, f.guards[0], c)
		if d.Allowed {
			admitted++
		}
	}
	return admitted
}

// TestOneFailedCall checks what one failed call costs an instance of three: nothing but the
// unit, which is a debt, if the store detects lost data. Otherwise it limits all keys to their
// shares for a window.
func TestOneFailedCall(t *testing.T) {
	for _, detects := range []bool{false, true} {
		f := newFleet(3, nil)
		f.detects = detects
		f.cut[0].fail(f.down())
		require.Equal(t, 1, f.admits(t, "a", 1))
		f.cut[0].fail(nil)
		require.Equal(t, map[bool]int{false: 2, true: 8}[detects], f.admits(t, "a", 10))
		require.Equal(t, map[bool]int{false: 3, true: 9}[detects], f.admits(t, "b", 10))
		f.now.Add(10*sec + slack)
		require.Equal(t, 9, f.admits(t, "a", 10))
	}
}

// TestForgotten checks that all keys are doubtful when a store reports lost data, also
// for an instance whose failed call was about another key.
func TestForgotten(t *testing.T) {
	f := newFleet(3, nil)
	f.detects = true
	require.Equal(t, 9, f.admits(t, "b", 10))
	f.cut[0].fail(f.down())
	require.Equal(t, 1, f.admits(t, "a", 1))
	f.cut[0].fail(nil)
	f.lose()
	require.Equal(t, 1, f.admits(t, "a", 1))
	require.Zero(t, f.admits(t, "b", 10))
}

// TestBackToBack has a store fail twice and lose its data the second time, when only a
// request that the memory refused has come in between.
func TestBackToBack(t *testing.T) {
	f := newFleet(1, nil)
	c := []core.Charge{charge("r", 2, core.Local)}
	take := func(at int64, allowed bool, mode core.Mode) {
		t.Helper()
		f.now.Store(1_750_000_000*sec + at)
		d := storetest.MustTake(t, f.guards[0], c...)
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, mode, d.Mode)
	}
	f.cut[0].fail(errDown)
	take(0, true, core.ModeLocal)
	f.cut[0].fail(nil)
	take(1*sec, true, core.ModeExact)
	f.cut[0].fail(errDown)
	take(2*sec, false, core.ModeLocal)
	f.cut[0].fail(nil)
	f.lose()
	take(10*sec-1, false, core.ModeLocal)
	take(10*sec, true, core.ModeExact)
	take(10*sec+slack, false, core.ModeLocal)
	take(11*sec-1, false, core.ModeLocal)
	take(11*sec, true, core.ModeExact)
	take(12*sec+slack, false, core.ModeExact) // nothing that the store does not know
}

// TestWindowLong checks that the memory must admit until what was admitted without the
// store has left the window.
func TestWindowLong(t *testing.T) {
	f := newFleet(1, nil)
	c := []core.Charge{charge("r", 1, core.Local)}
	f.cut[0].fail(errDown)
	for i, want := range []bool{true, false, true} {
		d := storetest.MustTake(t, f.guards[0], c...)
		require.Equal(t, want, d.Allowed)
		f.cut[0].fail(nil)
		f.now.Add([]int64{10*sec - 1, 1, 0}[i])
	}
}

// TestBeyondShare checks that what the store admits beyond a share is counted
// until it has left the window.
func TestBeyondShare(t *testing.T) {
	for _, q := range []core.Quota{
		{Limit: 9, Window: 10 * sec},
		{Algorithm: core.SlidingCells, Limit: 9, Window: 10 * sec, Cells: 10},
		{Algorithm: core.SlidingCounter, Limit: 9, Window: 10 * sec},
		{Algorithm: core.FixedWindow, Limit: 9, Window: 10 * sec, Aligned: true},
	} {
		f := newFleet(3, nil)
		take := func(n int, allowed bool) {
			t.Helper()
			for range n {
				d := storetest.MustTake(t, f.guards[0], core.Charge{Rule: "r", Quota: q, Cost: 1})
				require.Equal(t, allowed, d.Allowed, q.Algorithm)
			}
		}
		take(3, true)
		f.now.Add(5 * sec)
		take(6, true)
		f.cut[0].fail(errDown)
		take(1, false)
		if q.Algorithm == core.FixedWindow {
			continue // the next window begins with a share
		}
		f.now.Add(5*sec + 1_100*ms) // the 3 have left
		take(1, false)
	}
}

// A holding is a frail store that holds.
type holding struct {
	*frail
	holder *memstore.Store
}

func (h holding) Holds([]core.Charge) bool { return true }

func (h holding) Hold(ctx context.Context, ask *core.Ask, of *core.Hold) error {
	return h.holder.Hold(ctx, ask, of)
}

func (h holding) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	return h.holder.Settle(ctx, list)
}

func (h holding) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	return h.holder.Extend(ctx, list)
}

// TestContinuityOfHolds compares a single instance, whose requests are held and settled up and down,
// with a store that never fails.
func TestContinuityOfHolds(t *testing.T) {
	race.Skip(t)
	stories, cycles := 30, 100
	if testing.Short() {
		stories = 3
	}
	modes, settled := make(map[core.Mode]int), 0
	for story := range stories {
		random := rand.New(rand.NewPCG(17, uint64(story)))
		f := newFleet(1, random)
		store := holding{f.cut[0], f.store.Store.(*memstore.Store)}
		f.guards[0] = newStore(store, &Options{Log: nowhere}, at(&f.now), f.now.Load)
		model := at(&f.now)
		q, debt := core.Quota{Limit: 20 + random.Int64N(200), Window: sec}, int64(0)
		switch story % 4 {
		case 1:
			q.Algorithm, q.Aligned, debt = core.FixedWindow, true, 1000
		case 2:
			q.Algorithm, q.Cells, debt = core.SlidingCells, 5, 1000
		case 3:
			q.Algorithm, q.Burst, debt = core.TokenBucket, q.Limit/2, 1000
		}
		type held struct{ mine, model core.Settlement }
		var holds []held
		for range cycles {
			f.cycleOf(q.Window, false, func(int) {
				works := f.cut[0].err.Load() == nil && !f.guards[0].unavailable()
				if n := len(holds); works && n > 0 && random.IntN(3) == 0 {
					h := holds[n-1]
					h.mine.Used = random.Int64N(1 + h.mine.Cost + min(debt, h.mine.Cost))
					h.model.Used, holds = h.mine.Used, holds[:n-1]
					got := must.Get(f.guards[0].Settle(t.Context(), []core.Settlement{h.mine}))(t)
					want := must.Get(model.Settle(t.Context(), []core.Settlement{h.model}))(t)
					require.Equal(t, want, got, "story %d", story)
					settled++
				}
				c := core.Charge{Policy: "p", Rule: "r", Quota: q, Cost: 1 + random.Int64N(8), MaxDebt: debt}
				mine, other := core.Ask{Charges: []core.Charge{c}}, core.Ask{Charges: []core.Charge{c}}
				h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(random.Uint64())), Life: core.MaxHold, Found: core.HoldRefused}
				if works && random.IntN(2) == 0 {
					require.NoError(t, f.guards[0].Hold(t.Context(), &mine, &h))
				} else {
					mine.Decision = storetest.MustTake(t, f.guards[0], c)
				}
				if h.Found == core.HoldRefused {
					other.Decision = storetest.MustTake(t, model, c)
				} else {
					again := h
					require.NoError(t, model.Hold(t.Context(), &other, &again))
				}
				modes[mine.Decision.Mode]++
				require.Equal(t, other.Decision.Allowed, mine.Decision.Allowed, "story %d, %v", story, mine.Decision.Mode)
				if h.Found != core.HoldRefused && mine.Decision.Allowed {
					holds = append(holds, held{
						core.Settlement{Return: mine.Decision.Return(0, c), Hold: h.ID}, core.Settlement{Return: other.Decision.Return(0, c), Hold: h.ID},
					})
				}
			})
		}
	}
	require.Greater(t, settled, 100)
	t.Logf("%d settlements: %v", settled, modes)
}
