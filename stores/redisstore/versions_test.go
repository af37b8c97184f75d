package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestLevels(t *testing.T) {
	race.Skip(t)
	h := harness(redistest.Client(t))
	storetest.Lives(t, h, storetest.Levels, 0, 180)
}

func TestTimes(t *testing.T) {
	n := 300
	if testing.Short() || race.Enabled {
		n = 50
	}
	storetest.Lives(t, harness(redistest.Client(t)), storetest.Times, 0, n)
}

// TestRingExpires charges a ring at the beginning and at the end of an interval as long as
// its window. Its key is prolonged only once in each, and so must live for two windows.
func TestRingExpires(t *testing.T) {
	client := redistest.Client(t)
	const second = 1_000_000
	now := start - start%(1000*second)
	store, pass := at(client, &now), elapse(client)
	q := core.Quota{Limit: 200, Window: 1000 * second}
	take := func(n int64) bool {
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: q, Cost: n}}))(t)
		return d.Allowed
	}
	step := func(micros int64) {
		now += micros
		pass(micros)
	}
	require.True(t, take(140), "a ring")
	step(980 * second)
	require.True(t, take(60))
	step(20 * second)
	require.True(t, take(140), "what was taken first has left")
	step(985 * second) // in the same interval, and so it does not prolong the key
	require.True(t, take(60))
	require.Equal(t, "c", client.GetRange(t.Context(), lua.Key("limit", named("p", "r", "k")), 0, 0).Val())
	step(900 * second)
	assert.False(t, take(141), "60 were taken 900 s ago")
	assert.True(t, take(140))
}

// TestRingOfAnotherVersion has versions with a smaller limit or a shorter window write a
// ring where it is, whether their limits need rings or not.
func TestRingOfAnotherVersion(t *testing.T) {
	client := redistest.Client(t)
	now := start
	store := at(client, &now)
	key := lua.Key("limit", named("p", "r", "k"))
	take := func(q core.Quota, n int64) core.Outcome {
		t.Helper()
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: q, Cost: n}}))(t)
		require.True(t, d.Allowed)
		return d.Outcomes()[0]
	}
	second := int64(time.Second / time.Microsecond)
	large := core.Quota{Limit: 1000, Window: 5000 * second}
	take(large, 500)
	head := client.GetRange(t.Context(), key, 0, 9).Val()
	for _, q := range []core.Quota{{Limit: 900, Window: large.Window}, {Limit: 900, Window: second}, {Limit: 100, Window: second}, {Limit: 1000, Window: second}} {
		now += second
		left := q.Limit - 1
		if q.Window == large.Window {
			left = 399
		}
		assert.Equal(t, left, take(q, 1).Remaining, q)
		assert.Equal(t, head, client.GetRange(t.Context(), key, 0, 9).Val(), q)
	}
	assert.Equal(t, int64(1000-504-1), take(large, 1).Remaining)
	assert.InDelta(t, 2*5000*time.Second+time.Hour, client.PTTL(t.Context(), key).Val(), float64(time.Minute))
	take(core.Quota{Limit: 1500, Window: second}, 1)
	assert.Equal(t, int64(1000-506-1), take(large, 1).Remaining)
	assert.NotEqual(t, head, client.GetRange(t.Context(), key, 0, 9).Val(), "laid anew for a larger limit")
}
