package limit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
)

// closed reports whether a loss has been told by now.
func closed(lost <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

// losing decides requests of twoAtOnce, and remembers of which a loss was observed.
type losing struct {
	*watched
	policy   *Policy
	observed []error
}

func newLosing(store core.Store) *losing {
	l := &losing{watched: &watched{Store: store}}
	l.policy = mustPolicy(New(l.watched, &Options{Observe: func(r *http.Request, d Decision, err error) {
		if err != nil && r != nil && d.Allowed {
			l.observed = append(l.observed, err)
		}
	}}), twoAtOnce)
	return l
}

func (l *losing) hold(t *testing.T) Decision {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	d := must.Get(l.policy.decide(r, &exchange{ofRequest: ofRequest{request: r}}, 0))(t)
	require.True(t, d.Allowed)
	return d
}

func (l *losing) fail(failing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing = failing
}

// TestLostByReset resets a key under its holders: the next renewal, which comes
// within a third of the Window, finds that out.
func TestLostByReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLosing(memstore.New(nil))
		first, second := l.hold(t), l.hold(t)
		time.Sleep(1500 * time.Millisecond)
		require.False(t, closed(first.Lost()))
		require.NoError(t, l.policy.limiter.engine.Store.Reset(t.Context(), []core.Charge{{Policy: "two", Rule: "global-concurrency"}}))
		third := l.hold(t)
		time.Sleep(500 * time.Millisecond)
		assert.True(t, closed(first.Lost()) && closed(second.Lost()))
		assert.False(t, closed(third.Lost()))

		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, l.left(t, twoAtOnce), "what is lost takes no place again")
		assert.Empty(t, l.observed, "the request has not ended")
		first.Release()
		first.Release()
		require.Len(t, l.observed, 1)
		assert.ErrorIs(t, l.observed[0], ErrLeaseLost)
		assert.ErrorContains(t, l.observed[0], `no longer holds that of rule "global-concurrency"`)
		second.Release()
		assert.Len(t, l.observed, 2, "once for each")
		assert.Zero(t, l.releases, "nothing was left to release")
		third.Release()
		time.Sleep(time.Minute)
		assert.False(t, closed(third.Lost()), "it was held until it was released")
		assert.Len(t, l.observed, 2)
	})
}

// TestLostOutOfReach has renewals fail: what is held is lost when that has lasted
// for the life of a lease, and not before.
func TestLostOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLosing(memstore.New(nil))
		d := l.hold(t)
		time.Sleep(2500 * time.Millisecond)
		l.fail(true)
		time.Sleep(time.Until(l.last.Add(3*time.Second)) - 1)
		assert.False(t, closed(d.Lost()), "it may be held still")
		time.Sleep(time.Nanosecond)
		assert.True(t, closed(d.Lost()), "3 s after the last renewal")
		l.fail(false)
		time.Sleep(time.Minute)
		d.Release()
		require.Len(t, l.observed, 1, "once, although the store has also said so since")
		assert.ErrorIs(t, l.observed[0], ErrLeaseLost)
		assert.ErrorContains(t, l.observed[0], "not renewed for 3s: out of reach")

		l.fail(true)
		d = l.hold(t)
		time.Sleep(2900 * time.Millisecond)
		d.Release()
		time.Sleep(time.Minute)
		assert.False(t, closed(d.Lost()), "it was done before")
		assert.Len(t, l.observed, 1)
	})
}

// TestLostWhileHanging has each renewal hang until it is given up.
func TestLostWhileHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := hold(t, New(slow{&watched{Store: memstore.New(nil)}}, nil), twoAtOnce)
		time.Sleep(3*time.Second - 1)
		assert.False(t, closed(d.Lost()))
		time.Sleep(time.Nanosecond)
		assert.True(t, closed(d.Lost()))
		d.Release()
		time.Sleep(time.Second) // until the last call is given up
	})
}

// TestLostOfSeveral loses one of two leases: the other is renewed on.
func TestLostOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := Named("two", Rule{Name: "a", Key: Everyone, Limit: 1, Window: 3 * time.Second, Algorithm: Concurrency{}},
			Rule{Name: "b", Key: Everyone, Limit: 1, Window: 30 * time.Second, Algorithm: Concurrency{}})
		limiter := New(nil, nil)
		d := hold(t, limiter, rules)
		require.NoError(t, limiter.engine.Store.Reset(t.Context(), []core.Charge{{Policy: "two", Rule: "b"}}))
		time.Sleep(time.Second)
		assert.True(t, closed(d.Lost()))
		time.Sleep(time.Minute)
		next := hold(t, limiter, rules)
		assert.Equal(t, []string{"a"}, next.refusing())
		d.Release()
		other := hold(t, limiter, rules)
		assert.True(t, other.Allowed)
		other.Release()
	})
}

