package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
)

// BenchmarkTake has one and 64 callers decide on two rules.
func BenchmarkTake(b *testing.B) {
	store := New(redistest.Client(b), &Options{Timeout: time.Minute})
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			charges := []core.Charge{charge("key", "k", 1000, time.Second), charge("all", "", 100_000, time.Second)}
			if _, err := store.Take(context.Background(), "p", charges); err != nil {
				b.Fatal(err)
			}
			times := make([]time.Duration, b.N)
			next := make(chan int, b.N)
			for i := range b.N {
				next <- i
			}
			close(next)
			b.ReportAllocs()
			b.ResetTimer()
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					for i := range next {
						before := time.Now()
						if _, err := store.Take(context.Background(), "p", charges); err != nil {
							b.Error(err)
						}
						times[i] = time.Since(before)
					}
				})
			}
			done.Wait()
			b.StopTimer()
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-µs")
		})
	}
}
