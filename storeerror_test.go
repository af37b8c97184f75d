package limit_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/guard"
	"github.com/routelimit/limit/memstore"
)

// down is a store that is out of reach, as long as it is down.
type down struct {
	limit.Store
	down bool
}

func (s *down) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if s.down {
		return core.Decision{}, core.ErrUnavailable
	}
	return s.Store.Take(ctx, policy, charges)
}

// TestStoreDown takes outside HTTP across the failure of a store.
func TestStoreDown(t *testing.T) {
	for instances, want := range map[int]int{0: 4, 1: 4, 2: 1, 3: 0} {
		store := &down{Store: memstore.New(nil)}
		limiter := limit.New(store, &limit.Options{Instances: instances})
		rules := limit.Named("jobs", limit.Rule{Key: limit.Everyone, Limit: 6, Window: time.Hour})
		for range 2 {
			d, err := limiter.Take(t.Context(), rules, limit.Keys{})
			require.NoError(t, err)
			assert.Equal(t, limit.ModeExact, d.Mode)
		}
		store.down = true
		admitted := 0
		for range 10 {
			d, err := limiter.Take(t.Context(), rules, limit.Keys{})
			require.NoError(t, err)
			assert.Equal(t, limit.ModeLocal, d.Mode)
			if d.Allowed {
				admitted++
			}
		}
		assert.Equal(t, want, admitted, "its share, of which it has had 2: %d instances", instances)
	}
}

// TestPeekDown checks that a look tells what a request would meet.
func TestPeekDown(t *testing.T) {
	limiter := limit.New(&down{down: true}, nil)
	for on, want := range map[limit.OnError]bool{limit.Local: true, limit.Allow: true, limit.Refuse: false} {
		rules := limit.Named(on.String(), limit.Rule{Key: limit.Everyone, Limit: 6, Window: time.Hour, OnStoreError: on})
		d, err := limiter.Peek(t.Context(), rules, limit.Keys{})
		require.NoError(t, err)
		assert.Equal(t, want, d.Allowed, on)
		d, err = limiter.Take(t.Context(), rules, limit.Keys{})
		require.NoError(t, err)
		assert.Equal(t, want, d.Allowed, on)
	}
}

// TestGuarded checks which stores are guarded, and what is said about a guard
// that cannot be.
func TestGuarded(t *testing.T) {
	const text = "limit: Instances and a guard of your own: write them in its guard.Options"
	own := guard.New(&down{down: true}, &guard.Options{Instances: 2})
	assert.PanicsWithValue(t, text, func() { limit.New(own, &limit.Options{Instances: 2}) })
	assert.PanicsWithValue(t, "limit: -1 instances: write how many processes share the store, or 0 for one",
		func() { limit.New(nil, &limit.Options{Instances: -1}) })
	assert.Panics(t, func() { guard.New(nil, nil) })
	assert.Panics(t, func() { guard.New(own, &guard.Options{Instances: -1}) })
	assert.Panics(t, func() { guard.New(own, &guard.Options{Slow: -1}) })

	rules := limit.Named("p", limit.Global(time.Hour, 6))
	admitted := 0
	limiter := limit.New(own, nil)
	for range 10 {
		if d, err := limiter.Take(t.Context(), rules, limit.Keys{}); assert.NoError(t, err) && d.Allowed {
			admitted++
		}
	}
	assert.Equal(t, 3, admitted, "the share of one of two")
}

// TestOnErrorInvalid checks that a choice that there is none of is reported.
func TestOnErrorInvalid(t *testing.T) {
	rule := limit.Global(time.Hour, 6)
	rule.OnStoreError = math.MaxUint8
	assert.ErrorContains(t, limit.Rules(rule).Validate(), "on-error 255: write Local, Allow or Refuse")
}
