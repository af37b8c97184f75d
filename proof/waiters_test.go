package proof

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestSlotsReachOtherProcesses has as many instances as LIMIT_PROOF_WAITERS says, with a
// connection each, wait for the only slot of a key, which another one frees at times. It
// reports how long until one of them has it, and what their waiting costs Redis.
func TestSlotsReachOtherProcesses(t *testing.T) {
	client := redistest.Real(t)
	instances, frees := 20, 10
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_WAITERS")); err == nil {
		instances, frees = n, 50
	}
	slot := limit.Named("slot", limit.Rule{Name: "only", Key: limit.Everyone, Limit: 1, Window: 30 * time.Second, Algorithm: limit.Concurrency{}})
	holder := bind(limit.New(unhurried(client, 1), nil), slot)
	held := must.Get(holder.Take(t.Context(), limit.Request{}))(t)
	require.True(t, held.Allowed)

	ctx, cancel := context.WithCancel(t.Context())
	admitted, release := make(chan time.Time), make(chan struct{})
	var waiters sync.WaitGroup
	for range instances {
		options := *client.Options()
		options.PoolSize = 1
		own := redistest.Closing(t, redis.NewClient(&options))
		policy := bind(limit.New(unhurried(own, instances+1), nil), slot)
		waiters.Go(func() {
			for {
				d, err := policy.Wait(ctx, limit.Request{})
				if err != nil {
					return
				}
				select {
				case admitted <- time.Now():
					<-release
				case <-ctx.Done():
				}
				d.Release()
			}
		})
	}
	time.Sleep(time.Second)
	before, cpu := scripts(t, client), processorTime(t, client)
	const seconds = 3
	time.Sleep(seconds * time.Second)
	after := scripts(t, client)
	cpu = processorTime(t, client) - cpu

	var took []time.Duration
	for range frees {
		time.Sleep(200 * time.Millisecond)
		freed := time.Now()
		held.Release()
		took = append(took, (<-admitted).Sub(freed))
		release <- struct{}{}
		for {
			held = must.Get(holder.Take(t.Context(), limit.Request{}))(t)
			if held.Allowed {
				break
			}
			select { // another waiter was faster
			case <-admitted:
				release <- struct{}{}
			case <-time.After(time.Millisecond):
			}
		}
	}
	cancel()
	close(release)
	waiters.Wait()
	held.Release()
	slices.Sort(took)
	t.Logf("%d instances wait: %.0f calls/s, %.1f %% of a processor in Redis, %.0f µs a script; a slot was admitted after %v (median), %v (99 of 100)",
		instances, (after.calls-before.calls)/seconds, cpu/seconds*100, (after.usec-before.usec)/(after.calls-before.calls),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
	require.Less(t, took[len(took)/2], time.Second, "far less than a lease lives")
}

// processorTime returns the seconds of processor time that a server has used.
func processorTime(t *testing.T, client *redis.Client) (seconds float64) {
	for line := range strings.Lines(client.Info(t.Context(), "cpu").Val()) {
		for _, field := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			if rest, ok := strings.CutPrefix(line, field); ok {
				var n float64
				must.Get(fmt.Sscan(rest, &n))(t)
				seconds += n
			}
		}
	}
	return seconds
}

