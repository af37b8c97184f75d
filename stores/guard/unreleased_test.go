package guard

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

const (
	timeout  = 100 * time.Millisecond // of a far store
	oneLease = 10 * time.Minute
)

// A far store is a memory store behind a network. Its calls may be lost, and run or
// answered late, but a call of Take does not run after its caller has left.
type far struct {
	*memstore.Store
	t *testing.T

	mu      sync.Mutex
	random  *rand.Rand      // of a store whose calls go wrong at random
	faulty  bool            // whether they do
	stalled chan struct{}   // nil, or closed when the store goes on
	held    map[uint64]bool // leases that requests hold
	late    int             // calls of Take that did nothing
}

func (f *far) stall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stalled := make(chan struct{})
	f.stalled = stalled
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stalled = nil
		close(stalled)
	})
}

// travel returns how long a message takes, and whether it is lost.
func (f *far) travel() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.faulty {
		return 100 * time.Microsecond, false
	}
	switch f.random.IntN(4) {
	case 0:
		return 0, true
	case 1:
		return time.Duration(f.random.Int64N(int64(2 * timeout))), false
	}
	return time.Duration(f.random.Int64N(int64(time.Millisecond))), false
}

// cut reports whether the connection ends at once.
func (f *far) cut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faulty && f.random.IntN(4) == 0
}

// call runs a function in the store, and waits for it until a time.
func (f *far) call(ctx context.Context, end time.Time, run func()) error {
	there, lost := f.travel()
	back, silent := f.travel()
	done := make(chan struct{})
	if !lost {
		go func() {
			time.Sleep(there)
			f.mu.Lock()
			stalled := f.stalled
			f.mu.Unlock()
			if stalled != nil {
				<-stalled
			}
			run()
			if !silent {
				time.Sleep(back)
				close(done)
			}
		}()
	}
	if f.cut() {
		return &core.Unanswered{Err: errAway, Until: end}
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &core.Unanswered{Err: ctx.Err(), Until: end}
	case <-time.After(time.Until(end)):
		return &core.Unanswered{Err: errAway, Until: end}
	}
}

func (f *far) Take(ctx context.Context, asks []core.Ask) error {
	end := time.Now().Add(timeout)
	asked := []core.Ask{{Charges: append([]core.Charge(nil), asks[0].Charges...)}}
	var failed error
	err := f.call(ctx, end, func() {
		if time.Now().After(end) {
			f.mu.Lock()
			f.late++
			f.mu.Unlock()
			return
		}
		failed = f.Store.Take(context.Background(), asked)
	})
	if err != nil {
		return err
	}
	asks[0].Decision = asked[0].Decision
	return failed
}

func (f *far) Release(ctx context.Context, charges []core.Charge) error {
	charges = append([]core.Charge(nil), charges...)
	err := f.call(ctx, time.Now().Add(timeout), func() {
		f.mu.Lock()
		for _, c := range charges {
			assert.False(f.t, f.held[c.ID], "a lease is released that a request holds")
		}
		f.mu.Unlock()
		assert.NoError(f.t, f.Store.Release(context.Background(), charges))
	})
	if err != nil && ctx.Err() == nil {
		return errAway
	}
	return err
}

// Settle releases leases, and finds no hold.
func (f *far) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	if err := f.Release(ctx, core.Leased(list)); err != nil {
		return nil, err
	}
	return make([]core.Settled, len(list)), nil
}

// holds notes whether a request holds a lease.
func (f *far) holds(id uint64, holds bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[id] = holds
}

func farStore(t *testing.T, seed uint64) (*Store, *far) {
	f := &far{Store: memstore.New(nil), t: t, random: rand.New(rand.NewPCG(seed, 44)), held: make(map[uint64]bool)}
	return New(f, &Options{Log: nowhere}), f
}

func slot(id uint64, limit int64) []core.Charge {
	return []core.Charge{{Rule: "r", ID: id, Cost: 1,
		Quota: core.Quota{Algorithm: core.Concurrency, Limit: limit, Window: oneLease.Microseconds()}}}
}

