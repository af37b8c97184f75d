package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestPeriods has versions of rules that count in periods charge keys: see
// [storetest.Lives].
func TestPeriods(t *testing.T) {
	race.Skip(t)
	storetest.Lives(t, harness(redistest.Client(t)), storetest.Periods, 0, 400)
}

// TestBrokenGrids tests that every call on a value of two grids is answered, or is an error
// that names the key, with any bytes of it changed and at every length.
func TestBrokenGrids(t *testing.T) {
	client, all := clientForValues(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range all {
		c := s.charge(1)
		other := c
		if other.Quota.Window /= 4; !slices.Contains([]core.Algorithm{core.FixedWindow, core.SlidingCells, core.SlidingCounter}, c.Quota.Algorithm) {
			continue
		}
		require.NoError(t, client.Del(t.Context(), valueKey, returnedKey).Err())
		store := New(client, &patient)
		for _, c := range []core.Charge{c, other} {
			must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{c}))(t)
		}
		value := []byte(client.Get(t.Context(), valueKey).Val())
		require.NoError(t, client.Del(t.Context(), lua.TokenKey("limit", valueKey)).Err())
		require.Equal(t, byte('x'), value[0])
		require.True(t, lua.IsState('x', int64(len(value))))
		for range 400 {
			broken := slices.Clone(value)
			for range 1 + random.IntN(3) {
				broken[random.IntN(len(broken))] = []byte{0, 1, 255, byte(random.Uint32())}[random.IntN(4)]
			}
			everyCallAnswers(t, client, stored{form: s.form, value: broken}, 1, s.at)
		}
		for size := range value {
			everyCallAnswers(t, client, stored{form: s.form, value: value[:size]}, 1, s.at)
		}
	}
}

// BenchmarkPeriods has one version of a rule charge a key, and two in turn.
func BenchmarkPeriods(b *testing.B) {
	client := redistest.Real(b)
	quota := func(a core.Algorithm, window int64) core.Quota {
		q := core.Quota{Algorithm: a, Limit: 1_000_000_000, Window: window}
		if a == core.SlidingCells {
			q.Cells = 10
		}
		return q
	}
	for _, a := range []core.Algorithm{core.SlidingCells, core.SlidingCounter, core.FixedWindow} {
		for _, versions := range []int{1, 2} {
			b.Run(fmt.Sprint(a, "/versions=", versions), func(b *testing.B) {
				store := New(client, &Options{Timeout: time.Minute, Prefix: fmt.Sprint(a, versions)})
				var charges [][]core.Charge
				for i := range versions {
					q := quota(a, []int64{10_000_000, 1_000_000}[i])
					charges = append(charges, []core.Charge{{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: q}})
				}
				if err := client.ConfigResetStat(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
				benchmark(b, store, 1, func(i int) []core.Charge { return charges[i%versions] })
				stats := client.InfoMap(b.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
				_, rest, _ := strings.Cut(stats, "usec_per_call=")
				rest, _, _ = strings.Cut(rest, ",")
				us, _ := strconv.ParseFloat(rest, 64)
				b.ReportMetric(us, "redis-µs")
			})
		}
	}
}
