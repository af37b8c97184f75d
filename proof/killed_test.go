package proof

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/redisstore"
)

// A taken request is how one went.
type taken struct {
	at, took time.Duration // since the beginning
	mode     limit.Mode
	allowed  bool // of the few
}

// TestKilledUnderLoad kills Redis under load, and starts it again on the same
// port without its data. It prints what that adds to requests; what must hold is
// that no request fails, and that the limit does.
func TestKilledUnderLoad(t *testing.T) {
	server := redistest.NewMortal(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	limiter := limit.New(redisstore.New(client, nil), nil)
	load := limit.Named("load", limit.PerUser(time.Hour, 50_000), limit.Global(time.Hour, 100_000))
	few := limit.Named("few", limit.Global(time.Hour, 500))

	const callers = 16
	var failed, stop atomic.Int64
	var all sync.WaitGroup
	of := make([][]taken, callers)
	began := time.Now()
	for caller := range callers {
		all.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for i := 0; stop.Load() == 0; i++ {
				rules := load
				if i%8 == 0 {
					rules = few
				}
				at := time.Since(began)
				d, err := limiter.Take(context.Background(), rules, limit.Keys{"user": fmt.Sprint(caller % 4)})
				if err != nil {
					failed.Add(1)
				}
				of[caller] = append(of[caller], taken{at, time.Since(began) - at, d.Mode, d.Allowed && i%8 == 0})
				<-tick.C
			}
		})
	}
	phase := proofTime()
	time.Sleep(phase / 2)
	killed := time.Since(began)
	server.Kill()
	time.Sleep(phase)
	server.Start()
	back := time.Since(began)
	time.Sleep(phase)
	stop.Store(1)
	all.Wait()

	var before, while, after []time.Duration
	modes := make(map[limit.Mode]int)
	admitted, exact := 0, time.Duration(0)
	for _, r := range slices.Concat(of...) {
		modes[r.mode]++
		if r.allowed {
			admitted++
		}
		switch {
		case r.at+r.took < killed:
			before = append(before, r.took)
		case r.at < back:
			while = append(while, r.took)
		default:
			after = append(after, r.took)
			if r.mode == limit.ModeExact && (exact == 0 || r.at < exact) {
				exact = r.at
			}
		}
	}
	for name, took := range map[string][]time.Duration{"before": before, "while": while, "after": after} {
		slices.Sort(took)
		t.Logf("%s: %d requests, p50 %v, p99 %v, max %v", name, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
	t.Logf("%v; %d of 500 admitted; %d failed; the store decides again %v after it is back", modes, admitted, failed.Load(), exact-back)
	require.Zero(t, failed.Load())
	require.Equal(t, 500, admitted)
	require.Positive(t, modes[limit.ModeLocal])
	require.Positive(t, exact, "the store is used again")
	require.Less(t, exact-back, time.Second)
}
