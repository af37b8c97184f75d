package limit

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
)

// TestBansDoNotDegrade has barred clients meet a Degrade of their set or of Options. It
// is for the other rules, and a ban has it only with a Fallback.
func TestBansDoNotDegrade(t *testing.T) {
	const text = "1/1h per ip; 2/1h per ip ban 15m"
	degrade := Refusal{Degrade: true}
	statuses := func(l *Limiter, set RuleSet) (list []int) {
		p := must.Get(l.Policy(Named("p", set.Rules()...)))(t)
		h := p.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(map[bool]int{true: 206, false: 204}[DecisionFrom(r.Context()).Outcome() == "degraded"])
		}))
		for range 4 {
			w, _ := patient(t.Context(), h, "")
			list = append(list, w.Code)
		}
		return list
	}
	assert.Equal(t, []int{204, 206, 429, 429}, statuses(New(nil, nil), MustParse(text).OnRefusal(degrade)))
	assert.Equal(t, []int{204, 206, 429, 429}, statuses(New(nil, &Options{OnRefusal: degrade}), MustParse(text)))
	with := Refusal{Degrade: true, Fallback: http.RedirectHandler("/", http.StatusTemporaryRedirect)}
	assert.Equal(t, []int{204, 307, 429, 429}, statuses(New(nil, &Options{OnRefusal: with}), MustParse(text)), "it is not the ban's")
	assert.Equal(t, []int{204, 303, 303, 303}, statuses(New(nil, nil), MustParse(text).OnRefusal(Refusal{Redirect: "/busy"})))
	assert.Equal(t, []int{204, 206, 303, 303},
		statuses(New(nil, &Options{OnRefusal: Refusal{Redirect: "/busy"}}), MustParse(text).OnRefusal(degrade)), "that of Options is next")

	rules := MustParse(text).OnRefusal(degrade).Rules()
	rules[1].OnRefusal = with
	assert.Equal(t, []int{204, 206, 307, 307}, statuses(New(nil, nil), Rules(rules...)))
	rules[1].OnRefusal = degrade
	assert.EqualError(t, Rules(rules...).Validate(), `limit: rule "per-ip-ban: 2/1h per ip ban 15m refuse degrade": a ban that degrades lets barred clients `+
		"reach the handler: write a Fallback, or refuse 429 in place of degrade")
}

func TestInvalidRefusals(t *testing.T) {
	for _, test := range []struct {
		refusal Refusal
		want    string
	}{
		{Refusal{Wait: -1}, "refuse wait -1ns: write how long a request may wait"},
		{Refusal{Waiters: 5}, "5 waiters: they need a Wait"},
		{Refusal{Waiters: -1, Wait: 1}, "-1 waiters: write how many may wait for one key, or 0 for 100"},
		{Refusal{Status: 404}, "status 404: write 429 or 503"},
		{Refusal{Redirect: "/busy", Status: 301}, "status 301 of a redirect: write 302, 303 or 307"},
		{Refusal{Redirect: "/busy", Status: 429}, "status 429 of a redirect"},
		{Refusal{Redirect: "/busy", Degrade: true}, "write one of Redirect, Degrade and Mark"},
		{Refusal{Degrade: true, Mark: true}, "write one of Redirect, Degrade and Mark"},
		{Refusal{Degrade: true, Status: 503}, "status 503: leave it out, since the handler answers"},
		{Refusal{Mark: true, Status: 429}, "status 429: leave it out, since the handler answers"},
		{Refusal{Mark: true, Wait: time.Second}, "a rule that marks refuses nothing: leave out the Wait"},
		{Refusal{Fallback: http.NotFoundHandler()}, "a Fallback: write Degrade: true with it"},
	} {
		rule := PerIP(time.Second, 1)
		rule.OnRefusal = test.refusal
		assert.ErrorContains(t, Rules(rule).Validate(), test.want)
		assert.ErrorContains(t, Rules(PerIP(time.Second, 1)).OnRefusal(test.refusal).Validate(), test.want)
		assert.ErrorContains(t, (&Options{OnRefusal: test.refusal}).validate(), test.want)
	}
	assert.ErrorContains(t, (&Options{Waiters: -1}).validate(), "Waiters -1: write how many requests may wait at once, or 0 for 10000")
}

