package proof

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestEviction floods a small Redis with random keys under each eviction policy. It
// requests a limited key (5 in 10 minutes) before, between and after the floods.
// LIMIT_EVICTION is the number of keys in a flood, of which Redis has room for two thirds.
// Where Redis evicts, admissions are logged and have no bound: see docs/eviction.md.
func TestEviction(t *testing.T) {
	keys := 1_500
	if n, err := strconv.Atoi(os.Getenv("LIMIT_EVICTION")); err == nil {
		keys = n
	}
	if !redistest.Installed(t) {
		t.Skip("no redis-server is installed")
	}
	limitctl := buildLimitctl(t)
	const most = 5
	rule := limit.Rule{Name: "r", Key: limit.ByUser, Limit: most, Window: 10 * time.Minute}
	set := limit.Named("p", rule)
	for _, policy := range []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random",
		"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		server := redistest.Launch(t, "--maxmemory-policy", policy)
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
		store := redisstore.New(client, nil)
		p := bind(limit.New(store, nil), set)

		var admitted, alone, errors atomic.Int64
		modes := make(map[core.Mode]int)
		ask := func(times int) {
			for range times {
				d, err := p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}})
				if err != nil {
					errors.Add(1)
				}
				if d.Allowed {
					admitted.Add(1)
				}
				// The same request to the store without the guard, with a key of its own.
				direct, err := core.Take(t.Context(), store, storetest.Of("q", []core.Charge{{Rule: "r", Key: "alice", Cost: 1,
					Quota: core.Quota{Limit: most, Window: rule.Window.Microseconds()}}}...))
				if err == nil && direct.Allowed {
					alone.Add(1)
				}
			}
		}
		var mu sync.Mutex
		flood := func(n int) {
			var done sync.WaitGroup
			for range 16 {
				done.Go(func() {
					for range n / 16 {
						d, err := p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": fmt.Sprint(rand.Uint64())}})
						if err != nil {
							errors.Add(1)
						}
						mu.Lock()
						modes[d.Mode]++
						mu.Unlock()
					}
				})
			}
			done.Wait()
		}
		used := usedMemory(t, client)
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used+keys*1_000/6)).Err())
		ask(2 * most)
		for range 3 {
			flood(keys)
			ask(2 * most)
		}
		evicted := info(t, client, "stats", "evicted_keys")
		said, _ := exec.Command(limitctl, "doctor", "--redis", "redis://"+server.Addr).CombinedOutput()
		verdict := doctorOn(string(said), "eviction")
		t.Logf("%s: of %d admitted %d, without the guard %d; errors %d; %d keys evicted; new keys %v; doctor: %s",
			policy, most, admitted.Load(), alone.Load(), errors.Load(), evicted, modes, verdict)
		assert.Zero(t, errors.Load(), policy)
		if policy == "noeviction" {
			assert.Zero(t, evicted)
			assert.EqualValues(t, most, admitted.Load())
			assert.LessOrEqual(t, alone.Load(), int64(most))
			assert.Positive(t, modes[core.ModeLocal], "new keys are decided by this process")
			assert.Contains(t, verdict, "ok eviction")
			assert.Contains(t, string(said), "OOM")
			continue
		}
		assert.Positive(t, evicted)
		assert.GreaterOrEqual(t, admitted.Load(), int64(most))
		assert.Contains(t, verdict, "fail eviction")
	}
}

// doctorOn returns what the doctor says about a check.
func doctorOn(said, check string) string {
	for line := range strings.Lines(said) {
		if words := strings.Fields(line); len(words) > 1 && words[1] == check {
			return strings.Join(words, " ")
		}
	}
	return ""
}

func usedMemory(t *testing.T, client *redis.Client) int {
	return info(t, client, "memory", "used_memory")
}

func info(t *testing.T, client *redis.Client, section, name string) int {
	for line := range strings.Lines(client.Info(t.Context(), section).Val()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n := must.Get(strconv.Atoi(text))(t)
			return n
		}
	}
	t.Fatalf("no %s", name)
	return 0
}
