package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

// stubborn is a store that resets nothing.
type stubborn struct{ core.Store }

func (stubborn) Reset(context.Context, []core.Charge) error { return errors.New("down") }

func TestReset(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("login", PerUser(time.Hour, 2), PerIP(time.Hour, 5), Global(time.Hour, 10), Rule{Key: ByUser, Limit: 10, Algorithm: Concurrency{}})
	alice, bob := map[string]string{"user": "alice", "ip": "192.0.2.1"}, map[string]string{"user": "bob", "ip": "192.0.2.2"}
	for range 2 {
		for _, keys := range []map[string]string{alice, bob} {
			must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Keys: keys}))(t)
		}
	}
	require.NoError(t, mustPolicy(limiter, rules).Reset(t.Context(), alice))
	left := func(keys map[string]string) (list []int64) {
		d := look(t, limiter, rules, keys)
		for r := range d.Rules() {
			list = append(list, r.Remaining)
		}
		return list
	}
	assert.Equal(t, []int64{2, 5, 6, 8}, left(alice), "not what everyone shares, and not what is held")
	assert.Equal(t, []int64{0, 3, 6, 8}, left(bob))

	assert.Error(t, mustPolicy(limiter, rules).Reset(t.Context(), nil), "no keys")
	assert.ErrorContains(t, mustPolicy(limiter, Named("all", Global(time.Hour, 2))).Reset(t.Context(), nil), "resets neither global rules")
	assert.Error(t, mustPolicy(limiter, Rules(PerIP(time.Hour, 2))).Reset(t.Context(), alice), "no name")
	assert.ErrorIs(t, mustPolicy(New(stubborn{memstore.New(nil)}, nil), rules).Reset(t.Context(), alice), ErrUndecided)
}

// TestResetReachesWaiters resets a key for which a request of another process waits.
func TestResetReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		rules := Named("job", PerUser(time.Hour, 1))
		mine, other := mustPolicy(New(store, nil), rules), mustPolicy(New(store, nil), rules)
		request := Request{Keys: map[string]string{"user": "alice"}}
		must.Get(mine.Take(t.Context(), request))(t)
		began := time.Now()
		time.AfterFunc(10*time.Second, func() { assert.NoError(t, other.Reset(t.Context(), request.Keys)) })
		d := must.Get(mine.Wait(t.Context(), request))(t)
		assert.True(t, d.Allowed)
		assert.LessOrEqual(t, time.Since(began), 11*time.Second)
	})
}