// TestManyLeases holds all leases of one key for many times as long as each lives by
// itself: 1,000 of 3 s, or as many as LIMIT_PROOF_LEASES says. None is lost, and none is
// admitted beside them.
func TestManyLeases(t *testing.T) {
	client := redistest.Real(t)
	leases, windows := 1000, 3
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_LEASES")); err == nil {
		leases = n
	}
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_SECONDS")); err == nil {
		windows = n / 3
	}
	policy := bind(limit.New(redisstore.New(client, nil), nil), limit.Named("renewed", limit.Rule{Name: "slots", Key: limit.Everyone,
		Limit: int64(leases), Window: 3 * time.Second, Algorithm: limit.Concurrency{}}))
	var held []limit.Decision
	var mu sync.Mutex
	var takers sync.WaitGroup
	for range 16 {
		takers.Go(func() {
			for {
				d, err := policy.Take(t.Context(), limit.Request{})
				if err != nil || !d.Allowed {
					return
				}
				mu.Lock()
				held = append(held, d)
				mu.Unlock()
			}
		})
	}
	takers.Wait()
	require.Len(t, held, leases)

	before := scripts(t, client)
	beside := 0
	for range windows * 10 {
		time.Sleep(300 * time.Millisecond)
		d := must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		if d.Allowed {
			beside++
		}
	}
	after := scripts(t, client)
	lost := 0
	for _, d := range held {
		select {
		case <-d.Lost():
			lost++
		default:
		}
	}
	for _, d := range held {
		d.Release()
	}
	seconds := float64(windows) * 3
	t.Logf("%d leases for %d windows of 3 s: %d lost, %d admitted beside them; %.1f calls/s, %.2f ms/s in Redis", leases, windows, lost, beside,
		(after.calls-before.calls)/seconds, (after.usec-before.usec)/1000/seconds)
	require.Zero(t, lost)
	require.Zero(t, beside)
	d := must.Get(policy.Take(t.Context(), limit.Request{Cost: int64(leases)}))(t)
	require.True(t, d.Allowed, "all are released")
	d.Release()
}

// scriptStats is how many scripts a server has run, and for how long.
type scriptStats struct{ calls, usec float64 }

func scripts(t *testing.T, client *redis.Client) (s scriptStats) {
	for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			must.Get(fmt.Sscanf(rest, "calls=%f,usec=%f", &s.calls, &s.usec))(t)
		}
	}
	return s
}

// TestSlotsOutliveOutages has one process leave a lease in Redis, by a call that meets an
// outage of 700 ms, and another process wait for the slot. The lease lives for a minute.
// guard TestStall bounds the times, on a clock of its own.
func TestSlotsOutliveOutages(t *testing.T) {
	server := redistest.Launch(t)
	proxy := faultproxy.Start(t, server.Addr)
	slotOf := func(name, addr string) *limit.Policy {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr}))
		return bind(limit.New(redisstore.New(client, nil), nil), limit.Named(name, limit.Rule{Name: "slot", Key: limit.Everyone,
			Limit: 1, Window: time.Minute, Algorithm: limit.Concurrency{}, OnStoreError: limit.Refuse}))
	}
	take := func(p *limit.Policy) limit.Decision {
		t.Helper()
		d := must.Get(p.Take(t.Context(), limit.Request{}))(t)
		return d
	}
	for name, leave := range map[string]func(mine *limit.Policy){
		"release": func(mine *limit.Policy) {
			d := take(mine)
			require.True(t, d.Allowed)
			require.NoError(t, proxy.Refuse(true))
			d.Release()
		},
		"take": func(mine *limit.Policy) {
			held := take(mine)
			require.True(t, held.Allowed)
			held.Release() // the script is loaded
			proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.LoseReply}, "evalsha"))
			require.Equal(t, core.ModeRefused, take(mine).Mode)
			require.NoError(t, proxy.Refuse(true))
		},
	} {
		t.Run(name, func(t *testing.T) {
			mine, other := slotOf(name, proxy.Addr()), slotOf(name, server.Addr)
			leave(mine)
			began := time.Now()
			require.False(t, take(other).Allowed, "the lease is left")
			time.Sleep(700*time.Millisecond - time.Since(began)) // the outage
			proxy.Break(nil)
			require.NoError(t, proxy.Refuse(false))
			var d limit.Decision
			free := redistest.Await(t, 30*time.Second, "the slot", func() bool {
				d = take(other)
				return d.Allowed
			})
			assert.Equal(t, core.ModeExact, d.Mode)
			d.Release()
			t.Logf("the slot is free %v after the outage began", free.Sub(began))
		})
	}
}
