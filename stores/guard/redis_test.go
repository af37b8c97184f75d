package guard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// patient is for tests that are not about time: the machine may be loaded. So is a guard with Slow.
var patient = redisstore.Options{Timeout: time.Minute}

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
	admitted := 0
	for range 3 { // on a busy machine the second guard may be late: it is promised within a second
		if admitted = admittedByTwo(t); admitted == 30 {
			return
		}
	}
	assert.Equal(t, 30, admitted, "each charges what it has taken")
}

// admittedByTwo returns how many requests two guards admit around a loss of data.
func admittedByTwo(t *testing.T) (admitted int) {
	server := redistest.Launch(t)
	store := redisstore.New(redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr})), &patient)
	guards := []*Store{New(store, &Options{Instances: 2, Slow: time.Minute, Log: nowhere}), New(store, &Options{Instances: 2, Slow: time.Minute, Log: nowhere})}
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
	return admitted
}

// TestEmptiedUnderTraffic empties Redis behind three guards with requests all the time, each
// with a store and a client of its own. No call fails. Usually each charges what it had taken. At
// worst what two of them had taken is admitted once more: the units of one are there again.
func TestEmptiedUnderTraffic(t *testing.T) {
	const limit = 3000
	for _, how := range []string{"flushall", "flushdb"} {
		server := redistest.Launch(t)
		var admitted atomic.Int64
		var refused [3]atomic.Int64 // in a row, by Redis alone
		var stores [3]*redisstore.Store
		var done sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		for i := range stores {
			stores[i] = redisstore.New(redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr})), &patient)
			g := New(stores[i], &Options{Instances: 3, Slow: time.Minute, Log: nowhere})
			for range 2 {
				done.Go(func() {
					for ctx.Err() == nil {
						asks := []core.Ask{{Charges: []core.Charge{{Rule: "r", Quota: core.Quota{Limit: limit, Window: 3600_000_000}, Cost: 1}}}}
						err := g.Take(t.Context(), asks)
						switch d := &asks[0].Decision; {
						case !assert.NoError(t, err):
							return
						case d.Allowed:
							admitted.Add(1)
							refused[i].Store(0)
						case d.Mode == core.ModeExact:
							refused[i].Add(1)
						}
					}
				})
			}
		}
		settled := func(losses int64) func() bool {
			return func() bool {
				for i := range stores {
					if stores[i].Losses() != losses || refused[i].Load() < 200 {
						return false
					}
				}
				return true
			}
		}
		redistest.Await(t, 20*time.Second, "the limit", settled(0))
		require.EqualValues(t, limit, admitted.Load())
		began := time.Now()
		require.NoError(t, server.Client().Do(t.Context(), how).Err())
		for i := range refused {
			refused[i].Store(0)
		}
		at := redistest.Await(t, 20*time.Second, "decisions by the restored counts", settled(1))
		end()
		done.Wait()
		t.Logf("%s: %d admitted of %d; all decide by the restored counts %v after it", how, admitted.Load(), limit, at.Sub(began))
		assert.LessOrEqual(t, admitted.Load(), int64(limit+limit*2/3+100))
	}
}

// TestTokenDeleted deletes the token beside living data, as an eviction may. Nothing is charged
// again, and nothing is admitted once more.
func TestTokenDeleted(t *testing.T) {
	client := redistest.Real(t)
	for _, q := range algorithms {
		for _, instances := range []int{1, 3} {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			store := redisstore.New(client, &patient)
			g := New(store, &Options{Instances: instances, Slow: time.Minute, Log: nowhere})
			c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: 1}
			for range 30 {
				require.True(t, storetest.MustTake(t, g, c).Allowed)
			}
			require.EqualValues(t, 1, client.Del(t.Context(), "limit:1:token:{p}::").Val())
			c.Cost = 0
			redistest.Await(t, 10*time.Second, "a report of the loss, and its end", func() bool {
				_ = store.Suspect(t.Context(), c)
				d := storetest.MustTake(t, g, c)
				return store.Losses() > 0 && d.Mode == core.ModeExact && g.doubtful([]core.Charge{c}, g.now()) == 0
			})
			assert.InDelta(t, 60, remaining(t, store, c), 1, "%v, %d instances", q.Algorithm, instances) // a bucket refills
		}
	}
}

// TestSettledHoldsAreNoLoss settles holds at a part of what they took. The store then counts less
// than the memory, and has lost nothing: no call waits for a check, and no key is marked.
func TestSettledHoldsAreNoLoss(t *testing.T) {
	for _, instances := range []int{1, 3} {
		client := redistest.Client(t)
		g := New(redisstore.New(client, &patient), &Options{Instances: instances, Log: nowhere})
		asked := 0
		g.doubts.suspect = func(context.Context, core.Charge) error { asked++; return nil }
		g.debts.after = func(_ time.Duration, f func()) { f() }
		c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: core.Quota{Limit: 10_000, Window: 3600_000_000}, Cost: 100}
		for i := range 5 {
			h, ask := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MaxHold}, core.Ask{Charges: []core.Charge{c}}
			require.NoError(t, g.Hold(t.Context(), &ask, &h))
			require.True(t, ask.Decision.Allowed)
			must.Get(g.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID}}))(t)
		}
		c.Cost = 0
		require.Equal(t, c.Quota.Limit, remaining(t, g.store, c))
		assert.Zero(t, asked, "%d instances", instances)
		assert.Zero(t, client.Exists(t.Context(), lua.MarkKey("limit", &c)).Val(), "%d instances", instances)
	}
}
