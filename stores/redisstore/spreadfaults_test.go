package redisstore

import (
	"context"
	"fmt"
	"strconv"
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
	"github.com/routelimit/limit/stores/storetest"
)

// spreading returns a store that spreads over 16 parts.
func spreading(client redis.UniversalClient) *Store {
	return New(client, &Options{Timeout: time.Minute, Spread: 16})
}

// twoParts returns charges of two rules in different parts: 10 units and one.
func twoParts() []core.Charge {
	return []core.Charge{charge("wide", "a", 10, time.Hour), charge("narrow", "b", 1, time.Hour)}
}

// left returns what remains of a charge's quota.
func left(t *testing.T, store core.Store, c core.Charge) int64 {
	t.Helper()
	c.Cost = 0
	d := storetest.MustTake(t, store, c)
	return d.Outcomes()[0].Remaining
}

func isReturn(cmd redis.Cmder) bool {
	returns := []core.Return{{Charge: twoParts()[0]}}
	call := lua.NewReturns("", "", 0, returns, false)
	return isTake(cmd) && (cmd.Args()[1] == call.One.SHA || cmd.Args()[1] == call.Script.SHA)
}

func TestSpreadIsEven(t *testing.T) {
	store := spreading(redis.NewClient(&redis.Options{}))
	counts := make(map[*part]int)
	for i := range 16_000 {
		counts[store.partOf(fmt.Sprintf("203.0.%d.%d", i/256, i%256))]++
	}
	assert.Len(t, counts, 16)
	for _, n := range counts {
		assert.InDelta(t, 1000, n, 200)
	}
	// The parts are part of the stored form: keys must be found again.
	assert.Equal(t, "limit{0/16", store.partOf("a").prefix)
	assert.Equal(t, "limit{9/16", store.partOf("b").prefix)
	for _, spread := range []int{-1, lua.MaxParts + 1} {
		assert.PanicsWithValue(t, fmt.Sprintf("redisstore: Spread %d: write the number of parts, up to 256, or 0 to keep a policy in one slot", spread),
			func() { New(redis.NewClient(&redis.Options{}), &Options{Spread: spread}) })
	}
}

// TestSpreadCalls counts the calls of a decision.
func TestSpreadCalls(t *testing.T) {
	client := redistest.Client(t)
	var held [4]*redis.Conn // as many connections as two parts and a check need
	for i := range held {
		held[i] = client.Conn()
		require.NoError(t, held[i].Ping(t.Context()).Err())
	}
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	var calls atomic.Int64
	before(client, every, func(redis.Cmder) { calls.Add(1) })
	store := spreading(client)
	storetest.Take(t.Context(), store, "warm", twoParts())
	storetest.Take(t.Context(), store, "warm", twoParts()) // loads the scripts
	recent(t, store)
	one := []core.Charge{charge("r", "k", 5, time.Hour), charge("s", "k", 5, time.Hour)}
	for name, c := range map[string]struct {
		charges []core.Charge
		want    []int64
	}{
		"keys of one part":  {one, []int64{1, 1}},
		"keys of two parts": {twoParts(), []int64{2, 4}}, // refused: given back, and looked at
	} {
		for i, want := range c.want {
			calls.Store(0)
			storetest.MustTake(t, store, c.charges...)
			assert.Equal(t, want, calls.Load(), "%s: decision %d", name, i)
		}
	}
}

// TestSpreadTimes has a clock that every call finds further on, as servers have
// one each.
func TestSpreadTimes(t *testing.T) {
	store := spreading(redistest.Client(t))
	now := start
	var clock atomic.Int64
	store.now = func() string { return strconv.FormatInt(now+clock.Add(1), 10) }
	store.grace = int(time.Hour / time.Millisecond)
	charges := twoParts()
	d := storetest.MustTake(t, store, charges...)
	require.True(t, d.Allowed)
	first, second := d.TimeOf(0), d.TimeOf(1)
	require.NotEqual(t, first, second)
	require.Equal(t, max(first, second), d.At)
	given := must.Get(storetest.Return(t.Context(), store, "p", []core.Return{{Charge: charges[1], At: second}, {Charge: charges[0], At: first}}))(t)
	require.Equal(t, []int64{1, 1}, given)
}

