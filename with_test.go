package limit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

var application = limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour})

func bound(t *testing.T, l *limit.Limiter, set limit.RuleSet) *limit.Policy {
	t.Helper()
	p := must.Get(l.Policy(set))(t)
	return p
}

// take takes n units of a policy, and returns which rules refuse.
func take(t *testing.T, p *limit.Policy, n int64) []string {
	t.Helper()
	d := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1", "user": "u"}, Cost: n}))(t)
	var refusing []string
	for r := range d.Rules() {
		if r.Refused {
			refusing = append(refusing, r.Name)
		}
	}
	return refusing
}

// counting counts the scripts that a client calls for the rule per-user-1m.
type counting struct{ calls atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && strings.Contains(fmt.Sprint(cmd.Args()...), "per-user-1m") {
			c.calls.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestWithIsOneCall(t *testing.T) {
	options := *redistest.Real(t).Options()
	options.ContextTimeoutEnabled = true // so that the hook sees the calls
	client := redis.NewClient(&options)
	t.Cleanup(func() { client.Close() })
	l := limit.New(patientStore(client, redisstore.Options{}), nil)
	group := limit.Named("group", limit.PerIP(time.Hour, 100))
	p := bound(t, l, limit.Named("a", limit.PerUser(time.Minute, 50)).With(application, group))
	take(t, p, 1)
	calls := &counting{}
	client.AddHook(calls)
	for range 5 {
		assert.Nil(t, take(t, p, 1))
	}
	assert.EqualValues(t, 5, calls.calls.Load())
	assert.EqualValues(t, 94, left(t, l, "group", "per-ip-1h", "192.0.2.1"))
}

func TestWithNames(t *testing.T) {
	overridden := map[[2]string]bool{}
	l := limit.New(nil, &limit.Options{Override: func(policy, rule, _ string) int64 {
		overridden[[2]string{policy, rule}] = true
		return 0
	}})
	shadow := limit.Rule{Name: "next", Key: limit.Everyone, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{Replaces: "global-1m"}}
	app := limit.Named("app", limit.Global(time.Minute, 10), limit.PerIP(time.Hour, 9), shadow)
	group := limit.Named("group", limit.PerIP(time.Hour, 8))
	set := limit.Rules(limit.Global(time.Minute, 5)).With(app, group)
	w := sent(l.Limit(set)(ok200), "/")
	assert.Equal(t, []string{`"global-1m";q=5;w=60, "app.global-1m";q=10;w=60, "app.per-ip-1h";q=9;w=3600, "group.per-ip-1h";q=8;w=3600`},
		w.Header()["Ratelimit-Policy"])
	assert.Equal(t, map[[2]string]bool{{"<unmatched>", "global-1m"}: true, {"app", "global-1m"}: true, {"app", "per-ip-1h"}: true,
		{"app", "next"}: true, {"group", "per-ip-1h"}: true}, overridden)
	assert.EqualValues(t, 8, left(t, l, "app", "per-ip-1h", "192.0.2.1"))
	assert.EqualValues(t, 9, left(t, l, "<unmatched>", "app.global-1m", ""))
	assert.EqualValues(t, 4, left(t, l, "<unmatched>", "global-1m", ""))

	compared := 0
	operate.Observe(l, func(_ *http.Request, d limit.Decision, _ error) {
		for _, c := range operate.Comparisons(d) {
			compared++
			assert.Equal(t, [2]string{"app.global-1m", "next"}, [2]string{c.Old.Name, c.New.Name})
		}
	})
	sent(l.Limit(limit.Rules(limit.Global(time.Minute, 5)).With(app))(ok200), "/")
	assert.Equal(t, 1, compared)
}

// TestWithErrors declares sets that cannot be With others.
func TestWithErrors(t *testing.T) {
	own := limit.Named("own", limit.Global(time.Minute, 5))
	many := make([]limit.Rule, core.MaxCharges)
	for i := range many {
		many[i] = limit.Global(time.Duration(i+1)*time.Second, 5)
	}
	for want, set := range map[string]limit.RuleSet{
		`policy "own": With has no set: write one, such as With(limit.Named("app", limit.Global(time.Minute, 1000))), or leave it out`:     own.With(),
		`policy "own": with own: a set is not with itself: leave it out`:                                                                   own.With(own),
		`policy "own": with app: it stands twice: remove one`:                                                                              own.With(application, limit.Named("app")),
		`policy "own": With rules 5/1m global, which have no name: write limit.Named("…", rules…) for them`:                                own.With(limit.Rules(limit.Global(time.Minute, 5))),
		`policy "own": With policy name "a b": write 1 to 64 letters`:                                                                      own.With(limit.Named("a b")),
		`policy "own": with nobody: no policy has that name: declare limit.Named("nobody", rules…) before, or add the policy to the file`:  own.With(limit.Named("nobody")),
		`policy "own": with b: policy "b" is with this one: leave out one of the two`:                                                      own.With(limit.Named("b").With(own)),
		`policy "app": already has other rules (all: 10/1h global, here 5/1m global): declare the set once`:                                own.With(limit.Named("app", limit.Global(time.Minute, 5))),
		`policy "own": 17 rules with those of many: a request is decided by at most 16; put one of the sets around the others, on a group`: own.With(limit.Named("many", many...)),
		`policy "bad": rule "5/0s global": `:                                                                                               own.With(limit.Named("bad", limit.Global(0, 5))),
		`the name "app.all" is taken by`:                                                                                                   limit.Named("own", limit.Rule{Name: "app.all", Key: limit.Everyone, Limit: 1, Window: time.Hour}, limit.Rule{Name: "all", Key: limit.Everyone, Limit: 1, Window: time.Hour}).With(application),
		`rule "5/1m per user": no user resolver`:                                                                                           own.With(limit.Named("users", limit.PerUser(time.Minute, 5))),
	} {
		l := limit.New(nil, nil)
		bound(t, l, application)
		func() {
			defer func() { assert.ErrorContains(t, recover().(error), want) }()
			l.Limit(set)
		}()
	}
	_, err := limit.New(nil, nil).Policy(limit.MustParse("5/2s per ip; with app"))
	var wrong *rules.Error
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, 13, wrong.Offset)
	assert.ErrorContains(t, err, "with app: no policy has that name")
}

// TestWithTimeoutHandler has a handler between two sets that gives the inner one another
// response.
func TestWithTimeoutHandler(t *testing.T) {
	l := limit.New(nil, nil)
	route := bound(t, l, limit.Named("route", limit.Global(time.Hour, 3)).With(application))
	h := bound(t, l, application).Handler(http.TimeoutHandler(route.Handler(ok200), time.Minute, ""))
	assert.Equal(t, 200, sent(h, "/").Code)
	assert.EqualValues(t, 9, left(t, l, "app", "all", ""))
	assert.EqualValues(t, 2, left(t, l, "route", "global-1h", ""))
}

// TestWithPlans takes from the buckets of callers on plans, which the application's set has
// too.
func TestWithPlans(t *testing.T) {
	l := limit.New(nil, nil)
	app := limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour,
		Algorithm: limit.TokenBucket{}, Plans: map[string]int64{"pro": 20}})
	own := limit.Rule{Name: "own", Key: limit.Everyone, Limit: 90, Window: time.Hour, Plans: map[string]int64{"gold": 95}}
	p := bound(t, l, limit.Named("p", own).With(app))
	for _, plan := range []string{"", "gold", "pro"} {
		d := must.Get(p.Take(t.Context(), limit.Request{Plan: plan}))(t)
		assert.True(t, d.Allowed)
	}
	for plan, want := range map[string]int64{"": 8, "gold": 8, "pro": 19} { // gold is no plan of app
		r := must.Get(operate.Peek(t.Context(), l, "app", "all", "", plan))(t)
		assert.Equal(t, want, r.Remaining, plan)
	}
}

