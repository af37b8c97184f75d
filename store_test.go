package limit_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/refusals"
)

// down is a store that is out of reach, as long as it is down.
type down struct {
	core.Store
	down bool
}

func (s *down) Take(ctx context.Context, asks []core.Ask) error {
	if s.down {
		return core.ErrUnavailable
	}
	return s.Store.Take(ctx, asks)
}

// TestStoreDown takes outside HTTP across the failure of a store.
func TestStoreDown(t *testing.T) {
	for instances, want := range map[int]int{0: 4, 1: 4, 2: 1, 3: 0} {
		store := &down{Store: memstore.New(nil)}
		limiter := limit.New(store, &limit.Options{Instances: instances})
		rules := limit.Named("jobs", limit.Rule{Key: limit.Everyone, Limit: 6, Window: time.Hour})
		for range 2 {
			d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
			assert.Equal(t, core.ModeExact, d.Mode)
		}
		store.down = true
		admitted := 0
		for range 10 {
			d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
			assert.Equal(t, core.ModeLocal, d.Mode)
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
	for on, want := range map[core.OnError]bool{limit.Local: true, limit.Allow: true, limit.Refuse: false} {
		rules := limit.Named(on.String(), limit.Rule{Key: limit.Everyone, Limit: 6, Window: time.Hour, OnStoreError: on})
		d := must.Get(mustPolicy(limiter, rules).Peek(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
		assert.Equal(t, want, d.Allowed, on)
		d = must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
		assert.Equal(t, want, d.Allowed, on)
	}
}

// TestGuarded checks which stores are guarded, and what is said about a guard
// that cannot be.
func TestGuarded(t *testing.T) {
	const text = "limit: Instances and MaxKeys have no effect on your own guard: set them in guard.Options"
	own := guard.New(&down{down: true}, &guard.Options{Instances: 2})
	assert.PanicsWithValue(t, text, func() { limit.New(own, &limit.Options{Instances: 2}) })
	assert.PanicsWithError(t, "limit: Instances -1: write how many processes share the store, or 0 for one",
		func() { limit.New(nil, &limit.Options{Instances: -1}) })
	assert.PanicsWithValue(t, text, func() { limit.New(own, &limit.Options{MaxKeys: 2}) })
	assert.PanicsWithValue(t, text, func() { limit.New(refusals.New(own), &limit.Options{Instances: 2}) })
	assert.Panics(t, func() { limit.New(nil, &limit.Options{MaxKeys: -1}) })
	assert.Panics(t, func() { limit.New(memstore.New(nil), &limit.Options{MaxKeys: 1}) })
	assert.PanicsWithValue(t, "limit: the store is a nil *memstore.Store: write nil for a memory store, or make the store with its New",
		func() { limit.New((*memstore.Store)(nil), nil) })
	assert.Panics(t, func() { guard.New(nil, nil) })
	assert.Panics(t, func() { guard.New(own, &guard.Options{Instances: -1}) })
	assert.Panics(t, func() { guard.New(own, &guard.Options{Slow: -1}) })

	rules := limit.Named("p", limit.Global(time.Hour, 6))
	admitted := 0
	limiter := limit.New(own, nil)
	for range 10 {
		if d, err := mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}); assert.NoError(t, err) && d.Allowed {
			admitted++
		}
	}
	assert.Equal(t, 3, admitted, "the share of one of two")
}

// TestRefusalsAreRemembered checks around which stores.
func TestRefusalsAreRemembered(t *testing.T) {
	rules := limit.Named("p", limit.Global(time.Hour, 6))
	for name, around := range map[string]func(core.Store) core.Store{
		"one that may fail":  func(s core.Store) core.Store { return s },
		"a guard":            func(s core.Store) core.Store { return guard.New(s, nil) },
		"one that remembers": func(s core.Store) core.Store { return refusals.New(s) },
	} {
		store := &down{Store: memstore.New(nil)}
		limiter := limit.New(around(store), nil)
		var modes []core.Mode
		for range 9 {
			d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{}}))(t)
			modes = append(modes, d.Mode)
		}
		assert.Equal(t, append(make([]core.Mode, 6), core.ModeRemembered, core.ModeRemembered, core.ModeRemembered), modes, name)
	}
}

// TestOnErrorInvalid checks that a choice that there is none of is reported.
func TestOnErrorInvalid(t *testing.T) {
	rule := limit.Global(time.Hour, 6)
	rule.OnStoreError = math.MaxUint8
	_, err := limit.New(nil, nil).Policy(limit.Rules(rule))
	assert.ErrorContains(t, err, "on-error 255: write Local, Allow or Refuse")
}

// TestMaxKeys floods limiters with keys of one window each. All of those that
// have room are admitted, and most of the others are not.
func TestMaxKeys(t *testing.T) {
	race.Skip(t)
	rules := limit.Named("p", limit.PerUser(time.Hour, 1))
	flood := func(store core.Store, maxKeys int) (admitted, overflows int) {
		limiter := limit.New(store, &limit.Options{MaxKeys: maxKeys})
		for i := range 20_000 {
			d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), limit.Request{Keys: map[string]string{"user": strconv.Itoa(i)}}))(t)
			if d.Allowed {
				admitted++
			}
			if d.Mode == core.ModeOverflow {
				overflows++
			}
		}
		return admitted, overflows
	}
	for _, store := range []func() core.Store{
		func() core.Store { return nil },
		func() core.Store { return &down{Store: memstore.New(&memstore.Options{MaxKeys: 1 << 20})} },
	} {
		admitted, overflows := flood(store(), 0)
		assert.Equal(t, []int{20_000, 0}, []int{admitted, overflows})
		admitted, overflows = flood(store(), 1024)
		assert.Less(t, admitted, 2_000)
		assert.Greater(t, overflows, 15_000)
	}
}

// An embedding store overrides Take, and inherits the other methods of a memory store.
type embedding struct {
	*memstore.Store
	calls atomic.Int64
}

func (s *embedding) Take(ctx context.Context, asks []core.Ask) error {
	s.calls.Add(1)
	return s.Store.Take(ctx, asks)
}

// TestStoreThatEmbedsMemory checks that a store is asked by its own Take, although what it
// embeds has a faster way.
func TestStoreThatEmbedsMemory(t *testing.T) {
	store := &embedding{Store: memstore.New(nil)}
	policy := mustPolicy(limit.New(store, nil), limit.Named("p", limit.PerUser(time.Hour, 5), limit.Global(time.Hour, 5)))
	for range 3 {
		d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
		require.True(t, d.Allowed)
	}
	require.EqualValues(t, 3, store.calls.Load())
}
