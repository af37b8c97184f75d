package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

// keysOf returns the keys of a decision by rule.
func keysOf(d limit.Decision) map[string]string {
	keys := make(map[string]string)
	for r := range d.Rules() {
		keys[r.Name] = r.Key
	}
	return keys
}

// TestKeysOfDecisions checks that a decision has the keys that it charged, also after
// other requests were decided.
func TestKeysOfDecisions(t *testing.T) {
	var seen []limit.Decision
	limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) { seen = append(seen, d) }})
	handler := limiter.Limit(limit.MustParse("1/1h per ip; 5/1h per header X-Key; 9/1h global"))(http.NotFoundHandler())
	for i := range 4 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "GET /{$}"
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%2)
		r.Header.Set("X-Key", fmt.Sprint("k", i))
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Len(t, seen, 4)
	for i, d := range seen {
		assert.Equal(t, i < 2, d.Allowed)
		assert.Equal(t, map[string]string{"per-ip-1h": fmt.Sprintf("192.0.2.%d", i%2), "per-header-x-key-1h": fmt.Sprint("k", i), "global-1h": ""}, keysOf(d))
	}

	for n := 1; n <= 16; n++ {
		var rules []limit.Rule
		want := make(map[string]string)
		for i := range n {
			rules = append(rules, limit.Rule{Name: fmt.Sprint("r", i), Key: limit.ByHeader(fmt.Sprint("K", i)), Limit: 1, Window: time.Hour})
			want[fmt.Sprint("r", i)] = fmt.Sprint("of ", i)
		}
		policy := must.Get(limiter.Policy(limit.Named(fmt.Sprint("p", n), rules...)))(t)
		request := limit.Request{Keys: make(map[string]string)}
		for i := range n {
			request.Keys[fmt.Sprint("header K", i)] = fmt.Sprint("of ", i)
		}
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Minute))
		defer cancel()
		peeked := must.Get(policy.Peek(ctx, request))(t)
		taken := must.Get(policy.Take(ctx, request))(t)
		_, err := policy.Wait(ctx, request)
		var refused *limit.RefusedError
		require.ErrorAs(t, err, &refused)
		for _, d := range []limit.Decision{peeked, taken, refused.Decision} {
			assert.Equal(t, want, keysOf(d))
		}
	}
}

// TestKeyOfLateSlot checks a refusal that was an admission whose slot comes too late.
func TestKeyOfLateSlot(t *testing.T) {
	policy := must.Get(limit.New(nil, nil).Policy(limit.Named("jobs", limit.Rule{Name: "q", Key: limit.ByUser, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{}})))(t)
	request := limit.Request{Keys: map[string]string{"user": "alice"}}
	must.Get(policy.Take(t.Context(), request))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := must.Get(policy.Take(ctx, request))(t)
	assert.False(t, d.Allowed)
	assert.Equal(t, map[string]string{"q": "alice"}, keysOf(d))
}

// A slow store takes a millisecond to decide.
type slow struct{ core.Store }

func (s slow) Take(ctx context.Context, asks []core.Ask) error {
	time.Sleep(time.Millisecond)
	return s.Store.Take(ctx, asks)
}

// TestLatency measures the store for Observe alone, and waits of Wait.
func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slow{memstore.New(nil)}
		var seen limit.Decision
		limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler),
			Observe: func(_ *http.Request, d limit.Decision, _ error) { seen = d }})
		policy := mustPolicy(limiter, limit.Named("p", limit.Global(time.Second, 1)))
		must.Get(policy.Take(t.Context(), limit.Request{}))(t)
		assert.Equal(t, time.Millisecond, seen.Latency)
		assert.Zero(t, seen.Waited)

		must.Get(policy.Wait(t.Context(), limit.Request{}))(t)
		assert.Equal(t, time.Millisecond, seen.Latency)
		assert.InDelta(t, time.Second, seen.Waited, float64(5*time.Millisecond))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := policy.Wait(ctx, limit.Request{})
		require.True(t, errors.As(err, new(*limit.RefusedError)))
		assert.Zero(t, seen.Waited, "refused at once")

		d := must.Get(mustPolicy(limit.New(store, nil), limit.Named("p", limit.Global(time.Second, 1))).Take(t.Context(), limit.Request{}))(t)
		assert.Zero(t, d.Latency)
	})
}

// TestDecisionRules ranges over the outcomes without an allocation.
func TestDecisionRules(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.Global(time.Hour, 5), limit.PerIP(time.Minute, 3)))
	d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}}))(t)
	rules := slices.Collect(d.Rules())
	require.Len(t, rules, 2)
	assert.EqualValues(t, 4, rules[0].Remaining)
	assert.EqualValues(t, 2, rules[1].Remaining)
	assert.Empty(t, slices.Collect(new(limit.Decision).Rules()))
	for rule := range d.Rules() {
		assert.Equal(t, rules[0], rule)
		break
	}
	left := int64(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for rule := range d.Rules() {
			left += rule.Remaining
		}
	}))
	assert.EqualValues(t, 101*(4+2), left)
}