// TestStall has callers take turns at one slot while the store stalls for 700 ms. The
// slot is never idle for more than a second, although a lease lives for ten minutes.
func TestStall(t *testing.T) {
	worst := time.Duration(0)
	seeds := uint64(100)
	if race.Enabled {
		seeds = 5
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s, f := farStore(t, seed)
			random := rand.New(rand.NewPCG(seed, 45))
			var all sync.WaitGroup
			var mu sync.Mutex
			var ids uint64
			running, idle, over := 0, time.Now(), false
			var longest time.Duration
			pause := func(from, to int) time.Duration { // the caller has locked mu
				return time.Duration(from+random.IntN(to-from)) * time.Millisecond
			}
			callers, quiet := 1+random.IntN(8), pause(500, 1000)
			for range callers {
				all.Go(func() {
					for {
						mu.Lock()
						if over {
							mu.Unlock()
							return
						}
						ids++
						c, work, again := slot(ids, 1), pause(1, 500), pause(1, 10)
						mu.Unlock()
						d, err := core.Take(t.Context(), s, storetest.Of("p", c...))
						assert.NoError(t, err)
						if !d.Allowed {
							time.Sleep(again)
							continue
						}
						mu.Lock()
						if running++; running == 1 {
							longest = max(longest, time.Since(idle))
						}
						mu.Unlock()
						f.holds(c[0].ID, true)
						time.Sleep(work)
						mu.Lock()
						if running--; running == 0 {
							idle = time.Now()
						}
						mu.Unlock()
						f.holds(c[0].ID, false)
						assert.NoError(t, s.Release(t.Context(), storetest.Of("p", c...)))
					}
				})
			}
			time.Sleep(quiet)
			f.stall(700 * time.Millisecond)
			time.Sleep(5 * time.Second)
			mu.Lock()
			over = true
			if running == 0 {
				longest = max(longest, time.Since(idle))
			}
			mu.Unlock()
			all.Wait()
			time.Sleep(time.Minute) // until the guard does not ask any more whether the outage is over
			worst = max(worst, longest)
			require.LessOrEqual(t, longest, time.Second, "seed %d", seed)
		})
	}
	t.Logf("the slot was idle for at most %v", worst)
}

// TestNoLeaseIsLeft has callers take and release, or leave early, while calls and replies
// are lost and late. Some release with a settlement, and again if that fails. A lease that a request holds is never released. Once the store
// answers, and all have released, no lease is left.
func TestNoLeaseIsLeft(t *testing.T) {
	seeds := uint64(1000)
	if race.Enabled {
		seeds = 200
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s, f := farStore(t, seed)
			f.faulty = true
			random := rand.New(rand.NewPCG(seed, 46))
			limit := 1 + random.Int64N(4)
			var all sync.WaitGroup
			for caller := range 1 + random.IntN(6) {
				mine := rand.New(rand.NewPCG(seed, uint64(caller)))
				all.Go(func() {
					for i := range 20 {
						c := slot(uint64(1000*caller+i+1), limit)
						c[0].OnError = core.OnError(mine.IntN(3))
						ctx := t.Context()
						if mine.IntN(4) == 0 {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, time.Duration(mine.Int64N(int64(timeout))))
							defer cancel()
						}
						d, err := core.Take(ctx, s, storetest.Of("p", c...))
						if err != nil || !d.Allowed {
							time.Sleep(time.Duration(mine.Int64N(int64(30 * time.Millisecond))))
							continue
						}
						// What was taken back from the store, and then admitted without it, may be
						// released.
						f.holds(c[0].ID, d.Mode == core.ModeExact)
						time.Sleep(time.Duration(mine.Int64N(int64(timeout))) >> (8 * mine.IntN(2)))
						f.holds(c[0].ID, false)
						if mine.IntN(2) == 0 {
							settled := core.Settlement{Return: core.Return{Charge: core.Charge{Policy: "p", Rule: "units", Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}}}
							settled.Leases = storetest.Of("p", c...)
							if _, err := s.Settle(ctx, []core.Settlement{settled}); err == nil {
								continue
							}
						}
						if err := s.Release(ctx, storetest.Of("p", c...)); ctx.Err() == nil {
							assert.NoError(t, err)
						}
					}
				})
			}
			all.Wait()
			f.mu.Lock()
			f.faulty = false
			f.mu.Unlock()
			time.Sleep(2*timeout + 2*longestWait*time.Microsecond)
			look := slot(1_000_000, limit)
			look[0].Cost = 0
			d := storetest.MustTake(t, f.Store, look...)
			require.Equal(t, limit, d.Outcomes()[0].Remaining, "seed %d", seed)
			time.Sleep((logQuiet + 2*watchEvery) * time.Microsecond)
			synctest.Wait()
			require.False(t, s.outage.lasts.Load())
			s.debts.mu.Lock()
			defer s.debts.mu.Unlock()
			require.False(t, s.debts.armed || s.unreleased.armed, "no timer is left")
			require.Empty(t, s.unreleased.list)
		})
	}
}

