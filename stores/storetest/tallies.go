package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// Tallies has n random lives, from one on, of versions with several algorithms charge one key, also while
// the clock steps back, and compares what the store decides with package core. On the way,
// units are owed and given back. The first two requests are of two algorithms, so that the
// key has tallies; before that, a store and package core may differ in what they forget.
func Tallies(t *testing.T, h Harness, first, n int) {
	seed := uint64(environment(t, "LIMIT_SEED", 31))
	for life := first; life < first+environment(t, "LIMIT_SCHEDULES", n); life++ {
		random := rand.New(rand.NewPCG(seed, uint64(life)))
		v := &versions{random: random}
		all := core.Algorithms()
		var versions []core.Quota
		for len(versions) < 2 || len(versions) < 5 && random.IntN(2) == 0 {
			a := pick(random, all)
			if len(versions) == 1 && a.Alike(versions[0].Algorithm) {
				continue
			}
			q := v.ofAlgorithm(a, 1+random.Int64N(20), pick(random, []int64{sec, 10 * sec, 60 * sec}))
			require.NoError(t, q.Validate())
			versions = append(versions, q)
		}
		var state core.State = core.NewTallies(versions[0].Algorithm, core.NewState(versions[0].Algorithm))
		now := int64(1_800_000_000_000_000)
		charge := core.Charge{Policy: "tallies", Rule: fmt.Sprint(life), Key: "k"}
		var taken []core.Return
		for i := range 60 {
			c := charge
			if c.Quota = pick(random, versions); i < 4 {
				c.Quota = versions[i%2]
			} else {
				now += pick(random, []int64{0, 0, 1, c.Quota.Window / c.Quota.Limit, random.Int64N(c.Quota.Window)})
				if life%4 == 3 && random.IntN(10) == 0 {
					now -= random.Int64N(c.Quota.Window)
				}
			}
			h.SetTime(now)
			if i >= 4 && len(taken) > 0 && random.IntN(5) == 0 {
				r := pick(random, taken)
				given, err := h.Store.Return(t.Context(), []core.Return{r})
				require.NoError(t, err)
				want := state.Return(&r, now)
				require.Equal(t, core.Returned{Units: want, Outcome: core.Look(now, r.Charge, state)}, given[0], "life %d, step %d: %+v of %+v", life, i, r, versions)
				continue
			}
			c.Cost = pick(random, []int64{0, 1, 1, 1, 2, c.Quota.Capacity()})
			if i < 4 {
				c.Cost = 1
			}
			if random.IntN(6) == 0 && i >= 4 {
				c.Debt, c.Cost, c.Age = true, max(1, c.Cost), pick(random, []int64{0, 1, random.Int64N(2 * c.Quota.Window)})
				drawMaxDebt(random, &c)
			}
			if c.Quota.Identified() {
				c.ID = 1 + random.Uint64N(30)
			}
			got, err := core.Take(t.Context(), h.Store, []core.Charge{c})
			require.NoError(t, err, "life %d, step %d: %+v of %+v", life, i, c, versions)
			want := core.Decide(now, []core.Charge{c}, []core.State{state})
			require.Equal(t, want.Outcomes(), got.Outcomes(), "life %d, step %d: %+v of %+v", life, i, c, versions)
			require.Equal(t, [...]int64{want.Delay, want.Forgiven}, [...]int64{got.Delay, got.Forgiven}, "%+v", c)
			if got.Allowed && !c.Debt && c.Cost > 0 && !c.Quota.Refills() && !c.Quota.Leases() {
				taken = append(taken, got.Return(0, c))
			}
			if len(taken) > 5 {
				taken = slices.Delete(taken, 0, 1)
			}
		}
	}
}

// told tests that what one algorithm admits counts for another one: what was spent before that
// one comes, and each unit from then on, from when it was taken.
func told() (tests []namedTest) {
	for _, one := range core.Algorithms() {
		for _, other := range core.Algorithms() {
			if counts(one) && counts(other) && !one.Alike(other) {
				tests = append(tests, namedTest{fmt.Sprint(one, " and ", other), func(t *testing.T, h Harness) {
					tellEachOther(t, h, plainQuota(one, 10, 10*sec), plainQuota(other, 10, 10*sec))
				}})
			}
		}
	}
	return append(tests, namedTest{"queues of two rates beside buckets", tellSlowQueue})
}

// tellSlowQueue has queues and buckets together admit no more than at their rate. The longest
// queue in time is of the slow version, so what buckets admit counts up to there.
func tellSlowQueue(t *testing.T, h Harness) {
	random, most, now := rand.New(rand.NewPCG(1, 1)), int64(0), starts[0]
	versions := []core.Quota{
		{Algorithm: core.Queue, Limit: 1, Window: 10 * sec, Burst: 1},
		{Algorithm: core.LeakyBucket, Limit: 1, Window: 10 * sec, Burst: 1},
		{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * sec, Burst: 2},
		{Algorithm: core.Queue, Limit: 1, Window: 20 * sec, Burst: 1},
	}
	meter := newMeter(versions, now)
	for i := range 1_500 {
		now += random.Int64N(10 * sec)
		h.SetTime(now)
		if take(t, h, "policy", core.Charge{Rule: "r", Key: "k", Quota: versions[i%4], Cost: 1}).Allowed {
			most = max(most, meter.add(now))
		}
	}
	require.LessOrEqual(t, most, int64(7)) // see capacity
}

func tellEachOther(t *testing.T, h Harness, one, other core.Quota) {
	key := "k"
	left := func(at int64, q core.Quota, cost, spent int64) {
		t.Helper()
		h.SetTime(starts[0] + at)
		d := take(t, h, "policy", core.Charge{Rule: "r", Key: key, Quota: q, Cost: cost})
		require.True(t, d.Allowed)
		require.Equal(t, q.Capacity()-spent, first(d).Remaining, "%v, %v after the start", q.Algorithm, core.Duration(at))
	}
	all := core.Algorithms()
	third := all[slices.IndexFunc(all, func(a core.Algorithm) bool {
		return counts(a) && !a.Alike(one.Algorithm) && !a.Alike(other.Algorithm)
	})]
	left(0, one, 6, 6)
	left(0, other, 1, 7)
	left(0, plainQuota(third, 10, 10*sec), 1, 8)
	left(0, one, 2, 10)
	left(0, plainQuota(third, 10, 10*sec), 0, 10)
	left(0, other, 0, 10)
	if other.Algorithm != core.SlidingLog {
		return
	}
	left(10*sec-1, other, 0, 10)
	left(10*sec, other, 0, 0)

	key = "of which units were known when the log came"
	h.SetTime(starts[0])
	left(0, one, 6, 6)
	left(5*sec, other, 1, 7)
	left(11*sec, other, 0, 1)
	left(15*sec, other, 0, 0)
}
