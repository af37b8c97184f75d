package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

func charge(rule, key string, limit int64, window time.Duration) core.Charge {
	return core.Charge{Rule: rule, Key: key, Cost: 1, Quota: core.Quota{Limit: limit, Window: window.Microseconds()}}
}

// hook lets a test stand between the store and Redis.
type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var once sync.Once
		var sent error
		for _, cmd := range cmds {
			err := h(ctx, cmd, func(context.Context, redis.Cmder) error {
				once.Do(func() { sent = next(ctx, cmds) })
				return cmp.Or(cmd.Err(), sent)
			})
			sent = cmp.Or(sent, err)
		}
		return sent
	}
}
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// before calls f with each command of a kind, before the client sends it.
func before(client redis.UniversalClient, kind func(redis.Cmder) bool, f func(redis.Cmder)) {
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if kind(cmd) {
			f(cmd)
		}
		return next(ctx, cmd)
	}))
}

// Kinds of commands.
func every(redis.Cmder) bool { return true }

func is(name string) func(redis.Cmder) bool {
	return func(cmd redis.Cmder) bool { return cmd.Name() == name }
}

func isTake(cmd redis.Cmder) bool {
	return cmd.Name() == "evalsha" || cmd.Name() == "eval" && cmd.Args()[1] != lua.TokenScript().Text
}

func TestServerTimeDecides(t *testing.T) {
	client := redistest.Client(t)
	var now []any
	before(client, isTake, func(cmd redis.Cmder) {
		keys := cmd.Args()[2].(int)
		now = append(now, cmd.Args()[3+keys])
	})
	before := client.Time(t.Context()).Val().UnixMicro()
	d := storetest.MustTake(t, New(client, &patient), charge("r", "k", 5, time.Second))
	after := client.Time(t.Context()).Val().UnixMicro()
	assert.True(t, before <= d.At && d.At <= after, "%d ≤ %d ≤ %d", before, d.At, after)
	assert.Equal(t, "", slices.Max([]string{now[0].(string)}), "no time of the client may reach the script")
}

func TestOneRoundTrip(t *testing.T) {
	client := redistest.Client(t)
	var calls atomic.Int64
	before(client, every, func(redis.Cmder) { calls.Add(1) })
	store := New(client, &patient)
	for rules := 1; rules <= core.MaxCharges; rules++ {
		var charges []core.Charge
		for r := range rules {
			charges = append(charges, charge(fmt.Sprint("r", r), "k", 100+int64(r)*10, time.Minute))
		}
		storetest.MustTake(t, store, charges...) // loads the script at first
		recent(t, store)
		calls.Store(0)
		storetest.MustTake(t, store, charges...)
		assert.EqualValues(t, 1, calls.Load(), "%d rules", rules)
	}
}

func TestEveryKeyExpires(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	take := func(cost int64, limits ...int64) {
		var charges []core.Charge
		for i, limit := range limits {
			c := charge(fmt.Sprint("r", i, "-", limit), "k", limit, 10*time.Second)
			c.Cost = cost
			charges = append(charges, c)
		}
		storetest.MustTake(t, store, charges...)
		keys := client.Keys(t.Context(), "limit:1:{*").Val()
		for _, key := range keys {
			ttl := client.PTTL(t.Context(), key).Val()
			assert.True(t, 0 < ttl && ttl <= 21*time.Second, "%s lives %v", key, ttl)
		}
	}
	take(0, 1, 1000) // a peek creates no key
	assert.Empty(t, client.Keys(t.Context(), "limit:1:{*").Val())
	take(1, 1, 1000)
	take(1, 1, 1000) // refused
	take(1, 3)
	take(7, 500)
	take(0, 500)
	assert.Len(t, client.Keys(t.Context(), "limit:1:{*").Val(), 4)

	// A ring without a TTL gets one again in the next window.
	var now = start
	store = at(client, &now)
	one := []core.Charge{charge("immortal", "k", 1000, time.Second)}
	storetest.MustTake(t, store, one...)
	key := lua.Key("limit", named("p", "immortal", "k"))
	require.True(t, client.Persist(t.Context(), key).Val())
	now += 1_000_000
	storetest.MustTake(t, store, one...)
	assert.Positive(t, client.PTTL(t.Context(), key).Val())
}

