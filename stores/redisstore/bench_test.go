package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	benchmark(b, store, callers, func(int) []core.Charge { return charges })
}

// benchmark makes decisions, the i-th on the charges of i.
func benchmark(b *testing.B, store *Store, callers int, charges func(i int) []core.Charge) {
	if _, err := core.Take(context.Background(), store, charges(0)); err != nil {
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
			asks := make([]core.Ask, 1)
			for i := range next {
				before := time.Now()
				asks[0].Charges = charges(i)
				if err := store.Take(context.Background(), asks); err != nil {
					b.Error(err)
				}
				times[i] = time.Since(before)
			}
		})
	}
	done.Wait()
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-µs")
}

// BenchmarkSpread has one and 256 callers decide on a Cluster of three primaries
// on a policy in one slot and in parts: on a rule by client, on two rules by
// client, on two of different keys, and on one by client beside one that all
// requests share, with room and without. The time of a processor that a decision
// takes of the busiest primary says what a Cluster with processors of its own can
// carry.
func BenchmarkSpread(b *testing.B) {
	client := redistest.Cluster(b)
	perClient := func(i int) []core.Charge {
		return []core.Charge{charge("client", fmt.Sprint(i%10_000), 1000, time.Second)}
	}
	for _, work := range []struct {
		name    string
		charges func(i int) []core.Charge
	}{
		{"one rule", perClient},
		{"two rules of a key", func(i int) []core.Charge {
			return append(perClient(i), charge("minute", fmt.Sprint(i%10_000), 10_000, time.Minute))
		}},
		{"two keys", func(i int) []core.Charge {
			return append(perClient(i), charge("user", fmt.Sprint("user", i%9_999), 1000, time.Second))
		}},
		{"a shared rule", func(i int) []core.Charge {
			return append(perClient(i), charge("all", "", 100_000, time.Second))
		}},
		{"a shared rule that refuses", func(i int) []core.Charge { return append(perClient(i), charge("all", "", 1, time.Hour)) }},
	} {
		for _, parts := range []int{0, 3, 12} {
			store := New(client, &Options{Timeout: time.Minute, Spread: parts, Prefix: fmt.Sprint("bench", parts)})
			for _, callers := range []int{1, 256} {
				b.Run(fmt.Sprintf("%s/parts=%d/callers=%d", work.name, parts, callers), func(b *testing.B) {
					before := cpuOf(b, client)
					benchmark(b, store, callers, work.charges)
					busiest := 0.0
					for node, after := range cpuOf(b, client) {
						busiest = max(busiest, after-before[node])
					}
					b.ReportMetric(busiest/float64(b.N), "busiest-µs")
				})
			}
		}
	}
}

// cpuOf returns the µs of processor time that each primary has used.
func cpuOf(b *testing.B, client *redis.ClusterClient) map[string]float64 {
	var mu sync.Mutex
	used := make(map[string]float64)
	err := client.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "cpu").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, line := range strings.Split(info, "\r\n") {
			name, value, _ := strings.Cut(line, ":")
			if name == "used_cpu_user" || name == "used_cpu_sys" {
				seconds, _ := strconv.ParseFloat(value, 64)
				used[node.Options().Addr] += seconds * 1e6
			}
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return used
}
