package proof

import (
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
