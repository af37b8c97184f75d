package operate_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

func TestObserve(t *testing.T) {
	var order []string
	note := func(name string) func(*http.Request, limit.Decision, error) {
		return func(_ *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			order = append(order, name+" "+d.Policy)
		}
	}
	limiter := limit.New(nil, &limit.Options{Observe: note("options")})
	policy := must.Get(limiter.Policy(limit.Named("p", limit.PerIP(time.Hour, 9))))(t)
	take := func() {
		must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1"}}))(t)
	}
	stop := operate.Observe(limiter, note("first"))
	stopSecond := operate.Observe(limiter, note("second"))
	take()
	assert.Equal(t, []string{"options p", "first p", "second p"}, order)
	stop()
	stop()
	order = nil
	take()
	assert.Equal(t, []string{"options p", "second p"}, order)
	stopSecond()
	order = nil
	take()
	assert.Equal(t, []string{"options p"}, order)
	assert.Panics(t, func() { operate.Observe(limiter, nil) })
}

func TestPolicies(t *testing.T) {
	limiter := limit.New(nil, nil)
	must.Get(limiter.Policy(limit.Named("b", limit.PerIP(time.Hour, 9))))(t)
	handler := limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 3)))(http.NotFoundHandler())
	names := func() []string {
		return slices.Sorted(maps.Keys(maps.Collect(operate.Policies(limiter))))
	}
	assert.Equal(t, []string{"", "b"}, names())
	r := httptest.NewRequest("GET", "/a", nil)
	r.Pattern = "GET /a"
	handler.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, []string{"GET /a", "b"}, names())
	for name, rules := range operate.Policies(limiter) {
		if name == "GET /a" {
			assert.Equal(t, "per-ip-1m", rules.Rules()[0].Name)
		}
	}
}

// TestPeekAndResetOfRules compares operate.Peek with Policy.Peek, for each kind of rule.
func TestPeekAndResetOfRules(t *testing.T) {
	for name, store := range map[string]core.Store{"memory": memstore.New(nil), "redis": guard.New(redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute}), &guard.Options{Slow: time.Minute})} {
		t.Run(name, func(t *testing.T) {
			limiter := limit.New(store, &limit.Options{Override: func(_, _, key string) int64 {
				if key == "vip" {
					return 50
				}
				return 0
			}})
			policy := must.Get(limiter.Policy(limit.Named("all", limit.MustParse("log: 5/1h per user; bucket: 4/1m per user token-bucket plan pro 8; "+
				"fixed: 9/1h per user fixed-window; counter: 30/1h per user sliding-counter; everyone: 20/1h global; flight: 3/1m per user concurrency").Rules()...)))(t)
			for _, who := range []limit.Request{
				{Keys: map[string]string{"user": "alice"}},
				{Keys: map[string]string{"user": "vip"}},
				{Keys: map[string]string{"user": "bob"}, Plan: "pro"},
			} {
				user := who.Keys["user"]
				for range 2 {
					d := must.Get(policy.Take(t.Context(), who))(t)
					defer d.Release()
				}
				whole := must.Get(policy.Peek(t.Context(), who))(t)
				for want := range whole.Rules() {
					got := must.Get(operate.Peek(t.Context(), limiter, "all", want.Name, want.Key, who.Plan))(t)
					assert.InDelta(t, want.ResetAfter, got.ResetAfter, float64(time.Minute), want.Name)
					assert.InDelta(t, want.RetryAfter, got.RetryAfter, float64(time.Minute), want.Name)
					want.ResetAfter, want.RetryAfter, got.ResetAfter, got.RetryAfter = 0, 0, 0, 0
					assert.Equal(t, want, got, user)
					assert.Less(t, got.Remaining, got.Capacity)
					if want.Name == "flight" {
						assert.ErrorContains(t, operate.Reset(t.Context(), limiter, "all", want.Name, want.Key), "in flight")
						continue
					}
					if want.Name != "everyone" {
						require.NoError(t, operate.Reset(t.Context(), limiter, "all", want.Name, want.Key))
						got = must.Get(operate.Peek(t.Context(), limiter, "all", want.Name, want.Key, who.Plan))(t)
						assert.Equal(t, got.Capacity, got.Remaining, want.Name)
					}
				}
			}
			require.NoError(t, operate.Reset(t.Context(), limiter, "all", "everyone", ""))
			got := must.Get(operate.Peek(t.Context(), limiter, "all", "everyone", "", ""))(t)
			assert.Equal(t, int64(20), got.Remaining)

			_, err := operate.Peek(t.Context(), limiter, "all", "everyone", "alice", "")
			assert.ErrorContains(t, err, `rule "everyone" of policy "all" is global, and has no key "alice": write ""`)
			assert.ErrorContains(t, operate.Reset(t.Context(), limiter, "all", "everyone", "alice"), "is global")

			_, err = operate.Peek(t.Context(), limiter, "al", "log", "alice", "")
			assert.ErrorContains(t, err, `no policy "al", or its route has had no request: there are all`)
			assert.ErrorContains(t, operate.Reset(t.Context(), limiter, "all", "lo", "alice"), `has no rule "lo": write one of log, bucket`)
		})
	}
}

