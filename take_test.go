package limit

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// mustPolicy binds rules in which nothing is wrong.
func mustPolicy(l *Limiter, rules RuleSet) *Policy {
	p, err := l.Policy(rules)
	if err != nil {
		panic(err)
	}
	return p
}

// look returns what is left of the rules of a named policy.
func look(t *testing.T, l *Limiter, rules RuleSet, keys map[string]string) Decision {
	t.Helper()
	p := mustPolicy(l, rules).current.Load()
	run := p.named.plan.Load().Begin()
	defer run.End()
	terms := must.Get(p.fill(run, &Request{Keys: keys}))(t)
	var d Decision
	require.NoError(t, run.Look(t.Context(), &d.of))
	d.describe(p, p.named.name, terms)
	return d
}

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// serve answers GET / within a context; nil means the background.
func serve(h http.Handler, ctx context.Context) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	if ctx != nil {
		r = r.WithContext(ctx)
	}
	h.ServeHTTP(w, r)
	return w
}

// TestCostPanics checks that a panic is that of the handler, and takes nothing.
func TestCostPanics(t *testing.T) {
	panics := true
	h := New(nil, nil).Limit(Rules(
		Global(time.Hour, 1),
		Rule{Name: "b", Key: Everyone, Limit: 1, Window: time.Hour, Cost: rules.CostBy("units", func(*http.Request) int64 {
			if panics {
				panic(http.ErrAbortHandler)
			}
			return 1
		})},
	))(answer(204))
	for range 3 {
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { serve(h, nil) })
	}
	panics = false
	assert.Equal(t, 204, serve(h, nil).Code)
	assert.Equal(t, 429, serve(h, nil).Code)
}

func TestTakeN(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("mails", PerUser(time.Hour, 5), Global(time.Hour, 100))
	alice := map[string]string{"user": "alice"}
	for _, test := range []struct {
		n         int64
		allowed   bool
		remaining [2]int64
		retry     bool
	}{
		{3, true, [2]int64{2, 97}, false},
		{3, false, [2]int64{2, 97}, true},
		{6, false, [2]int64{2, 97}, false},
		{math.MaxInt64, false, [2]int64{2, 97}, false},
		{2, true, [2]int64{0, 95}, false},
	} {
		d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Keys: alice, Cost: test.n}))(t)
		assert.Equal(t, test.allowed, d.Allowed, test.n)
		left := slices.Collect(d.Rules())
		assert.Equal(t, test.remaining, [2]int64{left[0].Remaining, left[1].Remaining}, test.n)
		assert.Equal(t, test.retry, d.RetryAfter > 0 && d.RetryAfter < Never, test.n)
		assert.Equal(t, test.n > 5, d.RetryAfter == Never, test.n)
	}
	_, err := mustPolicy(limiter, rules).Take(t.Context(), Request{Keys: alice, Cost: -1})
	assert.EqualError(t, err, "limit: cost -1: write 0 or more")
	assert.False(t, errors.Is(err, ErrUndecided), "a mistake of the program")
	_, err = mustPolicy(limiter, rules).Take(t.Context(), Request{Cost: 1})
	assert.ErrorContains(t, err, `no key "user"`)

	costly := Named("costly", Rule{Key: Everyone, Limit: 5, Window: time.Hour, Cost: otherCost})
	_, err = mustPolicy(limiter, costly).Take(t.Context(), Request{})
	assert.EqualError(t, err, `limit: rule "5/1h global cost units": Cost is a function of an HTTP request: set limit.Request.Cost`)
	d := must.Get(mustPolicy(limiter, costly).Take(t.Context(), Request{Cost: 4}))(t)
	assert.EqualValues(t, 1, slices.Collect(d.Rules())[0].Remaining)
}