func TestRefusalWithoutText(t *testing.T) {
	fallback := Rules(PerIP(time.Second, 1)).OnRefusal(Refusal{Degrade: true, Fallback: http.NotFoundHandler()})
	_, err := fallback.MarshalText()
	assert.EqualError(t, err, `limit: rule "1/1s per ip refuse degrade": a handler has no text: leave out the Fallback`)
	_, err = Rules(PerIP(time.Second, 1)).OnRefusal(Refusal{Redirect: "/a;b"}).MarshalText()
	assert.ErrorContains(t, err, "percent-encode them as %3B")
}

// TestRefusalIsInherited checks whose refusal a rule has.
func TestRefusalIsInherited(t *testing.T) {
	own := PerIP(time.Minute, 1)
	own.OnRefusal.Status = 429
	set := Rules(own, Global(time.Minute, 1)).OnRefusal(Refusal{Redirect: "/set"})
	assert.Equal(t, Refusal{Status: 429}, set.Rules()[0].OnRefusal)
	assert.Equal(t, Refusal{Redirect: "/set"}, set.Rules()[1].OnRefusal)

	l := New(nil, &Options{OnRefusal: Refusal{Status: 503}})
	p := must.Get(l.Policy(Rules(own, Global(time.Minute, 1))))(t)
	assert.Equal(t, []Refusal{{Status: 429}, {Status: 503}}, p.current.Load().refusals)
	p = must.Get(New(nil, nil).Policy(Rules(own, Global(time.Minute, 1))))(t)
	assert.Nil(t, p.current.Load().refusals, "nothing to look at for each request")
}

// TestStrictestOutcome is the table of precedence.
func TestStrictestOutcome(t *testing.T) {
	const (
		admits   = "-" // a rule with room
		answers  = "429"
		busy     = "503"
		redirect = "redirect /a"
		another  = "redirect /b 307"
		degrades = "degrade"
	)
	for _, test := range []struct {
		rules   string // what each meets, separated by commas
		outcome string
		status  int
		at      string // the Location
	}{
		{"-,429", "refused", 429, ""},
		{"429,503", "refused", 429, ""},
		{"503,429", "refused", 503, ""},
		{"redirect /a,503", "refused", 503, ""},
		{"429,redirect /a", "refused", 429, ""},
		{"degrade,429", "refused", 429, ""},
		{"degrade,503,redirect /a", "refused", 503, ""},
		{"degrade,redirect /a", "redirected", 303, "/a"},
		{"redirect /a,degrade", "redirected", 303, "/a"},
		{"redirect /b 307,redirect /a", "redirected", 307, "/b"},
		{"redirect /a,redirect /b 307", "redirected", 303, "/a"},
		{"-,degrade", "degraded", 200, ""},
		{"degrade,degrade", "degraded", 200, ""},
		{"-,redirect /b 307", "redirected", 307, "/b"},
	} {
		var text []string
		for i, refusal := range strings.Split(test.rules, ",") {
			rule := string(rune('a'+i)) + ": 1/1h global"
			if refusal == admits {
				rule = string(rune('a'+i)) + ": 2/1h global refuse 429"
			} else {
				rule += " refuse " + refusal
			}
			text = append(text, rule)
		}
		var d Decision
		l := New(nil, &Options{Observe: func(_ *http.Request, seen Decision, err error) {
			assert.NoError(t, err)
			d = seen
		}})
		h := l.Limit(MustParse(strings.Join(text, "; ")))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, d.Outcome() == "degraded", DecisionFrom(r.Context()).Outcome() == "degraded")
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, "admitted", d.Outcome())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, test.outcome, d.Outcome(), test.rules)
		assert.Equal(t, test.status, w.Code, test.rules)
		assert.Equal(t, test.at, w.Header().Get("Location"), test.rules)
	}
}

