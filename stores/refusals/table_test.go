package refusals

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestRefusedKeysStay holds that keys that requests are refused for are not displaced
// by a flood of keys that the store admits, and are once they are of no use.
func TestRefusedKeysStay(t *testing.T) {
	w := newTwins()
	names := w.collide("a", 40)
	take := func(key string, q core.Quota) core.Decision {
		w.time++
		return storetest.MustTake(t, w.store, charge("a", key, q, 1))
	}
	never := core.Quota{Limit: 1, Window: 3_600_000_000}
	abusive, good := names[:ways-1], names[ways:]
	for _, key := range abusive {
		take(key, never)
		require.Equal(t, core.ModeRemembered, take(key, never).Mode)
	}
	for _, key := range good {
		require.True(t, take(key, perSecond(1)).Allowed)
		for _, key := range abusive {
			require.Equal(t, core.ModeRemembered, take(key, never).Mode)
		}
	}
	w.time += longest
	for _, key := range good[:2*ways] {
		take(key, perSecond(1))
		take(key, perSecond(1))
	}
	s := w.store.keys.seen(0)
	for i := range s.slots {
		require.NotContains(t, abusive, s.slots[i].key.Load().text, "its outcome is too old")
	}
}

// TestOnlyRefusalsAreLearned holds that keys with room are remembered only from when a request finds
// a key with nothing left, and are up to date from then on.
func TestOnlyRefusalsAreLearned(t *testing.T) {
	w := newTwins()
	all := charge("all", "", perSecond(100), 1)
	take := func(key string) (got, want core.Decision) {
		w.time++
		charges := []core.Charge{charge("a", key, perSecond(2), 1), all}
		return storetest.MustTake(t, w.store, charges...), storetest.MustTake(t, w.plain, charges...)
	}
	for i := range 20 {
		take(fmt.Sprint(i))
	}
	for i := range w.store.keys {
		require.Nil(t, w.store.keys.seen(uint64(i)), "all keys have room")
	}
	take("0")
	for i := range 5 {
		take(fmt.Sprint(20 + i))
		got, want := take("0")
		require.Equal(t, core.ModeRemembered, got.Mode)
		require.Equal(t, want.Outcomes(), got.Outcomes())
	}
}

// TestSecondChance has more refused keys than a set has room for: each finds room.
func TestSecondChance(t *testing.T) {
	w := newTwins()
	for _, key := range w.collide("a", 3*ways) {
		charges := []core.Charge{charge("a", key, core.Quota{Limit: 1, Window: 3_600_000_000}, 1)}
		for range 3 {
			w.time++
			storetest.MustTake(t, w.store, charges...)
		}
		d := storetest.MustTake(t, w.store, charges...)
		require.Equal(t, core.ModeRemembered, d.Mode)
	}
}

// TestReadersAndWriters holds that a reader never sees parts of two outcomes, nor
// the outcome of another key.
func TestReadersAndWriters(t *testing.T) {
	const keys = 2 * ways
	var s set
	var charges [keys]core.Charge
	for i := range charges {
		charges[i] = charge("a", fmt.Sprint(i), perSecond(1), 1)
	}
	var over atomic.Bool
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for n := int64(0); !over.Load(); n++ {
				i := n % keys
				o, k := s.load(7, &charges[i], 0) // one hash for all
				if k == nil {
					continue
				}
				of := o.asked
				if want := (outcome{of, of, of, of, of, of}); o != want || of%keys != i || k.text != charges[i].Key {
					over.Store(true)
					t.Errorf("key %d: %+v", i, o)
				}
			}
		})
	}
	writes := int64(100_000)
	if race.Enabled {
		writes /= 5 // a writer waits for readers
	}
	for n := int64(1); n < writes && !over.Load(); n++ {
		key := n % keys
		if n/100%2 == 0 {
			key = 0 // many outcomes of one key
		}
		at := n*keys + key
		s.store(7, &charges[key], outcome{at, at, at, at, at, at})
		if n%500 == 0 {
			s.forget(7, &charges[key], 0)
		}
	}
	over.Store(true)
	wait.Wait()
}

// TestAdmittedAllocations holds that a decision about known keys allocates nothing.
func TestAdmittedAllocations(t *testing.T) {
	store := New(admits{})
	charges := []core.Charge{charge("a", "k", perSecond(1000), 1), charge("b", "k", perSecond(1000), 1)}
	ctx := t.Context()
	asks := []core.Ask{{Charges: charges}}
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = store.Take(ctx, asks) }))
}
