package limit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
)

// deciding decides requests and does nothing else.
var deciding = &adapter.Adapter[*http.Request]{Route: func(r *http.Request) (method, pattern string) { return "", r.Pattern }}

// TestScreenDecides checks that Adapter.Decide screens requests as Serve does, and
// that a policy outside HTTP does not.
func TestScreenDecides(t *testing.T) {
	var exempt bool
	var bar time.Duration
	limiter := limit.New(nil, &limit.Options{
		Exempt:  func(limit.Client) bool { return exempt },
		Bar:     func(limit.Client) time.Duration { return bar },
		Observe: func(r *http.Request, _ limit.Decision, _ error) { assert.Nil(t, r, "Decide is observed") },
	})
	policy := mustPolicy(limiter, limit.Named("p", limit.Global(time.Hour, 1)))
	decide := func() limit.Decision {
		d := must.Get(deciding.Decide(policy, httptest.NewRequest("GET", "/", nil), nil, 0))(t)
		return d
	}

	for range 3 {
		bar = time.Minute
		d := decide()
		assert.Equal(t, []any{false, core.ModeBarred, "p", time.Minute}, []any{d.Allowed, d.Mode, d.Policy, d.RetryAfter})
		assert.Equal(t, "[policy=p allowed=false mode=barred refusing=[] retry_after=1m0s]", d.LogValue().String())
		exempt = true
		d = decide()
		assert.Equal(t, []any{true, core.ModeExempt, "p"}, []any{d.Allowed, d.Mode, d.Policy}, "though it is barred")
		d.Release()
		assert.NoError(t, d.Wait(t.Context()))
		assert.ErrorIs(t, d.Settle(t.Context(), 0), limit.ErrSettled)
		exempt, bar = false, 0
	}
	bar = limit.Never
	d := must.Get(policy.Take(t.Context(), limit.Request{}))(t)
	assert.True(t, d.Allowed, "nothing was charged, and Take knows no request")
	bar = 0
	assert.False(t, decide().Allowed, "of the one unit")
}

// TestClient checks that Exempt and Bar get the address and the user that the rules are
// keyed by: those of the proxies and of the adapter.
func TestClient(t *testing.T) {
	var seen []string
	options := limit.Options{
		Caller:  limit.Caller[*http.Request]{User: func(*http.Request) string { return " of options " }},
		Proxies: limit.Proxies{Hops: 1},
		Exempt:  func(c limit.Client) bool { seen = append(seen, c.IP().String(), c.User()); return false },
	}
	limiter := limit.New(nil, &options)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	for user, a := range map[string]*adapter.Adapter[*http.Request]{
		"of options": {Route: deciding.Route},
		"of adapter": {Route: deciding.Route, Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "of adapter" }}},
	} {
		seen = nil
		policy := must.Get(a.Bind(limiter, "", limit.Named("p", limit.PerIP(time.Hour, 10), limit.PerUser(time.Hour, 10))))(t)
		must.Get(a.Decide(policy, r, r, 0))(t)
		assert.Equal(t, []string{"203.0.113.9", user}, seen)
		d := must.Get(policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"ip": seen[0], "user": seen[1]}}))(t)
		assert.EqualValues(t, 9, slices.Collect(d.Rules())[1].Remaining, "the rule by user has charged the same user")
	}
	c := limit.Client{Request: r, Limiter: limiter}
	assert.Equal(t, []string{"203.0.113.9", "of options"}, []string{c.IP().String(), c.User()})
	c.Limiter = nil
	assert.Equal(t, []string{"192.0.2.1", ""}, []string{c.IP().String(), c.User()})
}

// TestScreenAllocates checks that screening a request allocates nothing.
func TestScreenAllocates(t *testing.T) {
	race.Skip(t) // which drops what is put into pools
	for name, options := range screens {
		policy := mustPolicy(limit.New(nil, &options), limit.Named("p", limit.Global(time.Hour, 1)))
		r := httptest.NewRequest("GET", "/", nil)
		assert.Zero(t, testing.AllocsPerRun(100, func() { deciding.Decide(policy, r, nil, 0) }), name)
	}
}

var screens = map[string]limit.Options{
	"nil":    {},
	"exempt": {Exempt: func(limit.Client) bool { return true }},
	"barred": {Bar: func(limit.Client) time.Duration { return limit.Never }},
}

// BenchmarkScreen decides requests of exempt and barred clients, and refuses others
// by a rule. "handler" is a policy before a handler that does nothing; the answer to
// a barred request is not written.
func BenchmarkScreen(b *testing.B) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	b.Run("bare handler", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			nothing.ServeHTTP(w, r)
		}
	})
	for _, name := range []string{"nil", "exempt", "barred"} {
		options := screens[name]
		options.Refuse = func(http.ResponseWriter, *http.Request, limit.Decision) {}
		policy := mustPolicy(limit.New(nil, &options), limit.Named("p", limit.Global(time.Hour, 1)))
		b.Run("decide/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				deciding.Decide(policy, r, nil, 0)
			}
		})
		h := policy.Handler(nothing)
		b.Run("handler/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				h.ServeHTTP(w, r)
			}
		})
	}
}
