package limit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

func TestInvalidWatchers(t *testing.T) {
	for _, test := range []struct {
		change func(*Rule)
		want   string
	}{
		{func(r *Rule) { r.Shadow = &rules.Shadow{Enforced: 100} }, "enforced 100: write the percentage of keys, 1 to 99"},
		{func(r *Rule) { r.Shadow = &rules.Shadow{Enforced: -1} }, "enforced -1: write the percentage of keys, 1 to 99"},
		{func(r *Rule) { r.Shadow, r.OnRefusal.Mark = new(rules.Shadow), true }, "shadow and mark: write one of them"},
		{func(r *Rule) { r.Shadow = &rules.Shadow{Replaces: "nothing"} }, `replaces "nothing": write the name of a rule of the same set`},
		{func(r *Rule) { r.Shadow = &rules.Shadow{Replaces: "watcher"} }, `replaces "watcher": write the name of a rule of the same set that is not a shadow`},
		{func(r *Rule) { r.Shadow, r.Algorithm = new(rules.Shadow), Concurrency{} }, "concurrency cannot watch"},
		{func(r *Rule) { r.OnRefusal.Mark, r.Algorithm = true, Concurrency{} }, "concurrency cannot watch"},
	} {
		watcher := Rule{Name: "watcher", Key: ByIP, Limit: 1, Window: time.Minute}
		test.change(&watcher)
		old := Rule{Name: "old", Key: ByIP, Limit: 2, Window: time.Minute}
		assert.ErrorContains(t, Rules(watcher, old).Validate(), test.want)
	}
	derived := must.Get(MustParse("old: 1/1m per ip; 2/1m per ip shadow replaces old").Derive(".x", func(r Rule) Rule { return r }))(t)
	assert.NoError(t, derived.Validate())
	assert.Equal(t, "old.x", derived.Rules()[1].Shadow.Replaces)
}

// TestMarkIsInherited checks which rules cannot mark.
func TestMarkIsInherited(t *testing.T) {
	const text = "a: 1/1m global; b: 1/1m global queue; c: 1/1m global concurrency; d: 1/1m global shadow; e: 1/1m global refuse 503"
	inherited := []Refusal{{Mark: true}, {}, {}, {}, {Status: 503}}
	p := must.Get(New(nil, nil).Policy(MustParse(text).OnRefusal(Refusal{Mark: true})))(t)
	assert.Equal(t, inherited, p.current.Load().refusals)
	p = must.Get(New(nil, &Options{OnRefusal: Refusal{Mark: true}}).Policy(MustParse(text)))(t)
	assert.Equal(t, inherited, p.current.Load().refusals)
}

// TestEnforcedKeys checks that a key is enforced or not for all of its requests, and that
// a higher percentage adds keys.
func TestEnforcedKeys(t *testing.T) {
	enforced := func(percent int) (keys []string) {
		rule := Rule{Name: "new", Key: ByUser, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{Enforced: percent}}
		p := must.Get(New(nil, &Options{MaxKeys: 10_000}).Policy(Named("p", rule)))(t)
		for i := range 1000 {
			key := fmt.Sprint(i)
			refused := 0
			for range 4 {
				d := must.Get(p.Take(t.Context(), Request{Keys: map[string]string{"user": key}}))(t)
				r := slices.Collect(d.Rules())[0]
				assert.Equal(t, d.Allowed, r.Shadow || r.Allowed)
				assert.Equal(t, d.Allowed, !r.Refused)
				if !d.Allowed {
					refused++
					assert.Equal(t, []string{"new"}, d.refusing())
					assert.Nil(t, shadowed(d))
				} else if !r.Allowed {
					assert.Equal(t, []string{"new"}, shadowed(d))
					assert.Nil(t, d.refusing())
				}
			}
			require.Contains(t, []int{0, 3}, refused)
			if refused > 0 {
				keys = append(keys, key)
			}
		}
		return keys
	}
	ten, fifty := enforced(10), enforced(50)
	assert.InDelta(t, 100, len(ten), 40)
	assert.InDelta(t, 500, len(fifty), 70)
	assert.Subset(t, fifty, ten)
	assert.Equal(t, ten, enforced(10))
}

