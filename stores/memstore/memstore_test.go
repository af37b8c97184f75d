package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// at returns a store whose clock stands at the returned time until it is set.
func at(micros int64) (*Store, *atomic.Int64) {
	s, now := New(nil), new(atomic.Int64)
	now.Store(micros)
	s.clock, s.monotonic = now.Load, false
	return s, now
}

func (s *Store) entries() int {
	n := 0
	for i := range s.shards {
		n += s.shards[i].keys.len + s.shards[i].overflow.len
	}
	return n
}

// find returns the entry of a charge, or nil.
func (s *Store) entryOf(policy string, c core.Charge) *entry {
	c.Policy = policy
	keys := make([]target, 1)
	s.place(&keys[0], &c)
	s.find(keys)
	return keys[0].entry
}

func take(t testing.TB, s *Store, charges ...core.Charge) core.Decision {
	t.Helper()
	d, err := storetest.Take(context.Background(), s, "policy", charges)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		s, now := at(0)
		if os.Getenv("LIMIT_SCHEDULES") != "" {
			s.room = 1 << 30 // the keys of schedules do not expire
		}
		test(t, storetest.Harness{Store: s, SetTime: now.Store, Elapse: s.elapse})
		holdsOf(t, s)
	})
}

// elapse drops all keys that have expired.
func (s *Store) elapse(int64) {
	for i := range s.shards {
		for _, t := range []*table{&s.shards[i].keys, &s.shards[i].overflow} {
			for range len(t.buckets)/sweepSteps + 1 {
				t.sweep(s.now())
			}
		}
	}
}

// TestStoreWithLittleRoom runs the same suite on a store of 2,048 keys, except
// what needs more keys.
func TestStoreWithLittleRoom(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		s, now := at(0)
		if s.room = 8; strings.Contains(t.Name(), "/Schedules") || strings.Contains(t.Name(), "/Holds") || strings.Contains(t.Name(), "/Names/") {
			t.Skip("has more keys")
		}
		test(t, storetest.Harness{Store: s, SetTime: now.Store})
	})
}

func TestManySchedules(t *testing.T) {
	race.Skip(t)
	n := 1_500
	if testing.Short() {
		n = 200
	}
	s, now := at(0)
	storetest.Schedules(t, storetest.Harness{Store: s, SetTime: now.Store, Elapse: s.elapse}, 2, n)
}

func TestClock(t *testing.T) {
	s, before := New(nil), time.Now()
	at := time.UnixMicro(take(t, s, core.Charge{Quota: core.Quota{Limit: 1, Window: 1_000}}).At)
	if off := at.Sub(before).Abs(); off > time.Second {
		t.Errorf("decided %v away from the wall clock", off)
	}
	// In a bubble of package synctest the store follows the bubble's clock, so
	// that the tests of a service need not wait.
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		c := core.Charge{Quota: core.Quota{Limit: 1, Window: 60_000_000}, Cost: 1}
		first := take(t, s, c)
		refused := take(t, s, c)
		time.Sleep(time.Duration(refused.RetryAfter()) * time.Microsecond)
		if last := take(t, s, c); !first.Allowed || refused.Allowed || !last.Allowed || last.At-first.At != 60_000_000 {
			t.Errorf("%+v, %+v, %+v", first, refused, last)
		}
	})
}

func TestDoneContext(t *testing.T) {
	s := New(nil)
	c := core.Charge{Quota: core.Quota{Limit: 1, Window: 1_000_000}, Cost: 1}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d, err := storetest.Take(ctx, s, "policy", []core.Charge{c}); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("allowed is %v, error is %v", d.Allowed, err)
	}
	if !take(t, s, c).Allowed {
		t.Error("a call with a context that was done has taken something")
	}
}

// TestCopiesNames tests that the store keeps no memory of its callers.
func TestCopiesNames(t *testing.T) {
	s, _ := at(1_000_000)
	request := []byte("policy rule key")
	part := func(from, to int) string { return unsafe.String(&request[from], to-from) }
	charge := core.Charge{Policy: part(0, 6), Rule: part(7, 11), Key: part(12, 15), Quota: core.Quota{Limit: 1, Window: 1_000_000}, Cost: 1}
	if _, err := core.Take(context.Background(), s, []core.Charge{charge}); err != nil {
		t.Fatal(err)
	}
	for i := range request {
		request[i] = 'x'
	}
	if take(t, s, core.Charge{Rule: "rule", Key: "key", Quota: charge.Quota, Cost: 1}).Allowed {
		t.Error("the names of a charge have changed with the caller's memory")
	}
}

