package limit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// thousand has leases that live for 3 s.
var thousand = Named("thousand", Rule{Key: Everyone, Limit: 1000, Window: 3 * time.Second, Algorithm: Concurrency{}})

// A distant is a store that takes a while to renew leases.
type distant struct {
	core.Store
	takes    time.Duration
	mu       sync.Mutex
	inFlight atomic.Int32
	at       []time.Time // of the calls
	charges  []int       // of each call
	atOnce   bool        // whether there were two calls at the same time
	ids      []uint64    // of the leases, in the order in which they were taken
	failing  uint64      // the id of a lease whose renewals fail
	panics   int         // how many calls panic
}

func (d *distant) Take(ctx context.Context, asks []core.Ask) error {
	d.mu.Lock()
	d.ids = append(d.ids, asks[0].Charges[0].ID)
	d.mu.Unlock()
	return d.Store.Take(ctx, asks)
}

func (d *distant) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	d.mu.Lock()
	d.atOnce = d.inFlight.Add(1) > 1 || d.atOnce
	d.at, d.charges = append(d.at, time.Now()), append(d.charges, len(charges))
	failing := d.failing
	d.panics--
	panics := d.panics >= 0
	d.mu.Unlock()
	defer d.inFlight.Add(-1)
	if panics {
		panic("no")
	}
	time.Sleep(d.takes)
	held, err := d.Store.Renew(ctx, charges)
	for i := range held {
		if charges[i].ID == failing {
			held[i], err = false, errors.New("held by one instance alone")
		}
	}
	return held, err
}

// calls returns when there were calls, and for how many leases.
func (d *distant) calls() (at []time.Time, charges []int) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.at), slices.Clone(d.charges)
}

// TestRenewalsShareCalls holds many leases that were taken at the same time.
func TestRenewalsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distant{Store: memstore.New(nil), takes: 5 * time.Millisecond}
		limiter := New(store, nil)
		var held []Decision
		for range 1000 {
			d := hold(t, limiter, thousand)
			require.True(t, d.Allowed)
			held = append(held, d)
		}
		const seconds = 8
		for range seconds {
			time.Sleep(time.Second)
			require.False(t, hold(t, limiter, thousand).Allowed)
		}
		at, _ := store.calls()
		for _, d := range held {
			require.False(t, closed(d.Lost()))
		}
		// 1,000 leases need four calls, every 0.75 to 1 s.
		assert.InDelta(t, 4*seconds*7/6, len(at), 4*seconds/4)
		together := 0
		for i := 1; i < len(at); i++ {
			if at[i].Sub(at[i-1]) <= store.takes {
				together++
			}
		}
		assert.Less(t, together, len(at)*2/3, "they are spread over the time")

		for _, d := range held[1:] {
			d.Release()
		}
		time.Sleep(10 * time.Second)
		at, charges := store.calls()
		assert.Equal(t, 1, charges[len(charges)-1])
		held[0].Release()
		time.Sleep(time.Minute)
		later, _ := store.calls()
		assert.Len(t, later, len(at), "nothing is held")
		store.mu.Lock()
		defer store.mu.Unlock()
		assert.False(t, store.atOnce)
	})
}

// TestRenewalsDiffer has two processes take leases at the same moment.
func TestRenewalsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var after []time.Duration
		for range 2 {
			store := &distant{Store: memstore.New(nil)}
			d := hold(t, New(store, nil), thousand)
			defer d.Release()
			began := time.Now()
			time.Sleep(time.Second)
			at, _ := store.calls()
			require.Len(t, at, 1)
			after = append(after, at[0].Sub(began))
			assert.GreaterOrEqual(t, after[len(after)-1], 750*time.Millisecond)
		}
		assert.NotEqual(t, after[0], after[1])
	})
}

// TestRenewedInPart has each call fail for one of three leases, such as one that only
// this instance holds. The others are not lost.
func TestRenewedInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distant{Store: memstore.New(nil)}
		limiter := New(store, nil)
		var held []Decision
		for range 3 {
			held = append(held, hold(t, limiter, thousand))
		}
		store.mu.Lock()
		store.failing = store.ids[1]
		store.mu.Unlock()
		time.Sleep(3*time.Second - 1)
		require.False(t, closed(held[1].Lost()))
		time.Sleep(time.Nanosecond)
		require.True(t, closed(held[1].Lost()))
		time.Sleep(time.Minute)
		for i, d := range held {
			assert.Equal(t, i == 1, closed(d.Lost()))
			d.Release()
		}
	})
}

// TestRenewalPanics holds that a panic of the store, such as of a hook of its client, is
// a renewal that failed.
func TestRenewalPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distant{Store: memstore.New(nil), panics: 1}
		d := hold(t, New(store, nil), thousand)
		defer d.Release()
		time.Sleep(10 * time.Second)
		assert.False(t, closed(d.Lost()))
		at, _ := store.calls()
		assert.Greater(t, len(at), 8)
	})
}
