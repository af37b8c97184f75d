package proof

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

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