func TestScriptFlushed(t *testing.T) {
	client := redistest.Real(t) // miniredis has no run id: a flush is a restart to a store
	store := New(client, &patient)
	charges := []core.Charge{charge("r", "k", 100, time.Minute)}
	for i := range 10 {
		d := storetest.MustTake(t, store, charges...)
		assert.EqualValues(t, 99-i, d.Outcomes()[0].Remaining, "each counts once")
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
}

// TestForeignValues puts values under our keys that are not ours: only the
// decisions that need them fail, also within one batch, and nothing changes.
func TestForeignValues(t *testing.T) {
	client := redistest.Client(t)
	ctx := t.Context()
	for _, limit := range []int64{5, 1000} {
		bad := func(i int) string { return lua.Key("limit", named("p", "ip", fmt.Sprint("bad", i))) }
		values := []string{"", "x", "hello, world: 1234567890123456789012345678901234567890",
			"a1234567", "a12345671234", "a1234567123", "b1234567123456", "c12345678901234567890123456789", "d" + strings.Repeat("\xff", 100),
			"c" + strings.Repeat("\x00", 40), strings.Repeat("\x00", 40)}
		require.NoError(t, client.HSet(ctx, bad(0), "f", "v").Err())
		require.NoError(t, client.ZAdd(ctx, bad(1), redis.Z{Member: "m"}).Err())
		require.NoError(t, client.RPush(ctx, bad(2), "v").Err())
		wrongType := 3
		for i, v := range values {
			require.NoError(t, client.Set(ctx, bad(wrongType+i), v, 0).Err())
		}

		encoder := lua.NewRules("limit", ask([]core.Charge{charge("ip", "", limit, time.Minute), charge("all", "", 1000, time.Minute)}))
		var batch [][]core.Ask
		for i := range wrongType + len(values) {
			batch = append(batch,
				ask([]core.Charge{charge("ip", fmt.Sprint("bad", i), limit, time.Minute), charge("all", "", 1000, time.Minute)}),
				ask([]core.Charge{charge("ip", fmt.Sprint("good", i), limit, time.Minute), charge("all", "", 1000, time.Minute)}))
		}
		before := client.Dump(ctx, bad(0)).Val()
		reply, _, err := New(client, &patient).decide(ctx, encoder, batch, nil, false)
		require.NoError(t, err)
		admitted := int64(0)
		require.NoError(t, encoder.Decode(reply, batch, func(i int, err error) {
			d := &batch[i][0].Decision
			if i%2 == 1 { // a neighbour
				require.NoError(t, err)
				assert.True(t, d.Allowed)
				admitted++
				assert.EqualValues(t, 1000-admitted, d.Outcomes()[1].Remaining, "the bad ones spent nothing")
				return
			}
			if i/2 < wrongType {
				assert.ErrorIs(t, err, lua.ErrValue, "bad %d", i/2)
				assert.ErrorContains(t, err, bad(i/2))
				return
			}
			// Bytes that happen to be a log are one; all else is an error.
			if err == nil {
				admitted += map[bool]int64{true: 1}[d.Allowed]
			} else {
				assert.ErrorIs(t, err, lua.ErrValue)
			}
		}))
		assert.Equal(t, before, client.Dump(ctx, bad(0)).Val())
		assert.Equal(t, "hash", client.Type(ctx, bad(0)).Val())
		require.NoError(t, client.FlushDB(ctx).Err())
	}
}

// lossy loses replies to the script: it reads them, and reports a broken
// connection from then on.
type lossy struct {
	net.Conn
	lose *atomic.Int64 // replies that are still to be lost
	sent bool
	lost bool
}

func (c *lossy) Write(p []byte) (int, error) {
	c.sent = bytes.Contains(p, []byte("evalsha"))
	return c.Conn.Write(p)
}

func (c *lossy) Read(p []byte) (int, error) {
	if c.lost {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	if n > 0 && c.sent && c.lose.Add(-1) >= 0 {
		c.lost = true
		return 0, io.EOF
	}
	return n, err
}

func lossyClient(t *testing.T, direct *redis.Client, lose *atomic.Int64) *redis.Client {
	options := redis.Options{Addr: direct.Options().Addr, DB: direct.Options().DB, ReadTimeout: time.Minute}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &lossy{Conn: conn, lose: lose}, err
	}
	client := redistest.Closing(t, redis.NewClient(&options))
	return client
}

// TestNotRepeated loses replies: go-redis would send the script again, up to
// three times, and count a request four times.
func TestNotRepeated(t *testing.T) {
	direct := redistest.Client(t)
	var lose atomic.Int64
	store := New(lossyClient(t, direct, &lose), &patient)
	charges := []core.Charge{charge("r", "k", 100, time.Minute)}
	storetest.MustTake(t, store, charges...) // loads the script

	lose.Store(1)
	_, err := storetest.Take(t.Context(), store, "p", charges)
	require.Error(t, err)
	d := storetest.MustTake(t, New(direct, &patient), charges...)
	assert.EqualValues(t, 100-3, d.Outcomes()[0].Remaining, "one call, one charge")
}

func TestPoliciesAreBounded(t *testing.T) {
	store := New(redis.NewClient(&redis.Options{}), nil)
	for i := range 3 * maxPolicies {
		store.batcher([]core.Ask{{Charges: storetest.Of(fmt.Sprint(i), charge("r", "", 1, time.Second))}})
	}
	for i := range 100 {
		store.batcher(ask([]core.Charge{charge("r", "", int64(i+1), time.Second)}))
	}
	assert.LessOrEqual(t, len(store.policies), maxPolicies+1)
	assert.LessOrEqual(t, len(store.policies["p"]), maxVariants)
}

// TestVariants has more rule sets of a policy than are kept: those in use stay.
func TestVariants(t *testing.T) {
	store := New(redis.NewClient(&redis.Options{}), nil)
	plan := func(i int) *batcher {
		return store.batcher(ask([]core.Charge{charge("r", "", int64(i+1), time.Second)}))
	}
	var used []*batcher
	for i := range maxVariants / 2 {
		used = append(used, plan(i))
	}
	for i := range 10 * maxVariants {
		plan(1000 + i)
		for j, b := range used {
			require.Same(t, b, plan(j), "after %d others", i)
		}
	}
	assert.Len(t, store.policies["p"], maxVariants)
	assert.Equal(t, maxVariants, store.batchers)
	for i := range maxPolicies * usual / maxVariants {
		for j := range maxVariants {
			store.batcher([]core.Ask{{Charges: storetest.Of(fmt.Sprint(i), charge("r", "", int64(j+1), time.Second))}})
			require.LessOrEqual(t, store.batchers, maxPolicies*usual)
		}
	}
	n := 0
	for _, variants := range store.policies {
		n += len(variants)
	}
	assert.Equal(t, n, store.batchers)
}