// TestOutcomeOfAllSets has a handler ask for the outcome behind two sets. What observes a
// decision sees its own set alone.
func TestOutcomeOfAllSets(t *testing.T) {
	for _, row := range []struct{ outer, inner, want string }{
		{"2/1h global", "2/1h global", "admitted"},
		{"1/1h global refuse mark", "2/1h global", "marked"},
		{"2/1h global", "1/1h global refuse mark", "marked"},
		{"1/1h global refuse degrade", "2/1h global", "degraded"},
		{"2/1h global", "1/1h global refuse degrade", "degraded"},
		{"1/1h global refuse degrade", "1/1h global refuse mark", "degraded"},
		{"1/1h global refuse mark", "1/1h global refuse degrade", "degraded"},
		{"1/1h global shadow", "2/1h global", "admitted"},
	} {
		var handled string
		var observed []string
		l := New(nil, &Options{Observe: func(_ *http.Request, d Decision, _ error) { observed = append(observed, d.Outcome()) }})
		h := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handled = DecisionFrom(r.Context()).Outcome() }))
		h = mustPolicy(l, Named("inner", MustParse(row.inner).Rules()...)).Handler(h)
		h = mustPolicy(l, Named("outer", MustParse(row.outer).Rules()...)).Handler(h)
		for range 2 {
			observed = nil
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		assert.Equal(t, row.want, handled, "%+v", row)
		alone := func(text string) string {
			_, refusal, _ := strings.Cut(text, " refuse ")
			return map[string]string{"": "admitted", "mark": "marked", "degrade": "degraded"}[refusal]
		}
		assert.Equal(t, []string{alone(row.outer), alone(row.inner)}, observed, "%+v", row)
	}
}

// TestOutcomesAreForRequests checks that Take refuses, whatever the rules say.
func TestOutcomesAreForRequests(t *testing.T) {
	p := must.Get(New(nil, nil).Policy(Named("jobs", Global(time.Hour, 1)).OnRefusal(Refusal{Redirect: "/busy", Wait: time.Hour})))(t)
	for i, want := range []string{"admitted", "refused"} {
		d := must.Get(p.Take(t.Context(), Request{}))(t)
		assert.Equal(t, i == 0, d.Allowed)
		assert.Equal(t, want, d.Outcome())
	}
}

// TestInheritedByBans has each refusal that rules inherit meet a set with a ban and
// distinct values. Neither can mark, and a ban counts each refusal of a request that
// waits, so such a set does not wait.
func TestInheritedByBans(t *testing.T) {
	const text = "1/1h per ip; 2/1h per ip ban 15m; 9/1h per ip distinct header X"
	for _, inherited := range []Refusal{{Mark: true}, {Wait: time.Second}, {Wait: time.Second, Waiters: 5, Status: 503}} {
		synctest.Test(t, func(t *testing.T) {
			l := New(nil, &Options{OnRefusal: inherited})
			p := must.Get(l.Policy(Named("options", MustParse(text).Rules()...)))(t)
			for i := range p.current.Load().refusals {
				assert.Equal(t, inherited.Mark && i == 0, p.current.Load().refusals[i].Mark)
			}
			assert.False(t, p.current.Load().waits)
			h := p.Handler(nothing)
			w, took := patient(t.Context(), h, "")
			assert.Equal(t, 204, w.Code)
			assert.Zero(t, took)
			w, took = patient(t.Context(), h, "")
			assert.Equal(t, map[bool]int{true: 204, false: cmp.Or(inherited.Status, 429)}[inherited.Mark], w.Code)
			assert.Zero(t, took)
		})
	}
	marked := MustParse(text).OnRefusal(Refusal{Mark: true})
	assert.NoError(t, marked.Validate())
	assert.Zero(t, marked.Rules()[1].OnRefusal)
	for _, set := range []RuleSet{
		MustParse(text).OnRefusal(Refusal{Wait: time.Second}),
		Rules(MustParse("5/1m per ip refuse wait 1s").Rules()[0], MustParse(text).Rules()[1]),
	} {
		assert.ErrorContains(t, set.Validate(), "each is a strike of the ban: leave out the wait or the ban")
	}
}
