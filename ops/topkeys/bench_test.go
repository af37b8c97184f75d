package topkeys_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/topkeys"
)

// decisions returns decisions of many users by two rules, of which some are refusals.
func decisions(t testing.TB, users int) (list []limit.Decision) {
	global := limit.Rule{Key: limit.Everyone, Limit: 1_000_000_000, Window: time.Hour, Algorithm: limit.FixedWindow{}}
	p := policy(t, limit.New(nil, nil), "login", limit.PerUser(time.Hour, 10), global)
	for i := range users {
		list = append(list, take(t, p, 1+i%20, fmt.Sprintf("203.0.113.%d", i)))
	}
	return list
}

func TestAllocations(t *testing.T) {
	c := topkeys.New(nil)
	list := decisions(t, 100)
	i := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		c.Observe(&list[i%len(list)])
		i++
	}))
}

// BenchmarkObserve counts decisions with two rules: of keys that are tracked, and of a
// flood of keys of which each comes once.
func BenchmarkObserve(b *testing.B) {
	for _, users := range []int{1, 100, 100_000} {
		list := decisions(b, users)
		b.Run(fmt.Sprintf("keys=%d", users), func(b *testing.B) {
			c := topkeys.New(nil)
			var goroutine atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				i := int(goroutine.Add(1)) * 7919
				for pb.Next() {
					c.Observe(&list[i%len(list)])
					i++
				}
			})
		})
	}
}

// BenchmarkTake shows what Observe adds to a decision in memory.
func BenchmarkTake(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(fmt.Sprintf("counted=%t", counted), func(b *testing.B) {
			limiter := limit.New(nil, nil)
			if counted {
				limiter = observed(topkeys.New(nil), nil)
			}
			p := policy(b, limiter, "p", limit.PerUser(time.Hour, 1000), limit.Global(time.Hour, 1000))
			request := limit.Request{Keys: map[string]string{"user": "alice"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Take(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTop(b *testing.B) {
	c := topkeys.New(nil)
	for _, d := range decisions(b, 1000) {
		c.Observe(&d)
	}
	for b.Loop() {
		c.Top(topkeys.ByRefusals, 20)
	}
}
