package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// ofPolicy returns a charge of one unit on a rule of a policy.
func ofPolicy(policy, rule string, limit int64) core.Charge {
	c := charge(rule, "k", limit, time.Hour)
	c.Policy = policy
	return c
}

// TestPoliciesOnCluster has calls with charges of policies in different slots. An ask
// that one of them refuses takes nothing of the others, and concerns no other ask.
func TestPoliciesOnCluster(t *testing.T) {
	store := New(redistest.Cluster(t), &patient)
	for i := range 50 {
		wide, narrow := ofPolicy(fmt.Sprint("wide ", i), "r", 5), ofPolicy(fmt.Sprint("narrow ", i), "r", 2)
		both := []core.Charge{wide, narrow}
		for n := range 3 {
			asks := []core.Ask{{Charges: both}, {Charges: both[:1]}}
			require.NoError(t, store.Take(t.Context(), asks))
			require.Equal(t, n < 2, asks[0].Decision.Allowed, n)
			require.True(t, asks[1].Decision.Allowed, n)
		}
		wide.Cost, narrow.Cost = 0, 0
		d := must.Get(core.Take(t.Context(), store, []core.Charge{wide, narrow}))(t)
		require.Zero(t, d.Outcomes()[0].Remaining)
		require.Zero(t, d.Outcomes()[1].Remaining)

		require.NoError(t, store.Reset(t.Context(), both))
		d = must.Get(core.Take(t.Context(), store, both))(t)
		require.True(t, d.Allowed)
		results := must.Get(store.Return(t.Context(), []core.Return{d.Return(1, both[1]), d.Return(0, both[0])}))(t)
		for j, r := range results {
			require.Equal(t, core.Returned{Units: 1, Outcome: core.Outcome{Remaining: []int64{2, 5}[j]}}, r)
		}
	}
	require.Zero(t, store.Unreturned())
}

// TestAsksUndoneAfterAnError holds that an ask that was admitted is given back if a later
// one in another slot cannot be decided.
func TestAsksUndoneAfterAnError(t *testing.T) {
	client := redistest.Cluster(t)
	store := New(client, &patient)
	good, bad := ofPolicy("good", "r", 5), ofPolicy("bad", "r", 5)
	require.NoError(t, client.Set(t.Context(), lua.Key("limit", &bad), "nonsense", 0).Err())
	err := store.Take(t.Context(), []core.Ask{{Charges: []core.Charge{good}}, {Charges: []core.Charge{bad}}})
	require.ErrorIs(t, err, lua.ErrValue)
	d := must.Get(core.Take(t.Context(), store, []core.Charge{good}))(t)
	require.EqualValues(t, 4, d.Outcomes()[0].Remaining)
}

// TestAskWithBadKey holds that a request takes nothing if the key of any of its asks
// cannot be used, and that others in the batch are decided.
func TestAskWithBadKey(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	bad, good := ofPolicy("p", "r", 5), ofPolicy("p", "s", 5)
	bad.Key = "bad"
	require.NoError(t, client.Set(t.Context(), lua.Key("limit", &bad), "nonsense", 0).Err())
	of := func(key string) *request {
		c := bad
		c.Key = key
		return &request{asks: []core.Ask{{Charges: []core.Charge{good}}, {Charges: []core.Charge{c}}, {Charges: []core.Charge{good}}}}
	}
	batch := []*request{of("bad"), of("other"), of("bad")}
	store.batcher(batch[0].asks).call(t.Context(), batch)
	for _, i := range []int{0, 2} {
		require.ErrorIs(t, batch[i].err, lua.ErrValue)
		require.ErrorContains(t, batch[i].err, "limit:1:{p}:r:bad")
	}
	require.NoError(t, batch[1].err)
	require.EqualValues(t, 4, batch[1].asks[0].Decision.Outcomes()[0].Remaining)
	require.EqualValues(t, 3, batch[1].asks[2].Decision.Outcomes()[0].Remaining)
}

// TestReturnsShareCalls holds that returns that arrive while a call is in flight go
// together, that each has its own result, and that a bad key fails only its own.
func TestReturnsShareCalls(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &Options{Timeout: time.Minute})
	c, bad := ofPolicy("p", "r", 1000), ofPolicy("p", "bad", 5)
	c.Cost = 103
	d := must.Get(core.Take(t.Context(), store, []core.Charge{c}))(t)
	require.NoError(t, client.RPush(t.Context(), lua.Key("limit", &bad), "x").Err())
	one := d.Return(0, c)
	one.Cost = 1
	_, err := store.Return(t.Context(), []core.Return{one}) // loads the script
	require.NoError(t, err)

	calls := holdCalls(client)
	var done sync.WaitGroup
	giveBack := func() {
		done.Go(func() {
			results, err := store.Return(context.Background(), []core.Return{one})
			if assert.NoError(t, err) {
				assert.EqualValues(t, 1, results[0].Units)
				assert.Greater(t, results[0].Outcome.Remaining, int64(1000-102))
			}
		})
	}
	giveBack()
	<-calls.arrived
	for range 20 {
		giveBack()
	}
	awaitQueued(store.returner("p"), 20)
	close(calls.release)
	done.Wait()
	assert.Len(t, calls.arrived, 1, "20 returns in one call")

	batch := []*request{{returns: []core.Return{one, one}}, {returns: []core.Return{{Charge: bad, At: one.At}}}, {returns: []core.Return{one}}}
	store.returner("p").call(t.Context(), batch)
	require.NoError(t, batch[0].err)
	require.ErrorIs(t, batch[1].err, lua.ErrValue)
	require.NoError(t, batch[2].err)
	require.EqualValues(t, 1000-103+1+21+2, batch[0].results[1].Outcome.Remaining)
	require.EqualValues(t, 1000-103+1+21+3, batch[2].results[0].Outcome.Remaining)
}
