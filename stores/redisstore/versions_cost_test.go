package redisstore

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestCostOfVersions measures how long Redis takes for a call by one version of a rule,
// and by two in turn, and fails if two take more than twice as long. LIMIT_LONGEST=1 runs
// it, and wants a machine with nothing else to do.
func TestCostOfVersions(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	const second, hour = 1_000_000, 3600_000_000
	log := func(limit, window int64) core.Quota { return core.Quota{Limit: limit, Window: window} }
	distinct := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Distinct, Limit: limit, Window: window}
	}
	ban := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Ban, Limit: limit, Window: window, Bar: hour}
	}
	leases := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Concurrency, Limit: limit, Window: window}
	}
	for _, test := range []struct {
		one, other core.Quota
		units      int64 // taken before
	}{
		{log(5, hour), log(4, hour), 2},
		{log(30, 10*second), log(3, second), 2},
		{log(100, hour), log(50, 60*second), 40},
		{log(1000, hour), log(900, hour), 20},
		{log(1000, hour), log(900, hour), 800},
		{log(1000, hour), log(100, second), 800},
		{log(1000, hour), log(100, second), 60},
		{log(100_000, hour), log(90_000, hour), 80_000},
		{log(100_000, hour), log(90_000, 60*second), 80_000},
		{log(100_000, hour), log(100, 60*second), 80_000},
		{distinct(100, hour), distinct(50, 60*second), 40},
		{ban(100, hour), ban(50, 60*second), 20},
		{leases(100, hour), leases(90, 60*second), 40},
	} {
		t.Run(fmt.Sprintf("%v %d beside %d, %d units", test.one.Algorithm, test.one.Limit, test.other.Limit, test.units), func(t *testing.T) {
			for _, keys := range []int{1, 64} {
				if test.units > 1000 && keys > 1 {
					keys = 8
				}
				ones := cost(t, client, keys, test.units, test.one)
				others := cost(t, client, keys, min(test.units, test.other.Limit*9/10), test.other)
				both := cost(t, client, keys, test.units, test.one, test.other)
				t.Logf("%d keys: %.2f and %.2f µs alone, %.2f in turn", keys, ones, others, both)
				assert.LessOrEqual(t, both, 2*max(ones, others))
			}
		})
	}
}

// TestCostOfAlgorithms measures the same for versions with two algorithms. LIMIT_LONGEST=1
// runs it.
func TestCostOfAlgorithms(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	const second = 1_000_000
	quotas := []core.Quota{
		{Limit: 30, Window: 10 * second},
		{Algorithm: core.TokenBucket, Limit: 30, Window: 10 * second, Burst: 30},
		{Algorithm: core.SlidingCells, Limit: 30, Window: 10 * second, Cells: 10},
		{Algorithm: core.FixedWindow, Limit: 30, Window: 10 * second},
		{Limit: 1000, Window: 10 * second},
	}
	usec := func(quotas ...core.Quota) float64 {
		require.NoError(t, client.FlushDB(t.Context()).Err())
		now, least := start, math.Inf(1)
		store := at(client, &now)
		for range 12 {
			require.NoError(t, client.ConfigResetStat(t.Context()).Err())
			const calls = 100
			for i := range calls {
				now += 10 * second / quotas[0].Limit
				_, err := storetest.Take(t.Context(), store, "p", []core.Charge{{Rule: "r", Key: "k", Quota: quotas[i%len(quotas)], Cost: 1}})
				require.NoError(t, err)
			}
			total := 0
			for _, m := range evalTime.FindAllStringSubmatch(client.Info(t.Context(), "commandstats").Val(), -1) {
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				total += n
			}
			least = min(least, float64(total)/calls)
		}
		return least
	}
	for i, one := range quotas {
		for _, other := range quotas[:i] {
			if !one.Algorithm.Alike(other.Algorithm) {
				t.Logf("%v %d and %v %d: %.1f and %.1f µs alone, %.1f in turn", one.Algorithm, one.Limit, other.Algorithm, other.Limit,
					usec(one), usec(other), usec(one, other))
			}
		}
	}
}

// cost returns the µs that Redis takes for a decision in a call on some keys, by quotas in
// turn: the least of several measurements.
func cost(t *testing.T, client *redis.Client, keys int, units int64, quotas ...core.Quota) float64 {
	least := math.Inf(1)
	require.NoError(t, client.FlushDB(t.Context()).Err())
	now := start
	store := at(client, &now)
	id := uint64(0)
	call := func(q core.Quota, n int64) {
		batch := make([][]core.Ask, keys)
		for k := range batch {
			id++
			batch[k] = ask([]core.Charge{{Rule: "r", Key: strconv.Itoa(k), Quota: q, Cost: n, ID: id * 0x9e3779b97f4a7c15}})
		}
		_, err := store.decide(t.Context(), lua.NewRules(store.prefix, batch[0]), batch, nil)
		require.NoError(t, err)
	}
	each := quotas[0].Window / max(1, units) // so that as many units come as leave
	most := int64(100)
	if quotas[0].Algorithm == core.SlidingLog {
		most = max(1, units/100)
	} else {
		most = 1
	}
	for done := int64(0); done < units; done += most {
		now += each * most
		call(quotas[0], min(most, units-done))
	}
	for range 12 {
		require.NoError(t, client.ConfigResetStat(t.Context()).Err())
		const calls = 40
		for i := range calls {
			now += each
			call(quotas[i%len(quotas)], 1)
		}
		m := evalTime.FindStringSubmatch(client.Info(t.Context(), "commandstats").Val())
		require.NotNil(t, m)
		usec, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		least = min(least, float64(usec)/calls/float64(keys))
	}
	return least
}

var evalTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)