// TestNothingToLose asks decisions that hold nothing, and contexts without one.
func TestNothingToLose(t *testing.T) {
	l := newLosing(memstore.New(nil))
	first, second := l.hold(t), l.hold(t)
	r := httptest.NewRequest("GET", "/", nil)
	refused := must.Get(l.policy.decide(r, &exchange{ofRequest: ofRequest{request: r}}, 0))(t)
	peeked := must.Get(mustPolicy(New(nil, nil), twoAtOnce).Peek(t.Context(), Request{}))(t)
	free := must.Get(mustPolicy(New(nil, nil), twoAtOnce).Take(t.Context(), Request{Costs: map[string]int64{"global-concurrency": 0}}))(t)
	counted := hold(t, New(nil, nil), Named("none", Global(time.Hour, 10)))
	for _, d := range []Decision{{}, refused, peeked, free, counted} {
		assert.Nil(t, d.Lost())
	}
	assert.Nil(t, DecisionFrom(t.Context()).Lost())
	first.Release()
	second.Release()
}

// TestLostToHandler tells a handler behind two policies that one of them counts
// it no more, whichever, and though that was known before it was called.
func TestLostToHandler(t *testing.T) {
	for _, lose := range []string{"outer", "inner", "early"} {
		synctest.Test(t, func(t *testing.T) {
			limiter := New(nil, nil)
			outer := Named("outer", Rule{Name: "r", Key: Everyone, Limit: 1, Window: 3 * time.Second, Algorithm: Concurrency{}})
			inner := Named("inner", Rule{Name: "r", Key: Everyone, Limit: 1, Window: 3 * time.Second, Algorithm: Concurrency{}})
			reset := func(rules RuleSet) {
				require.NoError(t, limiter.engine.Store.Reset(t.Context(), []core.Charge{{Policy: rules.Name(), Rule: "r"}}))
			}
			handler := limiter.Limit(inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				lost := DecisionFrom(r.Context()).Lost()
				switch lose {
				case "outer":
					reset(outer)
				case "inner":
					reset(inner)
				}
				require.Equal(t, lose == "early", closed(lost))
				select {
				case <-lost:
				case <-time.After(time.Minute):
					t.Error("the handler was not told")
				}
			}))
			if lose == "early" {
				inside := handler
				handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					reset(outer)
					time.Sleep(time.Second)
					require.True(t, closed(DecisionFrom(r.Context()).Lost()))
					inside.ServeHTTP(w, r)
				})
			}
			limiter.Limit(outer)(handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		})
	}
}

// cut is what lies between a process and a store that it cannot reach at times.
type cut struct {
	core.Store
	down atomic.Bool
	last atomic.Int64 // when leases were taken or renewed last
}

func (c *cut) check() error {
	if c.down.Load() {
		return fmt.Errorf("%w: cut off", core.ErrUnavailable)
	}
	return nil
}

func (c *cut) Take(ctx context.Context, asks []core.Ask) error {
	_, err := try(c, func() (struct{}, error) {
		c.last.Store(time.Now().UnixNano())
		return struct{}{}, c.Store.Take(ctx, asks)
	})
	return err
}

func (c *cut) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	return try(c, func() ([]bool, error) {
		c.last.Store(time.Now().UnixNano())
		return c.Store.Renew(ctx, charges)
	})
}

func (c *cut) Release(ctx context.Context, charges []core.Charge) error {
	return errors.Join(c.check(), c.Store.Release(ctx, charges))
}

func try[T any](c *cut, call func() (T, error)) (result T, err error) {
	if err := c.check(); err != nil {
		return result, err
	}
	return call()
}

// TestLostBehindGuards cuts one of so many instances off the store, for longer
// than leases live. Alone it counts on, and nothing is lost. Of two the other one
// is let in, and who was cut off is told.
func TestLostBehindGuards(t *testing.T) {
	one := Named("one", Rule{Name: "r", Key: Everyone, Limit: 1, Window: 3 * time.Second, Algorithm: Concurrency{}})
	for _, instances := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			shared := memstore.New(nil)
			link := &cut{Store: shared}
			instance := func(store core.Store) *Limiter {
				return New(guard.New(store, &guard.Options{Instances: instances}), nil)
			}
			limiter := instance(link)
			d := hold(t, limiter, one)
			time.Sleep(1500 * time.Millisecond)
			link.down.Store(true)
			time.Sleep(time.Until(time.Unix(0, link.last.Load()).Add(3*time.Second)) - time.Microsecond)
			require.False(t, closed(d.Lost()))
			if instances == 2 {
				other := hold(t, instance(shared), one)
				require.False(t, other.Allowed, "not before the lease has ended")
				time.Sleep(time.Microsecond)
				require.True(t, closed(d.Lost()))
				other = hold(t, instance(shared), one)
				require.True(t, other.Allowed)
				other.Release()
			}
			time.Sleep(time.Minute)
			require.False(t, hold(t, limiter, one).Allowed, "this process counts it all the time")
			link.down.Store(false)
			time.Sleep(time.Minute)
			require.False(t, hold(t, limiter, one).Allowed)
			require.Equal(t, instances == 2, closed(d.Lost()))
			d.Release()
			require.Equal(t, instances == 2, closed(d.Lost()))
			after := hold(t, limiter, one)
			require.True(t, after.Allowed)

			// A short failure is none.
			link.down.Store(true)
			time.Sleep(1500 * time.Millisecond)
			link.down.Store(false)
			time.Sleep(time.Minute)
			require.False(t, closed(after.Lost()))
			after.Release()
		})
	}
}