// TestWatchersInHeaders checks which rules clients see.
func TestWatchersInHeaders(t *testing.T) {
	for _, test := range []struct {
		rules         string
		policy, state string
		nearest       string
	}{
		{"a: 3/1h global; b: 2/1h global shadow", `"a";q=3;w=3600`, `"a";r=2;t=3600`, "3"},
		{"b: 2/1h global hidden; a: 3/1h global; c: 2/1h global hidden", `"a";q=3;w=3600`, `"a";r=2;t=3600`, "3"},
		{"a: 3/1h global; b: 2/1h global", `"a";q=3;w=3600, "b";q=2;w=3600`, `"a";r=2;t=3600, "b";r=1;t=3600`, "2"},
		{"a: 3/1h global hidden; b: 2/1h global shadow", "", "", ""},
		{"a: 1/1h global refuse mark; b: 9/1h global hidden", `"a";q=1;w=3600`, `"a";r=0;t=3600`, "1"},
	} {
		l := New(nil, &Options{Headers: Draft11 | XRateLimit})
		w := httptest.NewRecorder()
		l.Limit(MustParse(test.rules))(nothing).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, test.policy, w.Header().Get("RateLimit-Policy"), test.rules)
		assert.Equal(t, test.state, w.Header().Get("RateLimit"), test.rules)
		assert.Equal(t, test.nearest, w.Header().Get("X-RateLimit-Limit"), test.rules)
		if test.policy == "" {
			assert.Empty(t, w.Header(), "no empty fields")
		}
	}
}

// marked returns the names of the rules that marked a request, over all sets on it.
func marked(d Decision) (names []string) {
	if outer, ok := d.Outer(); ok {
		names = marked(outer)
	}
	for rule := range d.Rules() {
		if rule.Marked {
			names = append(names, rule.Name)
		}
	}
	return names
}

// TestMarks checks where marks are seen, with two policies on one request.
func TestMarks(t *testing.T) {
	for _, style := range []Headers{0, NoHeaders} {
		var last []Decision
		l := New(nil, &Options{Headers: style, Observe: func(_ *http.Request, d Decision, err error) {
			assert.NoError(t, err)
			last = append(last, d)
		}})
		var seen []string
		h := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = marked(DecisionFrom(r.Context())) }))
		for _, set := range []RuleSet{
			Named("inner", MustParse("c: 1/1h global refuse mark").Rules()...),
			Named("outer", MustParse("a: 1/1h global refuse mark; h: 1/1h global refuse mark hidden; s: 1/1h global shadow; b: 2/1h global").Rules()...)} {
			p := must.Get(l.Policy(set))(t)
			h = p.Handler(h)
		}
		send := func() *httptest.ResponseRecorder {
			last, seen = nil, nil
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w
		}
		w := send()
		assert.Empty(t, w.Header().Values("RateLimit-Marked"))
		assert.Empty(t, seen)
		assert.Equal(t, "admitted", last[0].Outcome())

		w = send()
		assert.Equal(t, 200, w.Code)
		if style == NoHeaders {
			assert.Empty(t, w.Header())
		} else {
			assert.Equal(t, []string{"a", "c"}, w.Header().Values("RateLimit-Marked"))
		}
		assert.Equal(t, []string{"a", "h", "c"}, seen)
		assert.Equal(t, "marked", last[0].Outcome())
		assert.Equal(t, []string{"a", "h"}, marked(last[0]))
		assert.Equal(t, []string{"s"}, shadowed(last[0]))
		assert.True(t, slices.Collect(last[0].Rules())[0].Marked)
		assert.False(t, slices.Collect(last[0].Rules())[0].Refused)
		assert.False(t, slices.Collect(last[0].Rules())[2].Marked)
		assert.True(t, slices.Collect(last[0].Rules())[2].Shadow)

		w = send()
		assert.Equal(t, 429, w.Code)
		assert.Contains(t, w.Body.String(), `"violated-policies":["b"]`)
		assert.Empty(t, w.Header().Values("RateLimit-Marked"))
		assert.Equal(t, []string{"b"}, last[0].refusing())
	}
	assert.Nil(t, marked(DecisionFrom(context.Background())))
}