// TestReleaseAllocates takes and releases a lease, as each request of a rule of concurrency does.
func TestReleaseAllocates(t *testing.T) {
	s := New(nil)
	charges := []core.Charge{{Rule: "slots", Cost: 1, ID: 1, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 60_000_000}}}
	asks := []core.Ask{{Charges: charges}}
	got := testing.AllocsPerRun(200, func() {
		_ = s.Take(context.Background(), asks)
		_ = s.Release(context.Background(), charges)
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func TestAllocates(t *testing.T) {
	s, now := at(1_000_000)
	q := core.Quota{Limit: 20, Window: 1_000}
	charges := []core.Charge{{Rule: "ip", Key: "192.0.2.1", Quota: q, Cost: 1}, {Rule: "global", Quota: q, Cost: 1}}
	asks := []core.Ask{{Charges: charges}}
	decide := func(want bool) func() {
		return func() {
			now.Add(100)
			err := s.Take(context.Background(), asks)
			for i := range asks {
				if d := &asks[i].Decision; err != nil || d.Allowed != want || len(d.Outcomes()) != len(charges) {
					t.Error(d.Allowed, err)
				}
			}
		}
	}
	for range 100 { // until the logs have their size
		decide(true)()
	}
	measure := func(name string, want bool) {
		t.Helper()
		if got := testing.AllocsPerRun(200, decide(want)); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
	measure("admitted", true)
	charges[0].Cost = 0
	measure("looked at", true)
	charges[0].Key = "192.0.2.2"
	measure("looked at, not known", true)
	charges[0].Cost, charges[1].Cost = 1, 21
	measure("refused, not known", false)
	charges[0].Key = "192.0.2.1"
	measure("refused", false)
	asks = append(asks, core.Ask{Charges: charges})
	charges[1].Cost = 1
	now.Add(1_000)
	measure("two asks", true)
}

func TestStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		take(t, New(nil), core.Charge{Quota: core.Quota{Limit: 1, Window: 1_000}, Cost: 1})
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, were %d", after, before)
	}
}

// TestPanicUnlocks checks that a recovered panic, as in HTTP servers, does not block later
// decisions.
func TestPanicUnlocks(t *testing.T) {
	s, _ := at(1_000_000)
	c := core.Charge{Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 2, Burst: 2, Window: 1_000_000}, Cost: 1}
	take(t, s, c)
	e := (*stateEntry)(unsafe.Pointer(s.entryOf("policy", c)))
	state := e.state
	e.state = nil
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		take(t, s, c)
	}()
	e.state = state
	if !take(t, s, c).Allowed {
		t.Error("refused")
	}
}

// TestMemoryPerKey measures what the documentation of Store says.
func TestMemoryPerKey(t *testing.T) {
	race.Skip(t)
	const n = 100_000
	s, _ := at(1_000_000)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("2001:db8::%04x", i) // 14 bytes: short ones
	}
	charge := []core.Charge{{Rule: "ip", Quota: core.Quota{Limit: 5, Window: 1_000_000}, Cost: 1}}
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for units := range 5 {
		before := inUse()
		for _, key := range keys {
			charge[0].Key = key
			take(t, s, charge...)
		}
		perKey := float64(inUse()-before) / n
		t.Logf("unit %d: %+.1f bytes per key", units+1, perKey)
		if units == 0 && perKey > 130 {
			t.Errorf("%.0f bytes per key, want about 123", perKey)
		}
	}
	runtime.KeepAlive(keys)
	runtime.KeepAlive(s)
}

// TestMemoryOfAFullStore measures what the documentation of [DefaultMaxKeys] says.
func TestMemoryOfAFullStore(t *testing.T) {
	race.Skip(t)
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	s, _ := at(1_000_000)
	charge := []core.Charge{{Rule: "ip", Quota: core.Quota{Limit: 5, Window: 1_000_000}, Cost: 1}}
	for i := range DefaultMaxKeys * 5 / 4 { // until all shards are full
		charge[0].Key = fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255)
		for range 5 {
			take(t, s, charge...)
		}
	}
	used, keys := inUse()-before, 0
	for i := range s.shards {
		keys += s.shards[i].keys.len
	}
	t.Logf("%d keys in %.1f MB, %d bytes each", keys, float64(used)/1e6, used/int64(keys))
	least := int64(20e6)
	if bits.UintSize == 32 {
		least = 16e6
	}
	if keys != DefaultMaxKeys || used < least || used > 30e6 {
		t.Errorf("%d keys in %d bytes, want %d in about 25 MB", keys, used, DefaultMaxKeys)
	}
	runtime.KeepAlive(s)
}

func TestShardsFillCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(shard{}); size%cacheLine != 0 {
		t.Errorf("a shard has %d bytes, want a multiple of %d", size, cacheLine)
	}
}

func TestLongKeysDiffer(t *testing.T) {
	s, _ := at(1_000_000)
	long := strings.Repeat("x", 1<<20)
	for _, key := range []string{long, long + "y", "y" + long} {
		c := core.Charge{Key: key, Quota: core.Quota{Limit: 1, Window: 1_000_000}, Cost: 1}
		if !take(t, s, c).Allowed || take(t, s, c).Allowed {
			t.Errorf("key of %d bytes", len(key))
		}
	}
}

// TestRenewedLeasesAreKept renews a lease for longer than its first life, while new keys come
// and others are dropped.
func TestRenewedLeasesAreKept(t *testing.T) {
	s, now := at(1_000_000)
	held := core.Charge{Rule: "held", Key: "k", Cost: 1, ID: 7,
		Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: 1_000}}
	take(t, s, held)
	for i := range 100 {
		now.Add(900)
		if kept, err := storetest.Renew(t.Context(), s, "policy", []core.Charge{held}); err != nil || !kept[0] {
			t.Fatalf("round %d: held %v, %v", i, kept, err)
		}
		for j := range 600 { // about two for each shard
			take(t, s, core.Charge{Rule: "new", Key: fmt.Sprint(i, "/", j), Cost: 1, Quota: core.Quota{Limit: 1, Window: 1_000}})
		}
	}
	if err := storetest.Release(t.Context(), s, "policy", []core.Charge{held}); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, held); !d.Allowed {
		t.Error("released, and still held")
	}
}
