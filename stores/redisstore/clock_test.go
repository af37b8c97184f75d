package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestClock has a server with a clock that drifts and is set, and replies that take any
// time. The true difference is within the bounds at all times, but for one reply after the
// clock was set.
func TestClock(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var c clock
		offset, ppm := float64(random.Int64N(1e15)), float64(random.Int64N(1000)-500)
		now := int64(1_000_000)
		pass := func(d int64) {
			now += d
			offset += float64(d) * ppm / 1e6
		}
		for step := range 500 {
			pass(random.Int64N(1 << random.IntN(32)))
			if step%50 == 49 {
				offset += float64(random.Int64N(2e9) - 1e9)
			}
			sent := now
			pass(random.Int64N(100_000))
			server := now + int64(offset)
			pass(random.Int64N(100_000))
			c.learn(sent, now, server)
			if step%50 == 49 { // the clock was set: perhaps by no more than the uncertainty
				c.forget()
				c.learn(sent, now, server)
			}
			pass(random.Int64N(10_000_000))
			low, high := c.bounds(now)
			require.LessOrEqual(t, float64(low), offset+1, "seed %d, step %d", seed, step)
			require.GreaterOrEqual(t, float64(high), offset-1, "seed %d, step %d", seed, step)
			require.LessOrEqual(t, high-low, int64(200_000+2+2*10_000_000/drift), "one reply bounds it")
		}
	}
}

// TestClockIsSet has a reply contradict the estimate, in both directions.
func TestClockIsSet(t *testing.T) {
	for _, step := range []int64{-3600e6, 3600e6} {
		var c clock
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		latest, uncertainty := c.latest(ctx, 0)
		assert.Zero(t, latest, "unknown")
		assert.Zero(t, uncertainty)
		assert.Zero(t, c.uncertainty(0))
		c.learn(1000, 1100, 5e9)
		c.learn(2000, 2010, 5e9+1000)
		assert.EqualValues(t, 12, c.uncertainty(2010), "the tightest of both")
		c.learn(3000, 3100, 5e9+2000)
		assert.EqualValues(t, 12, c.uncertainty(3100))
		assert.EqualValues(t, 12+2*1000, c.uncertainty(3100+1000*drift))
		c.learn(4000, 4100, 5e9+3000+step)
		assert.EqualValues(t, 102, c.uncertainty(4100), "begun anew")
		latest, uncertainty = c.latest(ctx, 4100)
		assert.InDelta(t, 4100+1e6+5e9+step, latest, 500e3)
		assert.EqualValues(t, 102, uncertainty)
		latest, _ = c.latest(context.Background(), 4100)
		assert.Zero(t, latest, "no end")
	}
}

// lease returns the charge of a lease.
func lease(id uint64, limit int64) []core.Charge {
	return []core.Charge{{Rule: "slots", Cost: 1, ID: id,
		Quota: core.Quota{Algorithm: core.Concurrency, Limit: limit, Window: time.Hour.Microseconds()}}}
}

// dump returns the bytes of all keys.
func dump(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	all := make(map[string]string)
	keys := must.Get(client.Keys(t.Context(), "*").Result())(t)
	for _, key := range keys {
		if strings.Contains(key, ":token:") {
			continue
		}
		value := must.Get(client.Dump(t.Context(), key).Result())(t)
		all[key] = value
	}
	return all
}

// TestLateCall pauses the server until the callers have left. It gets to the calls then,
// and none of them changes a key. Without the deadline they would.
func TestLateCall(t *testing.T) {
	server := redistest.Launch(t)
	direct := server.Client()
	for name, client := range clients(t, server.Addr) {
		t.Run(name, func(t *testing.T) {
			store := New(client, &Options{Timeout: 50 * time.Millisecond})
			for _, charges := range [][]core.Charge{
				lease(1, 100),
				{charge("r", "k", 1000, time.Hour), charge("s", "", 1000, time.Hour)},
				{{Rule: "b", Cost: 1, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Window: 3600e6, Burst: 5}}},
			} {
				var before map[string]string
				redistest.Await(t, 30*time.Second, "the calls", func() bool {
					// A call that has to connect first, or to ask which server it is, is
					// never sent to a paused server.
					if _, err := storetest.Take(t.Context(), store, "p", charges); err != nil {
						return false
					}
					before = dump(t, direct)
					calls := evals(t, direct)
					server.Pause()
					for i := range uint64(3) {
						charges[0].ID = 2 + i
						began := time.Now()
						_, err := storetest.Take(t.Context(), store, "p", charges)
						require.ErrorIs(t, err, core.ErrOutOfReach)
						var u *core.Unanswered
						if errors.As(err, &u) {
							assert.WithinRange(t, u.Until, began.Add(50*time.Millisecond), time.Now().Add(time.Second))
						}
						assert.Equal(t, charges[0].Quota.Leases(), u != nil)
					}
					server.Resume()
					return evals(t, direct) > calls
				})
				require.Equal(t, before, dump(t, direct))
			}
		})
	}
}

// evals returns how many scripts the server has run by their hash.
func evals(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	text := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
	fmt.Sscanf(redisfacts.Lines(text)["cmdstat_evalsha"], "calls=%d", &n)
	return n
}

