package proof

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// resident returns the resident memory of this process, or an estimate of the runtime
// on systems that do not report it.
func resident() int64 {
	var pages, inUse int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if _, err := fmt.Sscan(string(text), &pages, &inUse); err == nil {
			return inUse * int64(os.Getpagesize())
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// TestFlood sends random keys at full speed: 200,000 to a store of 16,384 keys, or
// LIMIT_PROOF_KEYS to a store of the default size. Each is charged to a rule of an hour
// and a rule of a second. The process must not grow by more than 64 MiB, or less for the
// small store, and a key that has used up its quota must get nothing. The process is one of
// its own: garbage of other tests would let the heap grow by as much again.
func TestFlood(t *testing.T) {
	if os.Getenv("LIMIT_FLOODED") == "" {
		process := exec.Command(os.Args[0], "-test.run=^TestFlood$", "-test.v")
		process.Env = append(os.Environ(), "LIMIT_FLOODED=1")
		output, err := process.CombinedOutput()
		t.Logf("%s", output)
		require.NoError(t, err)
		return
	}
	keys, most, bound := 200_000, 16_384, int64(48<<20)
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_KEYS")); err == nil {
		keys, most, bound = n, memstore.DefaultMaxKeys, 64<<20
	}
	for _, window := range []time.Duration{time.Hour, time.Second} {
		t.Run(window.String(), func(t *testing.T) { flood(t, keys, most, bound, window) })
	}
}

func flood(t *testing.T, keys, most int, bound int64, window time.Duration) {
	s := memstore.New(&memstore.Options{MaxKeys: most})
	take := func(rule, key string, q core.Quota) core.Decision {
		d := must.Get(core.Take(t.Context(), s, storetest.Of("POST /login", core.Charge{Rule: rule, Key: key, Quota: q, Cost: 1})))(t)
		return d
	}
	hour := core.Quota{Limit: 5, Window: time.Hour.Microseconds()}
	for range 5 {
		require.True(t, take("per-hour", "attacker", hour).Allowed)
		for known := range 100 {
			require.True(t, take("per-hour", fmt.Sprint("known ", known), core.Quota{Limit: 10, Window: hour.Window}).Allowed)
		}
	}
	q := core.Quota{Limit: 5, Window: window.Microseconds()}
	random := rand.New(rand.NewPCG(10, 10))
	var slow [10_000]int // how many calls took so many µs
	var longest time.Duration
	var honest, refused, overflow, gained int

	debug.FreeOSMemory()
	before, peak, begin := resident(), int64(0), time.Now()
	for i := range keys {
		key := strconv.FormatUint(random.Uint64(), 16)
		called := time.Now()
		d := take("flooded", key, q)
		took := time.Since(called)
		longest = max(longest, took)
		slow[min(int(took.Microseconds()), len(slow)-1)]++
		if d.Mode == core.ModeOverflow {
			overflow++
		}
		switch {
		case i%100 == 0: // a new client that sends one request
			honest++
			if !take("flooded", "honest "+key, q).Allowed {
				refused++
			}
		case i%100 == 50:
			if take("per-hour", "attacker", hour).Allowed {
				gained++
			}
		case i%10_000 == 1:
			peak = max(peak, resident())
		}
	}
	took := time.Since(begin)
	for known := range 100 {
		d := take("per-hour", fmt.Sprint("known ", known), core.Quota{Limit: 10, Window: hour.Window})
		require.True(t, d.Allowed && d.Mode == core.ModeExact && d.Outcomes()[0].Remaining == 4, "known client %d: %+v", known, d)
	}
	if take("per-hour", "attacker", hour).Allowed {
		gained++
	}
	grown := max(peak, resident()) - before
	runtime.KeepAlive(s)

	n, at := 0, 0
	for ; n < keys-keys/1000; at++ {
		n += slow[at]
	}
	t.Logf("%d random keys in %v, 5 in %v for each, room for %d: the process grew by %.1f MiB; "+
		"the limited key was admitted %d times; %.2f%% of new clients with one request were refused; %.2f%% of decisions by an overflow quota; "+
		"99.9%% of calls took at most %d µs, the longest %v",
		keys, took.Round(time.Millisecond), window, most, float64(grown)/(1<<20), gained,
		100*float64(refused)/float64(honest), 100*float64(overflow)/float64(keys), at, longest)
	require.Zero(t, gained)
	require.LessOrEqual(t, grown, bound)
}
