package limit

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// asked is a store that counts the calls of Take, as one process of several has it.
type asked struct {
	core.Store
	takes atomic.Int64
}

func (a *asked) Take(ctx context.Context, asks []core.Ask) error {
	a.takes.Add(1)
	return a.Store.Take(ctx, asks)
}

const noticed = 130 * time.Millisecond // after which a waiter knows of a slot that another process frees

// TestSlotOfAnotherProcess frees a slot in one process while callers of another wait.
func TestSlotOfAnotherProcess(t *testing.T) {
	slot := Named("slot", Rule{Name: "r", Key: Everyone, Limit: 1, Window: 10 * time.Second, Algorithm: Concurrency{},
		OnRefusal: Refusal{Wait: 5 * time.Second}})
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(nil)
		holder, store := New(&asked{Store: shared}, nil), &asked{Store: shared}
		limiter := New(store, nil)
		policy := mustPolicy(limiter, slot)

		held := hold(t, holder, slot)
		time.AfterFunc(500*time.Millisecond, held.Release)
		w, took := patient(t.Context(), limiter.Limit(slot)(nothing), "")
		assert.Equal(t, http.StatusNoContent, w.Code)
		assert.GreaterOrEqual(t, took, 500*time.Millisecond)
		assert.LessOrEqual(t, took, 500*time.Millisecond+noticed)

		// Callers of a process are served in their order. Only the first asks.
		held = hold(t, holder, slot)
		before := store.takes.Load()
		var order []int
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // shorter than the lease
				defer cancel()
				d, err := policy.Wait(ctx, Request{})
				if assert.NoError(t, err) {
					order = append(order, i)
					d.Release()
				}
			})
			synctest.Wait()
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		asks := store.takes.Load() - before
		assert.InDelta(t, 40, asks-1, 15, "ten times a second")
		held.Release()
		released := time.Now()
		all.Wait()
		assert.LessOrEqual(t, time.Since(released), noticed)
		for i, n := range order {
			assert.Equal(t, i, n)
		}
	})
}

// TestWaitShorterThanLease has deadlines before the end of the lease that refuses.
func TestWaitShorterThanLease(t *testing.T) {
	for rules, want := range map[string]struct {
		took time.Duration
		err  error
	}{
		"1/10s global concurrency":                  {2 * time.Second, context.DeadlineExceeded}, // it may be released at any time
		"1/10s global concurrency; 1/3s global":     {0, nil},                                    // which refuses for longer
		"1/10s global concurrency; 1/1500ms global": {2 * time.Second, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := Named("short", MustParse(rules).Declared()...)
			store := &asked{Store: memstore.New(nil)}
			limiter := New(store, nil)
			d := hold(t, limiter, set)
			defer d.Release()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			began, before := time.Now(), store.takes.Load()
			_, err := mustPolicy(limiter, set).Wait(ctx, Request{})
			assert.Equal(t, want.took, time.Since(began), rules)
			if want.err != nil {
				assert.ErrorIs(t, err, want.err, rules)
			} else {
				var refused *RefusedError
				assert.ErrorAs(t, err, &refused, rules)
			}
			if strings.Contains(rules, "1500ms") {
				assert.InDelta(t, 1+6, store.takes.Load()-before, 3, "not while the other rule certainly refuses")
			}
		})
	}
}

// TestManyKeysAreAskedForSlower bounds how often the waiters of all keys ask.
func TestManyKeysAreAskedForSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := Named("many", Rule{Name: "r", Key: ByUser, Limit: 1, Window: time.Minute, Algorithm: Concurrency{}})
		store := &asked{Store: memstore.New(nil)}
		limiter := New(store, &Options{Instances: 500}) // each asks 20 times a second
		policy := mustPolicy(limiter, set)
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i := range 100 {
			user := Request{Keys: map[string]string{"user": fmt.Sprint(i)}}
			d, err := policy.Take(ctx, user)
			assert.NoError(t, err)
			defer d.Release()
			all.Go(func() {
				_, err := policy.Wait(ctx, user)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		time.Sleep(6 * time.Second) // after their first calls
		before := store.takes.Load()
		time.Sleep(5 * time.Second)
		assert.InDelta(t, 100, store.takes.Load()-before, 60)
		all.Wait()
	})
}