// TestWatchersCountARequestOnce has requests ask the store several times.
func TestWatchersCountARequestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		p := must.Get(l.Policy(Named("p", MustParse("a: 2/1s global refuse wait 20s; s: 4/1h global shadow; m: 5/1h global refuse mark").Rules()...)))(t)
		var seen []string
		h := p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = append(seen, fmt.Sprint(marked(DecisionFrom(r.Context()))))
		}))
		for range 3 {
			patient(t.Context(), h, "")
		}
		d := must.Get(p.Wait(t.Context(), Request{}))(t)
		assert.Empty(t, shadowed(d))
		_, took := patient(t.Context(), h, "")
		assert.NotZero(t, took)
		left := func() (n []int64) {
			d := must.Get(p.Peek(t.Context(), Request{}))(t)
			for r := range d.Rules() {
				n = append(n, r.Remaining)
			}
			return n
		}
		assert.Equal(t, []int64{0, 0}, left()[1:])
		assert.Equal(t, left(), left(), "a look charges nothing")
		patient(t.Context(), h, "")
		assert.Equal(t, []string{"[]", "[]", "[]", "[]", "[m]"}, seen, "as it was when the request came")

		time.Sleep(2 * time.Hour)
		must.Get(p.Take(t.Context(), Request{}))(t)
		d = must.Get(p.Take(t.Context(), Request{Cost: 2, UpTo: true}))(t)
		require.True(t, d.Allowed)
		assert.EqualValues(t, 1, d.Taken)
		assert.Equal(t, []int64{0, 1, 2}, left(), "once, what it asked for")
	})
}

// TestWatchersAreSettledOnce settles requests that ask the store several times: what the
// watching rules took is corrected to the true cost, once.
func TestWatchersAreSettledOnce(t *testing.T) {
	list := MustParse("a: 10/1s global refuse wait 20s; s: 100/1h global shadow; m: 100/1h global refuse mark").Rules()
	left := func(p *Policy) (n []int64) {
		d := must.Get(p.Peek(t.Context(), Request{}))(t)
		for _, r := range slices.Collect(d.Rules())[1:] {
			n = append(n, r.Remaining)
		}
		return n
	}
	for n, want := range map[int64]int64{2: 95, 20: 77} {
		synctest.Test(t, func(t *testing.T) {
			p := mustPolicy(New(nil, nil), Named("p", list...))
			for range 2 {
				d := must.Get(p.Wait(t.Context(), Request{Cost: 8, Settle: true}))(t)
				require.NoError(t, d.Settle(t.Context(), 3))
			}
			assert.Equal(t, []int64{94, 94}, left(p))

			time.Sleep(2 * time.Hour)
			must.Get(p.Take(t.Context(), Request{Cost: 3}))(t)
			d := must.Get(p.Take(t.Context(), Request{Cost: 8, UpTo: true, Settle: true}))(t)
			require.EqualValues(t, 7, d.Taken)
			require.NoError(t, d.Settle(t.Context(), n))
			assert.Equal(t, []int64{want, want}, left(p))
			assert.ErrorIs(t, d.Settle(t.Context(), n), ErrSettled)
		})
	}
	for i := range list {
		list[i].Cost = rules.CostBy("units", func(*http.Request) int64 { return 8 })
		list[i].Settle = rules.SettleBy("units", func(*http.Request, int) int64 { return 3 })
	}
	synctest.Test(t, func(t *testing.T) {
		p := mustPolicy(New(nil, nil), Named("p", list...))
		h := p.Handler(nothing)
		for i := range 2 {
			w, took := patient(t.Context(), h, "")
			require.Equal(t, 204, w.Code)
			require.Equal(t, i == 1, took > 0)
		}
		assert.Equal(t, []int64{94, 94}, left(p))
	})
}

// TestShadowQueue checks that a shadow delays no request.
func TestShadowQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(nil, nil).Limit(MustParse("60/1m global queue burst 1 shadow; 3/1h global"))(nothing)
		for i := range 4 {
			w, took := patient(t.Context(), h, "")
			assert.Equal(t, i < 3, w.Code == 204)
			assert.Zero(t, took)
		}
	})
}

// TestWatchersDuringAnOutage checks that a watching rule refuses nothing then either.
func TestWatchersDuringAnOutage(t *testing.T) {
	l := New(&scripted{before: func(int64) error { return core.ErrUnavailable }}, nil)
	h := l.Limit(MustParse("1/1h global shadow on-error refuse; b: 9/1h global"))(nothing)
	for range 3 {
		w, _ := patient(t.Context(), h, "")
		assert.Equal(t, 204, w.Code)
	}
}

// shadowed returns the names of the shadow rules that would have refused a request.
func shadowed(d Decision) (names []string) {
	for rule := range d.Rules() {
		if rule.Shadow && !rule.Allowed {
			names = append(names, rule.Name)
		}
	}
	return names
}
