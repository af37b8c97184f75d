// Package benchmarks compares limit with other libraries. It is a module of its own, so
// that programs that use limit do not get its dependencies. BENCHMARKS.md has the
// figures; cmd/gobench and cmd/redis produce them.
package benchmarks

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
)

// A quota is a limit and its window. The first is more than two cores can use up.
type quota struct {
	limit  int64
	window time.Duration
}

var (
	ample = quota{20_000, time.Millisecond}
	spent = quota{1, time.Hour}
)

func (q quota) core() core.Quota {
	return core.Quota{Limit: q.limit, Window: q.window.Microseconds()}
}

// A contender decides in memory, with a rule for each key and optionally a rule that all
// share.
type contender struct {
	name string
	new  func(each, all quota) caller
}

// A caller is called once by each goroutine. It returns the function that decides, which
// may have memory of its own, as a server has for the charges of a request.
type caller func() func(key string) bool

// alike is a caller whose decisions need no memory of their own.
func alike(decide func(string) bool) caller {
	return func() func(string) bool { return decide }
}

var contenders = []contender{
	{"rate.Limiter of x time, 1 rule", func(each, _ quota) caller { return alike(newTimeRate(each)) }},
	{"rate.Limiter of x time, 2 rules in turn", newTimeRateTwice},
	{"limit, 1 rule", func(each, _ quota) caller { return newLimit(each) }},
	{"limit, 2 rules", func(each, all quota) caller { return newLimit(each, all) }},
	{"ulule, 1 rule", newUlule},
}

// newLimit decides the rules together. The second rule is shared by all keys.
func newLimit(quotas ...quota) caller {
	s := memstore.New(nil)
	ctx := context.Background()
	return func() func(string) bool {
		var charges []core.Charge
		for i, name := range []string{"ip", "global"}[:len(quotas)] {
			charges = append(charges, core.Charge{Rule: name, Quota: quotas[i].core(), Cost: 1})
		}
		return func(key string) bool {
			charges[0].Key = key
			d, err := s.Take(ctx, "POST /update", charges)
			if err != nil {
				panic(err)
			}
			return d.Allowed
		}
	}
}

func newTimeRate(each quota) func(string) bool {
	var limiters sync.Map
	return func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, each.timeRate())
		}
		return l.(*rate.Limiter).Allow()
	}
}

// newTimeRateTwice charges the first rule even if the second refuses.
func newTimeRateTwice(each, all quota) caller {
	first, second := newTimeRate(each), all.timeRate()
	return alike(func(key string) bool { return first(key) && second.Allow() })
}

func (q quota) timeRate() *rate.Limiter {
	return rate.NewLimiter(rate.Every(q.window/time.Duration(q.limit)), int(q.limit))
}

func newUlule(each, _ quota) caller {
	l := limiter.New(ululemem.NewStore(), limiter.Rate{Limit: each.limit, Period: each.window})
	ctx := context.Background()
	return alike(func(key string) bool {
		c, err := l.Get(ctx, key)
		if err != nil {
			panic(err)
		}
		return !c.Reached
	})
}

func addresses(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "198.51." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
	}
	return keys
}

func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		name      string
		keys      []string
		each, all quota
		admit     bool
	}{
		{"1,000 keys, all admitted", addresses(1000), ample, ample, true},
		{"one hot key, all admitted", addresses(1), ample, ample, true},
		{"1,000 keys, all refused by the rule for each key", addresses(1000), spent, ample, false},
		{"one hot key, all refused", addresses(1), spent, ample, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			for _, contender := range contenders {
				b.Run(contender.name, func(b *testing.B) {
					benchmarkDecide(b, contender.new(c.each, c.all), c.keys, c.admit)
				})
			}
		})
	}
}

// benchmarkDecide decides on all processors. It fails unless nearly all decisions are as
// expected.
func benchmarkDecide(b *testing.B, new caller, keys []string, admit bool) {
	// Before the measurement, logs grow to their working size and quotas are used up.
	decide := new()
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
		for _, key := range keys {
			decide(key)
		}
	}
	b.ReportAllocs()
	var wrong atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		decide := new()
		i, mine := rand.IntN(len(keys)), int64(0)
		for pb.Next() {
			if i++; i >= len(keys) {
				i = 0
			}
			if decide(keys[i]) != admit {
				mine++
			}
		}
		wrong.Add(mine)
	})
	b.StopTimer()
	if n := wrong.Load(); n > 10+int64(b.N)/20 {
		b.Fatalf("%d of %d decisions were not as they should be", n, b.N)
	}
}