// TestWithTermsKnownInside has a set around another one that is With it, and that knows the plan or
// the class of the caller: the rule admits what it does alone, and is charged once for it.
func TestWithTermsKnownInside(t *testing.T) {
	values := limit.ByHeader("Value")
	for name, rule := range map[string]limit.Rule{
		"log":         {},
		"cells":       {Algorithm: limit.SlidingCells{}},
		"counter":     {Algorithm: limit.SlidingCounter{}},
		"fixed":       {Algorithm: limit.FixedWindow{}},
		"values":      {Algorithm: limit.Distinct{Values: values}},
		"concurrency": {Algorithm: limit.Concurrency{}},
		"attempts":    {Attempts: true},
		"class":       {Reserve: map[string]int64{"default": 97}},
		"bucket":      {Algorithm: limit.TokenBucket{}, Reserve: map[string]int64{"default": 97}},
		"more":        {Plans: map[string]int64{"free": 200}},
	} {
		for _, around := range []bool{false, true} {
			rule.Name, rule.Key, rule.Limit, rule.Window = "all", limit.ByIP, 100, time.Hour
			if rule.Plans == nil && rule.Reserve == nil {
				rule.Plans = map[string]int64{"free": 3}
			}
			l := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Plan: header("Plan"), Class: header("Class")}})
			app := limit.Named("app", rule)
			var h http.Handler
			served, sends := 0, map[bool]int{true: 1, false: 20}[name == "concurrency"]
			send := func() {
				send(h, "GET", "/", "Value", fmt.Sprint(served))
			}
			inner := l.Limit(limit.Rules(limit.PerIP(time.Hour, 1000)).With(app))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if served++; name == "concurrency" && served < 20 {
					send() // at once
				}
			}))
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // authentication
				r.Header.Set("Plan", "free")
				r.Header.Set("Class", "background")
				inner.ServeHTTP(w, r)
			})
			if around {
				h = l.Limit(app)(h)
			}
			for range sends {
				send()
			}
			want, taken := map[string]int{"more": 20}[name], map[string]int{"attempts": 20, "concurrency": 0}
			if name != "more" {
				want = 3
			}
			assert.Equal(t, want, served, "%s %t", name, around)
			if n, other := taken[name]; other && (around || n == 0) {
				want = n // attempts stay
			}
			assert.EqualValues(t, 100-want, left(t, l, "app", "all", "192.0.2.1"), "%s %t", name, around)
		}
	}
}
