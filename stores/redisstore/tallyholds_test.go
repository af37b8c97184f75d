package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
)

// TestHoldsOfSeveralAlgorithms holds, repeats, extends, settles and ends on keys that versions of a
// rule with several algorithms charge, as while the rule changes. What holds do on Redis is what
// they do in memory.
func TestHoldsOfSeveralAlgorithms(t *testing.T) {
	race.Skip(t)
	client, now, lives, ended := redistest.Client(t), start, 0, 0
	redis, memory := at(client, &now), memstore.New(&memstore.Options{Now: func() int64 { return now }})
	const hour = 3600_000_000
	versions := []core.Quota{
		{Limit: 200, Window: hour},
		{Algorithm: core.FixedWindow, Limit: 200, Window: hour},
		{Algorithm: core.SlidingCells, Limit: 200, Window: hour, Cells: 10},
		{Algorithm: core.TokenBucket, Limit: 200, Window: hour, Burst: 200},
		{Algorithm: core.SlidingCounter, Limit: 200, Window: hour},
	}
	for seed := range 60 {
		random := rand.New(rand.NewPCG(31, uint64(seed)))
		of := func(version int, key string, cost int64) core.Charge {
			return core.Charge{Policy: fmt.Sprint("p", seed), Rule: "r" + key, Key: "k", Cost: cost, Quota: versions[(version+len(key))%len(versions)]}
		}
		both := func(call func(core.Store) any) {
			want := call(memory)
			require.Equal(t, want, call(redis), "seed %d", seed)
		}
		two := []int{random.IntN(len(versions)), random.IntN(len(versions))}
		for range 60 {
			now += random.Int64N(400_000)
			version, id := two[random.IntN(2)], core.HoldIDOf(fmt.Sprint(random.IntN(6)))
			list := []core.Charge{of(version, "", 1+random.Int64N(5)), of(version, "x", 1+random.Int64N(5))}[:1+random.IntN(2)]
			switch random.IntN(5) {
			case 0, 1, 2:
				var over []core.Settlement // each store may list others first
				both(func(s core.Store) any {
					a, h := core.Ask{Charges: list}, core.Hold{ID: id, Life: core.MinHold + int64(seed%2)*hour}
					require.NoError(t, core.HolderOf(s).Hold(t.Context(), &a, &h))
					over = append(over, h.Over...)
					if h.Found != core.HoldLives {
						return []any{a.Decision.Allowed, h.Found}
					}
					lives++
					return []any{a.Decision.Allowed, h.Found, h.Units}
				})
				for i := range over {
					both(func(s core.Store) any {
						done := must.Get(core.HolderOf(s).Settle(t.Context(), over[i:i+1]))(t)
						ended += int(done[0].Given)
						return done
					})
				}
			case 3:
				var of []core.Settlement
				for _, c := range list {
					of = append(of, core.Settlement{Return: core.Return{Charge: c}, Hold: id, Used: random.Int64N(8)})
				}
				both(func(s core.Store) any { return must.Get(core.HolderOf(s).Settle(t.Context(), of))(t) })
			case 4:
				both(func(s core.Store) any {
					return must.Get(core.HolderOf(s).Extend(t.Context(), []core.Extension{{Charge: list[0], Hold: id, Life: core.MinHold}}))(t)
				})
			}
			both(func(s core.Store) any {
				c := list[0]
				c.Cost = 0
				d := must.Get(core.Take(t.Context(), s, []core.Charge{c}))(t)
				return d.Outcomes()[0].Remaining
			})
		}
	}
	require.Positive(t, lives)
	require.Positive(t, ended)
}
