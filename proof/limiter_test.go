package proof

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// bubble is a test without a deadline, since fake time has none.
type bubble struct{ rapid.TB }

// TestLimiterProperties compares a Limiter, in fake time, with the definition of an
// exact window: the times of the admitted requests, and nothing else. Rapid draws and
// shrinks the schedules.
func TestLimiterProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rapid.Check(bubble{t}, func(t *rapid.T) {
			n++
			var rules []limit.Rule
			for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
				key := rapid.SampledFrom([]limit.KeyResolver{limit.ByIP, limit.ByUser, limit.Everyone,
					limit.ByUser.And(limit.ByIP)}).Draw(t, "key")
				rules = append(rules, limit.Rule{Name: fmt.Sprint("r", i), Key: key,
					Limit:  rapid.Int64Range(1, 6).Draw(t, "limit"),
					Window: time.Duration(rapid.Int64Range(1, 50).Draw(t, "window")) * 100 * time.Millisecond})
			}
			policy := bind(limit.New(nil, nil), limit.Named(fmt.Sprint("p", n), rules...))
			admitted := make(map[string][]time.Time)

			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				time.Sleep(time.Duration(rapid.Int64Range(0, 2_000_000).Draw(t, "step")) * time.Microsecond)
				keys := map[string]string{
					"ip":   rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2"}).Draw(t, "ip"),
					"user": rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "user"),
				}
				d, err := policy.Take(t.Context(), limit.Request{Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				fits, wait := true, time.Duration(0)
				var charged []string
				for i, rule := range rules {
					id := rule.Name
					switch rule.Key.String() {
					case "ip":
						id += keys["ip"]
					case "user":
						id += keys["user"]
					case "user and ip":
						id += keys["user"] + "/" + keys["ip"]
					}
					live := slices.DeleteFunc(slices.Clone(admitted[id]), func(at time.Time) bool { return now.Sub(at) >= rule.Window })
					got := slices.Collect(d.Rules())[i]
					left := rule.Limit - int64(len(live))
					if left < 1 {
						fits = false
						wait = max(wait, live[len(live)-int(rule.Limit)].Add(rule.Window).Sub(now))
					}
					if d.Allowed {
						left--
					}
					if got.Remaining != left || got.Allowed != (left >= 0 && len(live) < int(rule.Limit)) {
						t.Fatalf("rule %s: remaining %d, allowed %v: want %d", rule, got.Remaining, got.Allowed, left)
					}
					charged = append(charged, id)
				}
				if d.Allowed != fits || d.RetryAfter != wait {
					t.Fatalf("allowed %v, retry after %v: want %v, %v", d.Allowed, d.RetryAfter, fits, wait)
				}
				if d.Allowed {
					for _, id := range charged {
						admitted[id] = append(admitted[id], now)
					}
				}
			}
		})
	})
}

func TestNoGoroutineIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	policy := bind(limit.New(nil, nil), limit.Named("p", limit.PerIP(time.Second, 3), limit.Global(time.Minute, 1000)))
	for i := range 10_000 {
		if _, err := policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": fmt.Sprintf("192.0.2.%d", i%256)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingIsLeft uses everything that starts goroutines and timers (batches, clients
// that ignore deadlines, the guard, leases, waits), with a Redis that works and with one
// that never answers. It then checks that no goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	server := redistest.Real(t).Options().Addr
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	func() {
		proxy := faultproxy.Start(t, server)
		defer proxy.Refuse(true)
		clients := []redis.UniversalClient{
			redis.NewClient(&redis.Options{Addr: proxy.Addr()}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr()}, ReadTimeout: 200 * time.Millisecond,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: proxy.Addr()}}}}, nil
				}}),
		}
		for _, client := range clients {
			defer client.Close()
			limiter := limit.New(guard.New(redisstore.New(client, nil), nil), nil)
			held := bind(limiter, limit.Named("held", limit.Rule{Key: limit.Everyone, Limit: 100, Window: time.Second, Algorithm: limit.Concurrency{}},
				limit.Rule{Key: limit.ByUser, Limit: 100, Window: time.Second, Algorithm: limit.Queue{Burst: 5}}))
			for _, silent := range []bool{false, true, false} {
				proxy.Silence(silent)
				done := make(chan struct{})
				for range 16 {
					go func() {
						defer func() { done <- struct{}{} }()
						for range 5 {
							ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
							d, err := held.Take(ctx, limit.Request{Keys: map[string]string{"user": "a"}})
							if err == nil && d.Allowed {
								_ = d.Wait(ctx)
							}
							d.Release()
							cancel()
						}
					}()
				}
				for range 16 {
					<-done
				}
			}
			_, err := held.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "b"}})
			require.NotErrorIs(t, err, core.ErrUnavailable)
			redistest.Await(t, 10*time.Second, "a Redis that answers in time", func() bool {
				return held.Reset(context.Background(), map[string]string{"user": "a"}) == nil
			})
		}
	}()
}
