package algorithms

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/memstore"
)

var addresses = stats.Addresses(20_000)

// heapBytes returns how many bytes the heap grows for each key of a full memstore. The
// window is a day instead of a second, so that no key is dropped meanwhile; this makes no
// state larger.
func heapBytes(t *testing.T, q core.Quota) float64 {
	q.Window = 24 * 3600 * second
	store := memstore.New(nil)
	before := stats.Heap()
	charges := []core.Charge{{Policy: "bench", Rule: "ip", Quota: q, Cost: 1}}
	for _, key := range addresses {
		charges[0].Key = key
		for range q.Capacity() {
			_, err := core.Take(t.Context(), store, charges)
			require.NoError(t, err)
		}
	}
	grown := stats.Heap() - before
	runtime.KeepAlive(store)
	return grown / float64(len(addresses))
}

// redisBytes returns the largest MEMORY USAGE of a key while twice its limit is requested
// within a window.
func redisBytes(t *testing.T, client *redis.Client, q core.Quota) (most int64) {
	asks := []core.Ask{{Charges: []core.Charge{{Policy: "bench", Rule: "ip", Key: addresses[0], Quota: q, Cost: 1}}}}
	rules := lua.NewRules("limit", asks)
	name := lua.Key("limit", &asks[0].Charges[0])
	require.NoError(t, client.Del(t.Context(), name).Err())
	const grace = 3_600_000 // ms, until which it must not expire
	at := time.Now().Truncate(time.Second).UnixMicro()
	for range 2 * limit {
		keys, args := rules.Encode(strconv.FormatInt(at, 10), grace, [][]core.Ask{asks})
		require.NoError(t, client.Eval(t.Context(), rules.Script.Text, keys, args...).Err())
		used, err := client.MemoryUsage(t.Context(), name, 0).Result()
		require.NoError(t, err)
		most = max(most, used)
		at += window / (2 * limit)
	}
	return most
}

// decisionTimes measures a core.Decide on one key, in ns, in the fastest of several
// rounds. Each round runs all algorithms, so that a slow phase of the machine affects them
// all. The times are two minutes of the realistic schedule, repeated: some requests are
// admitted and some refused, in an order that no branch predictor can learn.
func decisionTimes(rows []row, rounds int) {
	var times []int64
	record := func(at int64) core.Decision {
		times = append(times, at)
		return core.Decision{}
	}
	r := rand.New(rand.NewPCG(1, 0))
	at := start
	for range 120 {
		at = traffic(r, at, record)
	}
	lap := at - start
	for range rounds {
		for i := range rows {
			ns := decisionTime(rows[i].quota, times, lap)
			if best := &rows[i].Nanoseconds; *best == 0 || ns < *best {
				*best = ns
			}
		}
	}
}

func decisionTime(q core.Quota, times []int64, lap int64) float64 {
	result := testing.Benchmark(func(b *testing.B) {
		k := newKey(q)
		passed, i := int64(0), 0
		for b.Loop() {
			k.ask(times[i] + passed)
			if i++; i == len(times) {
				i, passed = 0, passed+lap
			}
		}
	})
	return float64(result.T.Nanoseconds()) / float64(result.N)
}
