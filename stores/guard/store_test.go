package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A frail store fails, or calls a function first, as a test wants.
type frail struct {
	core.Store
	err    atomic.Pointer[error] // what it fails with
	lost   atomic.Bool           // fails after it has decided
	gone   atomic.Bool           // has lost its data, and not reported it
	asked  atomic.Int64
	sought atomic.Int64 // calls of Lost
	first  func()

	resets atomic.Int64

	lostAt map[string]int64 // when a key was found without units
	now    func() int64
}

// Lost does what [redisstore.Store.Lost] does.
func (f *frail) Lost(ctx context.Context, charges []core.Charge, empty int64) (ages []int64, err error) {
	f.sought.Add(1)
	if err := f.err.Load(); err != nil {
		return nil, *err
	}
	if shared, ok := f.Store.(*frail); ok {
		return shared.Lost(ctx, charges, empty)
	}
	for _, c := range charges {
		c.Cost = 0
		asks := []core.Ask{{Charges: []core.Charge{c}}}
		if err := f.Store.Take(ctx, asks); err != nil {
			return nil, err
		}
		if _, ok := f.lostAt[c.Key]; !ok && (empty > 0 || asks[0].Decision.Outcomes()[0].ResetAfter == 0) {
			f.lostAt[c.Key] = cmp.Or(empty, f.now())
		}
		if at, ok := f.lostAt[c.Key]; ok {
			ages = append(ages, f.now()-at)
		} else {
			ages = append(ages, -1)
		}
	}
	return ages, nil
}

var (
	errDown = fmt.Errorf("dial tcp: connection refused: %w", core.ErrUnavailable)
	errAway = fmt.Errorf("dial tcp: connection refused: %w", core.ErrOutOfReach)
)

func (f *frail) fail(err error) {
	if err == nil {
		f.err.Store(nil)
		return
	}
	f.err.Store(&err)
}

func (f *frail) Take(ctx context.Context, asks []core.Ask) error {
	f.asked.Add(1)
	if f.first != nil {
		f.first()
	}
	err := f.err.Load()
	if err == nil && f.gone.Swap(false) {
		return core.ErrForgotten
	}
	if err == nil || f.lost.Load() {
		storeErr := f.Store.Take(ctx, asks)
		if err == nil {
			return storeErr
		}
	}
	return *err
}

func (f *frail) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	if err := f.err.Load(); err != nil {
		return nil, *err
	}
	return f.Store.Renew(ctx, charges)
}

func (f *frail) Release(ctx context.Context, charges []core.Charge) error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Store.Release(ctx, charges)
}

func (f *frail) Reset(ctx context.Context, charges []core.Charge) error {
	f.resets.Add(1)
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Store.Reset(ctx, charges)
}

// nowhere is the log of guards in tests with many failures.
var nowhere = slog.New(slog.DiscardHandler)

// at returns a memory store that uses a clock.
func at(now *atomic.Int64) *memstore.Store { return memstore.New(&memstore.Options{Now: now.Load}) }

// guarded returns a guard around a frail store, and the clock of both, in microseconds.
func guarded(instances int, start int64) (*Store, *frail, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(start)
	f := &frail{Store: at(now), now: now.Load, lostAt: make(map[string]int64)}
	s := newStore(f, &Options{Instances: instances, Log: nowhere}, at(now), now.Load)
	return s, f, now
}

// TestStore runs the suite of all stores on the guard: around a store that works, and
// without the store.
func TestStore(t *testing.T) {
	for _, instances := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", instances), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
				s, _, now := guarded(instances, 0)
				test(t, storetest.Harness{Store: s, SetTime: now.Store})
			})
		})
	}
	t.Run("alone", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
			s, f, now := guarded(1, 0)
			f.fail(errDown)
			s.breaker.until.Store(probing) // forever
			test(t, storetest.Harness{Store: &alone{s, t}, SetTime: now.Store})
			assert.Zero(t, f.asked.Load())
		})
	})
}

// An alone guard has no store. So it resets keys in memory only, and returns an error.
type alone struct {
	*Store
	t *testing.T
}

func (a *alone) Reset(ctx context.Context, charges []core.Charge) error {
	err := a.Store.Reset(ctx, charges)
	if ctx.Err() != nil || errors.Is(err, core.ErrCharges) {
		return err
	}
	assert.ErrorIs(a.t, err, core.ErrUnavailable)
	return nil
}

// TestRedisStore checks that decisions through a guard are those of Redis, by its clock.
func TestRedisStore(t *testing.T) {
	client := redistest.Client(t)
	s := New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &Options{Slow: time.Minute}) // the machine may be loaded
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 2, Window: 3600_000_000}, Cost: 1}
	for want := range int64(2) {
		d := storetest.MustTake(t, s, c)
		assert.True(t, d.Allowed)
		assert.Equal(t, core.ModeExact, d.Mode)
		assert.Equal(t, 1-want, d.Outcomes()[0].Remaining)
	}
	d := storetest.MustTake(t, s, c)
	assert.False(t, d.Allowed)
	assert.Equal(t, core.ModeExact, d.Mode)

	// Data that Redis has lost is not admitted again after a failed call.
	require.NoError(t, client.FlushDB(t.Context()).Err())
	s.doubts.failed(s.now())
	d = storetest.MustTake(t, s, c)
	assert.False(t, d.Allowed)
	assert.Equal(t, core.ModeLocal, d.Mode)
}

// TestVersionsAlone has versions of a rule charge a key while the store is away.
func TestVersionsAlone(t *testing.T) {
	race.Skip(t)
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	storetest.Versions(t, storetest.Harness{Store: s, SetTime: now.Store}, false, 1, 300)
	storetest.Versions(t, storetest.Harness{Store: s, SetTime: now.Store}, true, 1, 300)
}