// TestPeekOfFullRule checks that a full rule says when it has room, and a lease rule too.
func TestPeekOfFullRule(t *testing.T) {
	limiter := limit.New(nil, nil)
	policy := must.Get(limiter.Policy(limit.Named("p", limit.PerUser(time.Hour, 1))))(t)
	must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	got := must.Get(operate.Peek(t.Context(), limiter, "p", "per-user-1h", "alice", ""))(t)
	assert.False(t, got.Allowed)
	assert.Positive(t, got.RetryAfter)
	assert.Equal(t, "alice", got.Key)
}

// TestPeekAmbiguous checks two different rules of one name on one route.
func TestPeekAmbiguous(t *testing.T) {
	limiter := limit.New(nil, nil)
	handler := limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 2)))(http.NotFoundHandler()))
	r := httptest.NewRequest("GET", "/a", nil)
	r.Pattern = "GET /a"
	handler.ServeHTTP(httptest.NewRecorder(), r)
	_, err := operate.Peek(t.Context(), limiter, "GET /a", "per-ip-1h", "192.0.2.1", "")
	assert.ErrorContains(t, err, "two different rules")
}

// TestPeekAmbiguousScopes checks a rule that is on one route twice: once for the route, and
// once for each route of a set. They have quotas of their own.
func TestPeekAmbiguousScopes(t *testing.T) {
	limiter := limit.New(nil, nil)
	each := must.Get(limiter.Policy(limit.EachRoute(limit.PerIP(time.Hour, 1))))(t)
	handler := each.Handler(limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(http.NotFoundHandler()))
	r := httptest.NewRequest("GET", "/a", nil)
	r.Pattern = "GET /a"
	handler.ServeHTTP(httptest.NewRecorder(), r)
	_, err := operate.Peek(t.Context(), limiter, "GET /a", "per-ip-1h", "192.0.2.1", "")
	assert.ErrorContains(t, err, "two different rules")
	assert.ErrorContains(t, operate.Reset(t.Context(), limiter, "GET /a", "per-ip-1h", "192.0.2.1"), "two different rules")
}

// A switched store takes a millisecond to decide, and fails while fails is set.
type switched struct {
	core.Store
	fails atomic.Bool
}

func (s *switched) Take(ctx context.Context, asks []core.Ask) error {
	time.Sleep(time.Millisecond)
	if s.fails.Load() {
		return core.ErrUnavailable
	}
	return s.Store.Take(ctx, asks)
}

// TestStats counts waiters, reservations and an outage.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switched{Store: memstore.New(nil)}
		limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		policy := must.Get(limiter.Policy(limit.Named("p", limit.Global(time.Minute, 2))))(t)
		assert.Equal(t, operate.Stats{}, operate.ReadStats(limiter))

		var reserved []limit.Decision
		for range 3 {
			d := must.Get(policy.Take(t.Context(), limit.Request{Settle: true}))(t)
			reserved = append(reserved, d)
		}
		assert.Equal(t, operate.Stats{Reserved: 2}, operate.ReadStats(limiter))
		go policy.Wait(t.Context(), limit.Request{})
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, operate.Stats{Reserved: 2, Waiters: 1}, operate.ReadStats(limiter))

		require.NoError(t, reserved[0].Settle(t.Context(), 0))
		require.ErrorIs(t, reserved[0].Settle(t.Context(), 0), limit.ErrSettled)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, operate.Stats{Reserved: 2, Settled: 1}, operate.ReadStats(limiter))

		store.fails.Store(true)
		other := must.Get(limiter.Policy(limit.Named("other", limit.Global(time.Minute, 100))))(t)
		assert.False(t, operate.ReadStats(limiter).Unavailable)
		for range 5 {
			must.Get(other.Take(t.Context(), limit.Request{}))(t)
			assert.True(t, operate.ReadStats(limiter).Unavailable)
		}
		store.fails.Store(false)
		time.Sleep(2 * time.Second)
		assert.False(t, operate.ReadStats(limiter).Unavailable, "also without a request")
	})
}

// TestPoliciesWithoutRequest checks that a set on a route stands there before its first
// request, and goes with the handler that has it.
func TestPoliciesWithoutRequest(t *testing.T) {
	limiter := limit.New(nil, nil)
	names := func() (list []string) {
		for name, set := range operate.Policies(limiter) {
			list = append(list, name+"|"+set.String())
		}
		return list
	}
	mux := http.NewServeMux()
	mux.Handle("GET /a", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 5)))(http.NotFoundHandler()))
	dropped := limiter.Limit(limit.EachRoute(limit.PerIP(time.Minute, 6)))
	assert.Equal(t, []string{"|5/1m per ip", "|6/1m per ip"}, names())
	runtime.KeepAlive(dropped)
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	runtime.GC()
	assert.Equal(t, []string{"GET /a|5/1m per ip"}, names())
}
