package guard

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A pause is a store that holds its answers back.
type pause struct {
	core.Store
	decided, answer chan struct{}
}

func (p *pause) Take(ctx context.Context, asks []core.Ask) error {
	err := p.Store.Take(ctx, asks)
	p.decided <- struct{}{}
	<-p.answer
	return err
}

// TestAnswerComesLate admits a request without the store while the store's answer to
// another request is on its way. The other request must be refused.
func TestAnswerComesLate(t *testing.T) {
	for _, instances := range []int{1, 3} {
		s, f, _ := guarded(instances, 0)
		slow := &pause{f.Store, make(chan struct{}), make(chan struct{})}
		f.Store = slow
		take := func() core.Decision {
			return storetest.MustTake(t, s, charge("r", 1, core.Local))
		}
		first := make(chan core.Decision)
		go func() { first <- take() }()
		<-slow.decided
		f.fail(errDown)
		second := take()
		close(slow.answer)
		assert.True(t, second.Allowed)
		assert.Equal(t, core.ModeLocal, second.Mode)
		late := <-first
		assert.False(t, late.Allowed, "one of one is admitted")
		assert.Equal(t, core.ModeLocal, late.Mode)
		assert.EqualValues(t, 10*sec, late.RetryAfter())
	}
}

// TestLateAnswerAfterPayment has a request wait for its answer while others are admitted without
// the store and are paid for. A full log keeps as many times as its limit, so it drops one for those.
// What the late request took stands for that, and its refusal does not give it back.
func TestLateAnswerAfterPayment(t *testing.T) {
	s, f, now := guarded(1, 0)
	slow := &pause{f.Store, make(chan struct{}), make(chan struct{})}
	f.Store = slow
	c := charge("r", 2, core.Local)
	c.Quota.Window = core.MaxWindow
	first := make(chan core.Decision)
	go func() { first <- storetest.MustTake(t, s, c) }()
	<-slow.decided
	f.Store = slow.Store
	f.fail(errAway)
	for range 2 {
		assert.True(t, storetest.MustTake(t, s, c).Allowed)
	}
	f.fail(nil)
	for range 10 {
		now.Add(longestWait)
		s.payNext()
	}
	assert.Zero(t, s.debts.count.Load())
	close(slow.answer)
	assert.False(t, (<-first).Allowed)
	for range 3 {
		now.Add(sec)
		assert.False(t, storetest.MustTake(t, s, c).Allowed, "two of two are admitted")
	}
}

// hesitant is a store whose callers wait for a moment once it has decided.
type hesitant struct{ core.Store }

func (h hesitant) Take(ctx context.Context, asks []core.Ask) error {
	err := h.Store.Take(ctx, asks)
	for range rand.IntN(200) * rand.IntN(2) {
		runtime.Gosched()
	}
	return err
}

// TestConcurrentDebts takes from many goroutines while the store fails and recovers, with
// answers that come late and debts that are paid meanwhile. A window admits its limit.
func TestConcurrentDebts(t *testing.T) {
	for range 500 {
		const limit = 8
		s, f, now := guarded(1, sec)
		f.Store = hesitant{f.Store}
		c := core.Charge{Rule: "r", Quota: core.Quota{Limit: limit, Window: core.MaxWindow}, Cost: 1}
		var admitted, local, refused atomic.Int64
		var all sync.WaitGroup
		done := make(chan struct{})
		for range 16 {
			all.Go(func() {
				for refused.Load() < 100 {
					now.Add(ms)
					d, err := core.Take(context.Background(), s, storetest.Of("p", c))
					assert.NoError(t, err)
					switch {
					case !d.Allowed:
						refused.Add(1)
					case d.Mode == core.ModeLocal:
						local.Add(1)
						fallthrough
					default:
						admitted.Add(1)
					}
					runtime.Gosched()
				}
			})
		}
		go func() {
			defer close(done)
			for refused.Load() < 100 {
				f.fail(errAway)
				for range rand.IntN(100) {
					runtime.Gosched()
				}
				f.fail(nil)
				now.Add(longestWait)
				for range rand.IntN(20) {
					s.payNext()
				}
			}
		}()
		all.Wait()
		<-done
		assert.EqualValues(t, limit, admitted.Load())
	}
}

// TestConcurrentContinuity takes from many goroutines while the store fails, loses its data
// and recovers. A window admits its limit, and no more.
func TestConcurrentContinuity(t *testing.T) {
	before := runtime.NumGoroutine()
	const limit = 3000
	s, f, now := guarded(1, sec)
	f.Store = &swap{}
	f.Store.(*swap).lose(now)
	quota := core.Quota{Limit: limit, Window: core.MaxWindow}
	var admitted, failures, losses atomic.Int64
	modes := make([]atomic.Int64, 5)
	take := func() {
		now.Add(ms)
		d, err := core.Take(context.Background(), s, storetest.Of("p", core.Charge{Rule: "r", Quota: quota, Cost: 1}))
		if err != nil {
			failures.Add(1)
			return
		}
		modes[d.Mode].Add(1)
		if d.Allowed {
			admitted.Add(1)
		}
	}
	take()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := 0; i < 2*limit/32 || losses.Load() == 0; i++ {
				take()
				runtime.Gosched()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		random := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-done:
				return
			default:
			}
			f.fail(errDown)
			local := modes[core.ModeLocal].Load()
			for modes[core.ModeLocal].Load() == local { // until a caller has noticed
				select {
				case <-done:
					return
				default:
					runtime.Gosched()
				}
			}
			f.Store.(*swap).lose(now)
			losses.Add(1)
			f.fail(nil)
			for range random.IntN(100) {
				runtime.Gosched()
			}
		}
	}()
	all.Wait()
	close(done)
	assert.Zero(t, failures.Load())
	assert.EqualValues(t, limit, admitted.Load())
	assert.Positive(t, modes[core.ModeExact].Load())
	assert.Positive(t, modes[core.ModeLocal].Load())
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 1e10, 1e6, "no goroutine is left")
}

// A swap is a store that can lose its data.
type swap struct {
	core.Store
	store atomic.Pointer[memstore.Store]
}

func (s *swap) lose(now *atomic.Int64) { s.store.Store(at(now)) }

func (s *swap) Take(ctx context.Context, asks []core.Ask) error {
	return s.store.Load().Take(ctx, asks)
}

func (s *swap) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	return s.store.Load().Return(ctx, returns)
}
