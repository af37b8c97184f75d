package memstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
)

// perKeyAndGlobal returns the charges of a route with a rule for each client and a rule
// for all of them.
func perKeyAndGlobal(key string, each, all core.Quota) []core.Charge {
	return []core.Charge{
		{Policy: "POST /update", Rule: "ip", Key: key, Quota: each, Cost: 1},
		{Policy: "POST /update", Rule: "global", Quota: all, Cost: 1},
	}
}

func addresses(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "192.0." + strconv.Itoa(i/256) + "." + strconv.Itoa(i%256)
	}
	return keys
}

func benchmarkTake(b *testing.B, s *Store, keys []string, each, all core.Quota, allowed bool) {
	// The logs grow to their working size first.
	for warm := time.Now(); time.Since(warm) < 20*time.Millisecond; {
		for _, key := range keys {
			_, _ = core.Take(context.Background(), s, perKeyAndGlobal(key, each, all))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		charges := perKeyAndGlobal("", each, all)
		asks := []core.Ask{{Charges: charges}}
		i := rand.IntN(len(keys))
		for pb.Next() {
			if i++; i >= len(keys) {
				i = 0
			}
			charges[0].Key = keys[i]
			err := s.Take(context.Background(), asks)
			if d := &asks[0].Decision; err != nil || d.Allowed != allowed {
				b.Error(d.Allowed, err)
				return
			}
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	each := core.Quota{Limit: 100_000, Window: 10_000}
	all := core.Quota{Limit: 100_000, Window: 2_000}
	for _, n := range []int{1, 1_000} {
		b.Run("keys="+strconv.Itoa(n), func(b *testing.B) {
			benchmarkTake(b, New(nil), addresses(n), each, all, true)
		})
	}
}

// BenchmarkAdmitByKeys has two rules that no two callers share, such as one for
// each address and one for each user.
func BenchmarkAdmitByKeys(b *testing.B) {
	s, keys := New(nil), addresses(1_000)
	q := core.Quota{Limit: 100_000, Window: 10_000}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := []core.Charge{{Policy: "POST /update", Rule: "ip", Quota: q, Cost: 1}, {Policy: "POST /update", Rule: "user", Quota: q, Cost: 1}}
		asks := []core.Ask{{Charges: charges}}
		i := rand.IntN(len(keys))
		for pb.Next() {
			if i++; i >= len(keys) {
				i = 0
			}
			charges[0].Key, charges[1].Key = keys[i], keys[i]
			if err := s.Take(context.Background(), asks); err != nil || !asks[0].Decision.Allowed {
				b.Error(asks[0].Decision, err)
				return
			}
		}
	})
}

func BenchmarkRefuse(b *testing.B) {
	each := core.Quota{Limit: 5, Window: 3600 * 1_000_000}
	all := core.Quota{Limit: 100_000, Window: 3600 * 1_000_000}
	b.Run("known", func(b *testing.B) {
		benchmarkTake(b, New(nil), addresses(1_000), each, all, false)
	})
	b.Run("unknown", func(b *testing.B) {
		s := New(nil)
		full := core.Quota{Limit: 1, Window: 3600 * 1_000_000}
		_, _ = core.Take(context.Background(), s, perKeyAndGlobal("", each, full)[1:])
		benchmarkTake(b, s, addresses(1_000), each, full, false)
	})
}

// BenchmarkFloor measures what every decision needs: a reading of the clock, and a lock and
// a hash for each key.
func BenchmarkFloor(b *testing.B) {
	s := New(nil)
	charge := core.Charge{Rule: "ip", Key: "192.0.2.17"}
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			s.now()
		}
	})
	b.Run("lock", func(b *testing.B) {
		for b.Loop() {
			s.shards[0].mu.Lock()
			s.shards[0].last++
			s.shards[0].mu.Unlock()
		}
	})
	b.Run("hash", func(b *testing.B) {
		var k target
		for b.Loop() {
			s.place(&k, &charge)
		}
	})
}

// BenchmarkArrive admits keys never seen before, most of which have expired.
func BenchmarkArrive(b *testing.B) {
	s := New(nil)
	charge := []core.Charge{{Policy: "POST /update", Rule: "ip", Quota: core.Quota{Limit: 5, Window: 10_000}, Cost: 1}} // a longer one fills the store
	asks := []core.Ask{{Charges: charge}}
	b.ReportAllocs()
	for i := range b.N {
		charge[0].Key = strconv.Itoa(i)
		if err := s.Take(context.Background(), asks); err != nil || !asks[0].Decision.Allowed {
			b.Fatal(asks[0].Decision, err)
		}
	}
}
