package guard

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// TestRedisKilled kills Redis and starts it again without its data. No caller gets an
// error, and the limit holds throughout.
func TestRedisKilled(t *testing.T) {
	server := redistest.Launch(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	s := New(redisstore.New(client, &redisstore.Options{Timeout: 10 * time.Second}), &Options{Slow: 10 * time.Second})
	charges := []core.Charge{{Rule: "r", Quota: core.Quota{Limit: 300, Window: 3600_000_000}, Cost: 1}}
	admitted := 0
	take := func() core.Mode {
		d := storetest.MustTake(t, s, charges...)
		if d.Allowed {
			admitted += int(charges[0].Cost)
		}
		return d.Mode
	}
	owes := func() bool { // and one request is about to find out what Redis has lost
		s.debts.mu.Lock()
		defer s.debts.mu.Unlock()
		return len(s.debts.keys)+len(s.raises.next) > 0
	}
	until := func(mode core.Mode) {
		t.Helper()
		end := time.Now().Add(10 * time.Second)
		for take() != mode || mode == core.ModeExact && owes() {
			require.True(t, time.Now().Before(end), "no decision is %v", mode)
		}
	}
	for range 3 {
		for range 20 {
			assert.Equal(t, core.ModeExact, take())
		}
		server.Kill()
		for range 20 {
			assert.Equal(t, core.ModeLocal, take())
		}
		server.Restart()
		charges[0].Cost = 0
		until(core.ModeExact)
		charges[0].Cost = 1
	}
	for range 300 {
		take()
	}
	assert.Equal(t, 300, admitted)
}

// TestTwoGuards restarts Redis without its data behind two guards on one store. The store
// returns one error, and both learn of it.
func TestTwoGuards(t *testing.T) {
	server := redistest.Launch(t)
	store := redisstore.New(redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr})), nil)
	guards := []*Store{New(store, &Options{Instances: 2, Log: nowhere}), New(store, &Options{Instances: 2, Log: nowhere})}
	admitted := 0
	take := func(guard, n int) {
		for range n {
			d := storetest.MustTake(t, guards[guard], core.Charge{Rule: "r", Quota: core.Quota{Limit: 30, Window: 3600_000_000}, Cost: 1})
			if d.Allowed {
				admitted++
			}
		}
	}
	take(0, 20)
	take(1, 10)
	server.Kill()
	server.Restart()
	for end := time.Now().Add(10 * time.Second); ; {
		look := core.Charge{Rule: "other", Quota: core.Quota{Limit: 30, Window: 3600_000_000}}
		if d := storetest.MustTake(t, guards[0], look); d.Mode == core.ModeExact {
			break
		}
		require.True(t, time.Now().Before(end))
	}
	take(0, 40)
	take(1, 40)
	assert.Equal(t, 30, admitted, "each charges what it has taken")
}