// TestSpreadErrors has one part fail, in several ways: what the other took is
// given back.
func TestSpreadErrors(t *testing.T) {
	client := redistest.Real(t) // one that tells its run id: only then is nothing in doubt after an error
	direct := New(client, &Options{Timeout: time.Minute, Spread: 16})
	var fault func(cmd redis.Cmder) error
	broken := redistest.Closing(t, redis.NewClient(client.Options()))
	broken.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if err := fault(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}))
	store := spreading(broken)
	charges := twoParts()
	narrow := lua.Key(store.partOf("b").prefix, named("p", "narrow", "b"))
	toNarrow := func(cmd redis.Cmder) bool { return isTake(cmd) && cmd.Args()[3] == narrow }
	for name, c := range map[string]struct {
		fault func(cmd redis.Cmder) error
		check func(error)
	}{
		"the infrastructure": {func(cmd redis.Cmder) error {
			if toNarrow(cmd) {
				return scriptFault("CLUSTERDOWN no")
			}
			return nil
		}, func(err error) { assert.ErrorIs(t, err, core.ErrUnavailable) }},
		"a hook panics": {func(cmd redis.Cmder) error {
			if toNarrow(cmd) {
				panic("hook")
			}
			return nil
		}, func(err error) { assert.ErrorIs(t, err, errPanicked) }},
		"a foreign value, and the other part is down": {func(cmd redis.Cmder) error {
			if isTake(cmd) && !isReturn(cmd) && !toNarrow(cmd) {
				return scriptFault("CLUSTERDOWN no")
			}
			require.NoError(t, client.HSet(t.Context(), narrow, "f", "v").Err())
			return nil
		}, func(err error) {
			assert.ErrorIs(t, err, lua.ErrValue)
			assert.NotErrorIs(t, err, core.ErrUnavailable, "a client could have caused it")
		}},
		"a foreign value": {func(redis.Cmder) error {
			return client.HSet(t.Context(), narrow, "f", "v").Err()
		}, func(err error) { assert.ErrorIs(t, err, lua.ErrValue) }},
	} {
		t.Run(name, func(t *testing.T) {
			deleteStates(t, client)
			fault = c.fault
			for range 5 {
				_, err := storetest.Take(t.Context(), store, "p", charges)
				require.Error(t, err)
				c.check(err)
			}
			assert.EqualValues(t, 10, left(t, direct, charges[0]))
			assert.Zero(t, store.Unreturned())
		})
	}
	t.Run("the way back", func(t *testing.T) {
		deleteStates(t, client)
		fault = func(cmd redis.Cmder) error {
			if isReturn(cmd) {
				return scriptFault("CLUSTERDOWN no")
			}
			return nil
		}
		for i := range 4 {
			d := storetest.MustTake(t, store, charges...)
			assert.Equal(t, i == 0, d.Allowed)
		}
		assert.EqualValues(t, 6, left(t, direct, charges[0]), "what cannot be given back stays taken")
		assert.EqualValues(t, 3, store.Unreturned())
	})
}

// TestSpreadGone has the caller leave while units are given back.
func TestSpreadGone(t *testing.T) {
	client := redistest.Client(t)
	ctx, leave := context.WithCancel(t.Context())
	back := make(chan struct{})
	before(client, isReturn, func(redis.Cmder) {
		leave()
		<-back
	})
	store := spreading(client)
	charges := twoParts()
	storetest.MustTake(t, store, charges...)
	_, err := storetest.Take(ctx, store, "p", charges)
	require.ErrorIs(t, err, context.Canceled)
	clear(charges) // the caller takes its slice away
	close(back)
	redistest.Await(t, 20*time.Second, "the unit is given back", func() bool { return left(t, store, twoParts()[0]) == 9 })
}

// TestSpreadShardDown kills a primary and its replica: decisions that need it are
// errors of the infrastructure, and the others go on.
func TestSpreadShardDown(t *testing.T) {
	nodes := redistest.StartCluster(t, time.Second)
	client := nodes.Client(t)
	for _, node := range nodes {
		require.NoError(t, node.Client().ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	store := New(client, &Options{Timeout: 5 * time.Second, Spread: 64})
	where := func(c core.Charge) *redistest.Server {
		return nodes.Owner(t, lua.Key(store.partOf(c.Key).prefix, named("p", c.Rule, c.Key)))
	}
	charges := []core.Charge{charge("wide", "a", 1000, time.Hour), held("narrow", "b", 1000, time.Hour, 7), charge("third", "c", 1000, time.Hour)}
	dead := where(charges[0])
	for i := 1; i < len(charges); i++ { // one key on the shard that dies, the others elsewhere
		for n := 0; where(charges[i]) == dead || store.partOf(charges[i].Key) == store.partOf(charges[3-i].Key); n++ {
			charges[i].Key = fmt.Sprint(i, n)
		}
	}
	d := storetest.MustTake(t, store, charges...)
	require.True(t, d.Allowed)

	nodes.Replica(t, dead).Kill()
	dead.Kill()
	for i := range 20 {
		began := time.Now()
		charges[1].ID = uint64(8 + i)
		_, err := storetest.Take(t.Context(), store, "p", charges)
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.Less(t, time.Since(began), 12*time.Second)
	}
	charges[1].ID = 7
	for _, c := range charges[1:] {
		assert.EqualValues(t, 999, left(t, store, c), "%s: only the first was admitted", c.Rule)
	}
	assert.Zero(t, store.Unreturned())
	d = must.Get(storetest.Take(t.Context(), store, "p", charges[2:]))(t, "the others go on")
	require.True(t, d.Allowed)
	heldNow := must.Get(storetest.Renew(t.Context(), store, "p", charges[1:2]))(t)
	require.Equal(t, []bool{true}, heldNow)
	_, err := storetest.Renew(t.Context(), store, "p", []core.Charge{charges[1], held("r", charges[0].Key, 1, time.Hour, 7)})
	require.ErrorIs(t, err, core.ErrUnavailable)
}
