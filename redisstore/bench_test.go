package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
)

// BenchmarkTake has one and 64 callers decide on two rules, through a client
// that ends calls in time and one beside which the store must keep the time.
func BenchmarkTake(b *testing.B) {
	addr := redistest.Real(b).Options().Addr
	for name, client := range map[string]redis.UniversalClient{
		"client": redis.NewClient(&redis.Options{Addr: addr}),
		"aside":  clusterOf(addr),
	} {
		store := New(client, &Options{Timeout: time.Minute})
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprint(name, "/callers=", callers), func(b *testing.B) { benchmarkTake(b, store, callers) })
		}
		client.Close()
	}
}

func benchmarkTake(b *testing.B, store *Store, callers int) {
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
}