// TestReleaseIsGivenUp holds that leases are not released for longer than they can live,
// and that there are never more than so many to release.
func TestReleaseIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frail{Store: memstore.New(nil)}
		s := New(f, &Options{Log: nowhere})
		f.fail(errAway)
		for id := range uint64(maxUnreleased + 10) {
			c := slot(id+1, 1)
			c[0].Quota.Window = 10 * sec
			require.NoError(t, s.Release(t.Context(), storetest.Of("p", c...)))
		}
		s.debts.mu.Lock()
		assert.Len(t, s.unreleased.list, maxUnreleased)
		assert.EqualValues(t, 1, s.unreleased.list[0].charges[0].ID, "the store knows the first ones of an outage")
		s.debts.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		s.debts.mu.Lock()
		defer s.debts.mu.Unlock()
		assert.Empty(t, s.unreleased.list)
		assert.False(t, s.unreleased.armed)
	})
}

// TestReleaseOfUnasked has many requests admitted without asking the store in an outage:
// their leases are not released there, and one from before the outage is.
func TestReleaseOfUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		f := &frail{Store: store}
		s := New(f, &Options{Log: nowhere})
		take := func(id uint64) {
			d := storetest.MustTake(t, s, slot(id, 2)...)
			require.True(t, d.Allowed)
		}
		take(1)
		f.fail(errAway)
		for id := uint64(10); !s.unavailable(); id++ {
			take(id)
			require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(id, 2)...)))
		}
		before := len(s.unreleased.list)
		for id := range uint64(3 * maxUnreleased) {
			take(id + 1000)
			require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(id+1000, 2)...)))
		}
		require.Len(t, s.unreleased.list, before)
		require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(1, 2)...)))
		f.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		held := must.Get(store.Renew(t.Context(), storetest.Of("p", slot(1, 2)...)))(t)
		assert.Equal(t, []bool{false}, held)
	})
}

// TestReleasePanics has a store that panics in the goroutine of the timer.
func TestReleasePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &panicking{Store: memstore.New(nil)}
		s := New(f, &Options{Log: nowhere})
		require.NoError(t, s.Release(t.Context(), storetest.Of("p", slot(1, 1)...)))
		time.Sleep(time.Second)
		s.debts.mu.Lock()
		defer s.debts.mu.Unlock()
		assert.Empty(t, s.unreleased.list)
		assert.False(t, s.unreleased.armed)
	})
}

// A panicking store is unavailable first, and panics then.
type panicking struct {
	core.Store
	again atomic.Bool
}

func (p *panicking) Release(context.Context, []core.Charge) error {
	if p.again.Swap(true) {
		panic("as a test wants")
	}
	return errAway
}
