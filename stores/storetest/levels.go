package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// Levels has n random lives of versions of buckets and queues, with other bursts, rates and
// windows, charge one key in any order, also while the clock steps back, and compares what
// the store decides with package core. On the way, units are owed and given back.
func Levels(t *testing.T, h Harness, n int) {
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket, core.Queue} {
		for life := range n {
			random := rand.New(rand.NewPCG(uint64(a), uint64(life)))
			var versions []core.Quota
			for range 2 + random.IntN(3) {
				q := core.Quota{Algorithm: a, Limit: 1 + random.Int64N(20), Window: []int64{1_000, 1_009, 1_000_000, 7_000_000}[random.IntN(4)], Burst: 1 + random.Int64N(30)}
				if random.IntN(2) == 0 && len(versions) > 0 {
					q.Limit, q.Window = versions[0].Limit, versions[0].Window
				}
				versions = append(versions, q)
			}
			state, now := core.NewState(a), int64(1_800_000_000_000_000)
			var taken []core.Return
			for i := range 60 {
				q := versions[random.IntN(len(versions))]
				now += []int64{0, 0, 1, q.Window / q.Limit, random.Int64N(q.Window), random.Int64N(1 + 2*q.Window/q.Limit)}[random.IntN(6)]
				if life%4 == 3 && random.IntN(10) == 0 {
					now -= random.Int64N(q.Window)
				}
				h.SetTime(now)
				if len(taken) > 0 && random.IntN(5) == 0 {
					r := taken[random.IntN(len(taken))]
					given, err := h.Store.Return(t.Context(), []core.Return{r})
					require.NoError(t, err)
					want := state.Return(&r, now)
					require.Equal(t, core.Returned{Units: want, Outcome: core.Look(now, r.Charge, state)}, given[0], "%v, life %d, step %d: %+v", a, life, i, r)
					continue
				}
				c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(a, life), Quota: q, Cost: 1 + random.Int64N(2)*random.Int64N(q.Capacity())}
				if c.Debt = random.IntN(15) == 0; c.Debt {
					drawMaxDebt(random, &c)
				}
				got, err := core.Take(t.Context(), h.Store, []core.Charge{c})
				require.NoError(t, err)
				want := core.Decide(now, []core.Charge{c}, []core.State{state})
				require.Equal(t, want.Outcomes(), got.Outcomes(), "%v, life %d, step %d: %+v of %+v", a, life, i, c, versions)
				require.Equal(t, [...]int64{want.Delay, want.Forgiven}, [...]int64{got.Delay, got.Forgiven}, "%+v", c)
				if got.Allowed && !c.Debt {
					taken = append(taken, got.Return(0, c))
				}
			}
		}
	}
}

// TwoBursts has two versions of a rule of one unit a second charge one key, one with a burst
// of 100 and one with a burst of 1, behind a random balancer.
func TwoBursts(t *testing.T, h Harness) {
	const second = 1_000_000
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket, core.Queue} {
		for name, test := range map[string]struct{ step, lasts, bound int64 }{
			"10 s":  {1_100_000, 10 * second, 111},
			"300 s": {50_000, 300 * second, 401},
		} {
			random, admitted := rand.New(rand.NewPCG(1, 2)), int64(0)
			for at := int64(0); at <= test.lasts; at += test.step {
				h.SetTime(1_800_000_000_000_000 + at)
				q := core.Quota{Algorithm: a, Limit: 1, Window: second, Burst: 100}
				if random.IntN(2) == 0 {
					q.Burst = 1
				}
				if a == core.Queue {
					q.Burst--
				}
				for admitted <= test.bound {
					d, err := core.Take(t.Context(), h.Store, []core.Charge{{Policy: "p", Rule: name, Key: a.String(), Quota: q, Cost: 1}})
					require.NoError(t, err)
					if !d.Allowed {
						break
					}
					admitted++
				}
			}
			assert.LessOrEqual(t, admitted, test.bound, "%v, %s", a, name)
			assert.GreaterOrEqual(t, admitted, test.bound*9/10, "%v, %s", a, name)
		}
	}
}