// TestServersClockIsSet sets the clock of the server, as the store knows it. No call
// fails, and the second call knows the new one.
func TestServersClockIsSet(t *testing.T) {
	client := redistest.Client(t)
	for _, step := range []int64{-3600e6, -1e6, 0, 1e6, 3600e6} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			store := New(client, &patient)
			take := func() {
				t.Helper()
				d := storetest.MustTake(t, store, lease(1, 10_000)...)
				require.True(t, d.Allowed)
			}
			take()
			known := recent(t, store) // a check would read the clock too
			known.clock.low -= step
			known.clock.high -= step
			sent := 0
			before(client, isTake, func(redis.Cmder) { sent++ })
			take()
			if patience := patient.Timeout.Microseconds(); step > patience {
				assert.Equal(t, 2, sent, "the first call came too late")
			} else {
				assert.Equal(t, 1, sent)
			}
			at := client.Time(t.Context()).Val().UnixMicro()
			low, high := known.clock.bounds(localTime())
			assert.InDelta(t, at, localTime()+(low+high)/2, 60e6)
		})
	}
}

// TestRunawayClock has a server that is late for each call, and says so: none is decided,
// and each says that it took nothing.
func TestRunawayClock(t *testing.T) {
	client := redistest.Client(t)
	before(client, isTake, func(cmd redis.Cmder) { cmd.Args()[3+cmd.Args()[2].(int)+1] = 1 })
	store := New(client, &patient)
	_, err := storetest.Take(t.Context(), store, "p", lease(1, 10))
	require.ErrorIs(t, err, errLate)
	require.ErrorIs(t, err, core.ErrOutOfReach)
	var u *core.Unanswered
	require.False(t, errors.As(err, &u))
	require.Empty(t, dump(t, client))
}

// TestUnanswered lists the errors of a Take of a lease that may have taken it.
func TestUnanswered(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	for name, test := range map[string]struct {
		fault faultproxy.Fault
		want  bool
	}{
		"a lost reply":  {faultproxy.Fault{Kind: faultproxy.LoseReply}, true},
		"a cut request": {faultproxy.Fault{Kind: faultproxy.CutRequest, At: 20}, true},
		"no reply":      {faultproxy.Fault{Kind: faultproxy.NoReply}, true},
		"another reply": {faultproxy.Fault{Kind: faultproxy.Forge, Reply: "*2\r\n:1\r\n:2\r\n"}, true},
		"loading":       {faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-LOADING\r\n"}, false},
		"busy":          {faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-BUSY\r\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
			store := New(client, &Options{Timeout: 200 * time.Millisecond})
			redistest.Await(t, 10*time.Second, "a decision", func() bool {
				_, err := storetest.Take(t.Context(), store, "p", lease(1, 100))
				return err == nil
			})
			proxy.Break(faultproxy.On(test.fault, "evalsha"))
			defer proxy.Break(nil)
			began := time.Now()
			_, err := storetest.Take(t.Context(), store, "p", lease(2, 100))
			require.ErrorIs(t, err, core.ErrUnavailable)
			var u *core.Unanswered
			require.Equal(t, test.want, errors.As(err, &u))
			if test.want {
				assert.GreaterOrEqual(t, u.Until.Sub(began), 200*time.Millisecond)
			}
		})
	}
}

// TestFirstCall holds that the first call has a deadline if the server's identity comes
// with its time. Otherwise it has none, and is decided all the same.
func TestFirstCall(t *testing.T) {
	for _, withheld := range [][]string{nil, {"info"}} {
		t.Run(fmt.Sprint(withheld), func(t *testing.T) {
			server := redistest.Launch(t, user(withheld...)...)
			client := asUser(t, server.Addr)
			var deadlines []int64
			before(client, isTake, func(cmd redis.Cmder) { deadlines = append(deadlines, cmd.Args()[3+cmd.Args()[2].(int)+1].(int64)) })
			store := New(client, &patient)
			for range 2 {
				d := storetest.MustTake(t, store, lease(1, 10)...)
				require.True(t, d.Allowed)
			}
			require.Len(t, deadlines, 3, "one more for a script that is not loaded")
			end := client.Time(t.Context()).Val().Add(patient.Timeout).UnixMicro()
			for i, deadline := range deadlines {
				if withheld != nil && i < 2 {
					assert.Zero(t, deadline)
				} else {
					assert.InDelta(t, end, deadline, 30e6)
				}
			}
		})
	}
}

// TestUncertainServer has servers that were last called long ago. A call may run late by
// the uncertainty about its own server when it was sent: neither by that of another
// server, nor by less if another call has been answered meanwhile.
func TestUncertainServer(t *testing.T) {
	const day = 24 * time.Hour
	direct := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: direct.Options().Addr, ContextTimeoutEnabled: true}))
	var store *Store
	var own *server
	lost := false
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if lost && isTake(cmd) {
			now := localTime()
			own.clock.learn(now, now, now) // another call
			return context.DeadlineExceeded
		}
		return err
	}))
	store = New(client, &Options{Timeout: 10 * time.Second})
	storetest.MustTake(t, store, lease(1, 100)...)
	own, _ = store.knownServerOf("k")
	other := new(server)
	other.clock.learn(0, 0, 0)
	other.clock.at -= day.Microseconds()
	store.servers.Store("127.0.0.1:1", other)

	lost = true
	for _, idle := range []time.Duration{day, 0} {
		own.clock.at -= idle.Microseconds()
		began := time.Now()
		_, err := storetest.Take(t.Context(), store, "p", lease(2, 100))
		var u *core.Unanswered
		require.ErrorAs(t, err, &u)
		late := u.Until.Sub(began) - store.timeout()
		assert.InDelta(t, 2*idle/drift, late, float64(10*time.Second))
	}
	assert.Less(t, store.uncertainty("k"), time.Second.Microseconds())
}