// TestCosts takes different costs of the rules of one policy.
func TestCosts(t *testing.T) {
	p := mustPolicy(New(nil, nil), Named("mails", PerUser(time.Hour, 5), Rule{Name: "bytes", Key: Everyone, Limit: 100, Window: time.Hour}))
	alice := map[string]string{"user": "alice"}
	for _, test := range []struct {
		request   Request
		allowed   bool
		remaining [2]int64
	}{
		{Request{Keys: alice, Costs: map[string]int64{"bytes": 60}}, true, [2]int64{4, 40}},
		{Request{Keys: alice, Costs: map[string]int64{"bytes": 60}}, false, [2]int64{4, 40}},
		{Request{Keys: alice, Cost: 2, Costs: map[string]int64{"bytes": 0}}, true, [2]int64{2, 40}},
		{Request{Keys: alice, Costs: map[string]int64{"bytes": 0, "per-user-1h": 0}}, true, [2]int64{2, 40}},
		{Request{Keys: alice, Cost: 2}, true, [2]int64{0, 38}},
	} {
		d := must.Get(p.Take(t.Context(), test.request))(t)
		assert.Equal(t, test.allowed, d.Allowed)
		left := slices.Collect(d.Rules())
		assert.Equal(t, test.remaining, [2]int64{left[0].Remaining, left[1].Remaining})
	}
	for want, request := range map[string]Request{
		`limit: Costs["byte"]: no rule has that name: write one of per-user-1h, bytes`: {Keys: alice, Costs: map[string]int64{"byte": 1}},
		`limit: Costs["bytes"]: cost -1: write 0 or more`:                              {Keys: alice, Costs: map[string]int64{"bytes": -1}},
		"limit: UpTo takes as many units of each rule: leave out Costs":                {Keys: alice, Cost: 1, Costs: map[string]int64{"bytes": 1}, UpTo: true},
		"limit: UpTo needs a Cost: write how many units to take at most":               {Keys: alice, UpTo: true},
	} {
		_, err := p.Take(t.Context(), request)
		assert.EqualError(t, err, want)
		assert.ErrorAs(t, err, new(*rules.Error))
	}
	for _, request := range []Request{{Keys: alice, Cost: 2}, {Keys: alice, Settle: true}} {
		_, err := p.Peek(t.Context(), request)
		assert.ErrorContains(t, err, "Peek reports the outcome of a request of cost 1")
	}
	_, err := p.Wait(t.Context(), Request{Keys: alice, Cost: 2, UpTo: true})
	assert.ErrorContains(t, err, "leave out UpTo")
}

// TestPeek compares what Peek says with what Take then does, by each algorithm.
func TestPeek(t *testing.T) {
	for _, text := range []string{
		"3/1h per user", "3/1h per user fixed-window", "3/1h per user sliding-cells", "3/1h per user sliding-counter",
		"3/1h per user token-bucket", "3/1h per user leaky-bucket", "3/1h per user queue burst 2", "3/month per user zone UTC",
		"3/1h per user token-bucket empty", "3/1h per user queue burst 5 wait 20m",
	} {
		limiter := New(nil, nil)
		rules := Named("a", append(MustParse(text).Declared(), Global(time.Hour, 100))...)
		alice := map[string]string{"user": "alice"}
		for range 6 {
			var peeked Decision
			for range 3 {
				peeked = must.Get(mustPolicy(limiter, rules).Peek(t.Context(), Request{Keys: alice}))(t)
			}
			d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Keys: alice}))(t)
			require.Equal(t, d.Allowed, peeked.Allowed, text)
			require.Equal(t, d.refusing(), peeked.refusing(), text)
			require.InDelta(t, d.RetryAfter, peeked.RetryAfter, float64(time.Second), text)
			taken := int64(0)
			if d.Allowed {
				taken = 1
			}
			require.Equal(t, slices.Collect(d.Rules())[1].Remaining, slices.Collect(peeked.Rules())[1].Remaining-taken, text)
			require.Equal(t, d.Policy, peeked.Policy)
		}
		d := must.Get(mustPolicy(limiter, rules).Peek(t.Context(), Request{Keys: map[string]string{"user": "bob"}}))(t)
		assert.Zero(t, d.Delay)
	}
	_, err := mustPolicy(New(nil, nil), Rules(Global(time.Hour, 1))).Peek(t.Context(), Request{})
	assert.ErrorContains(t, err, "outside HTTP a policy needs a name")
	_, err = mustPolicy(New(nil, nil), Named("a", PerIP(time.Hour, 1))).Peek(t.Context(), Request{})
	assert.ErrorContains(t, err, `no key "ip"`)
}

// charged counts the units that a store is asked for.
type charged struct {
	core.Store
	units int64
}

func (c *charged) Take(ctx context.Context, asks []core.Ask) error {
	for _, charge := range asks[0].Charges {
		c.units += charge.Cost
	}
	return c.Store.Take(ctx, asks)
}

func TestPeekTakesNothing(t *testing.T) {
	store := &charged{Store: memstore.New(nil)}
	limiter := New(store, nil)
	must.Get(mustPolicy(limiter, Named("a", Rule{Key: Everyone, Limit: 5, Window: time.Hour, Cost: otherCost})).Peek(t.Context(), Request{}))(t)
	assert.Zero(t, store.units)
}

var otherCost = rules.CostBy("units", func(*http.Request) int64 { return 2 })
