package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

var application = limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour})

func bound(t *testing.T, l *limit.Limiter, set limit.RuleSet) *limit.Policy {
	t.Helper()
	p, err := l.Policy(set)
	require.NoError(t, err)
	return p
}

// take takes n units of a policy, and returns which rules refuse.
func take(t *testing.T, p *limit.Policy, n int64) []string {
	t.Helper()
	d, err := p.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1", "user": "u"}, Cost: n})
	require.NoError(t, err)
	return d.Refusing()
}

// TestWith checks sets that are With others on each store.
func TestWith(t *testing.T) {
	cluster := redistest.Cluster(t)
	for name, store := range map[string]func(prefix string) core.Store{
		"memory": func(string) core.Store { return nil },
		"Redis":  func(string) core.Store { return redisstore.New(redistest.Real(t), nil) },
		"Cluster": func(prefix string) core.Store {
			return redisstore.New(cluster, &redisstore.Options{Prefix: prefix, Timeout: time.Second})
		},
		"Spread": func(prefix string) core.Store {
			return redisstore.New(cluster, &redisstore.Options{Prefix: prefix, Timeout: time.Second, Spread: 3})
		},
	} {
		for check, f := range map[string]func(*testing.T, *limit.Limiter){
			"decides together": withTogether, "charges once": withOnce, "gives back": withBack, "outside HTTP": withJobs,
		} {
			t.Run(name+" "+check, func(t *testing.T) { f(t, limit.New(store(name+" "+check), nil)) })
		}
	}
}

// withTogether takes from a set and the application's at once, or from neither, and shares the
// application's quota with whoever else uses it.
func withTogether(t *testing.T, l *limit.Limiter) {
	app := bound(t, l, application)
	a := bound(t, l, limit.Named("a", limit.Global(time.Hour, 3)).With(application))
	b := bound(t, l, limit.Named("b", limit.Global(time.Hour, 20)).With(limit.Named("app")))
	assert.Nil(t, take(t, a, 3))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
	assert.Equal(t, []string{"global-1h"}, take(t, a, 1), "refused by its own rule")
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""), "and the other is not charged")
	assert.Nil(t, take(t, app, 2))
	assert.Equal(t, []string{"all"}, take(t, b, 6), "refused by the rule of the other")
	assert.EqualValues(t, 20, left(t, l, "b", "global-1h", ""), "and its own is not charged")
	assert.EqualValues(t, 5, left(t, l, "b", "all", ""), "a rule of another set can be peeked at in both")
	assert.Nil(t, take(t, b, 5))
	assert.Equal(t, []string{"all"}, take(t, app, 1))
	require.NoError(t, operate.Reset(t.Context(), l, "app", "all", ""))
	assert.Nil(t, take(t, b, 10))
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
	l := limit.New(redisstore.New(client, nil), nil)
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
	shadow := limit.Rule{Name: "next", Key: limit.Everyone, Limit: 1, Window: time.Hour, Shadow: &limit.Shadow{Replaces: "global-1m"}}
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

// TestWithChanges changes the application's rules, and those of a set that is With it.
func TestWithChanges(t *testing.T) {
	l := limit.New(nil, nil)
	app := bound(t, l, application.Overridable())
	named := bound(t, l, limit.Named("named", limit.Global(time.Hour, 5)).With(application.Overridable()).Overridable())
	route := l.Limit(limit.Rules(limit.Global(time.Hour, 50)).With(limit.Named("app")))(ok200)
	assert.Equal(t, 200, sent(route, "/").Code)
	change := func(texts ...string) error {
		var sets []limit.RuleSet
		for i := 0; i < len(texts); i += 2 {
			sets = append(sets, limit.MustParse(texts[i+1]).Named(texts[i]))
		}
		return operate.Change(l, sets...)
	}
	require.NoError(t, change("app", "all: 2/1h global"))
	peeked, err := operate.Peek(t.Context(), l, "<unmatched>", "all", "", "")
	require.NoError(t, err)
	assert.EqualValues(t, 2, peeked.Limit, "the tools see the rules of now")
	assert.Equal(t, 200, sent(route, "/").Code, "which keeps its state")
	assert.Equal(t, 429, sent(route, "/").Code)
	assert.Equal(t, []string{"all"}, take(t, named, 1))
	assert.Equal(t, []string{"all"}, take(t, app, 1))
	require.NoError(t, change("named", "4/1h global"), "which is alone, and app is as declared")
	assert.Nil(t, take(t, named, 4))
	assert.EqualValues(t, 8, left(t, l, "app", "all", ""))
	require.NoError(t, change("named", "7/1h global; with app; with more", "more", "1/1h global"))
	assert.Equal(t, []string{"more.global-1h"}, take(t, named, 2), "a set of the file alone")
	assert.Nil(t, take(t, named, 1))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))

	assert.ErrorContains(t, change("named", "4/1h global; with more"), "with more: no policy has that name")
	assert.ErrorContains(t, change("app", "with named", "named", "with app"), "leave out one of the two")
	assert.ErrorContains(t, change("x", "with y", "y", "with x"), "leave out one of the two", "which nothing declares")
	assert.ErrorContains(t, change("app", "5/1m per user"), "no user resolver", "which the route lacks")
	var many []limit.Rule
	for i := range core.MaxCharges {
		many = append(many, limit.Global(time.Duration(i+1)*time.Second, 5))
	}
	assert.ErrorContains(t, operate.Change(l, limit.Named("app", many...)), "17 rules with those of app")
	assert.Equal(t, []string{"more.global-1h"}, take(t, named, 1), "nothing was changed")
	require.NoError(t, operate.Change(l))
	assert.EqualValues(t, 10, func() int64 {
		require.NoError(t, operate.Reset(t.Context(), l, "app", "all", ""))
		return left(t, l, "app", "all", "")
	}())
}

// TestWithChangesWhileServing changes the application's limit while requests are decided.
func TestWithChangesWhileServing(t *testing.T) {
	l := limit.New(nil, nil)
	bound(t, l, application.Overridable())
	each := l.Limit(limit.EachRoute(limit.Global(time.Hour, 1000)).With(limit.Named("app")))(ok200)
	var admitted atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 200 {
				r := httptest.NewRequest("GET", "/", nil)
				r.Pattern = fmt.Sprint("/", i, "/", n%20)
				w := httptest.NewRecorder()
				if each.ServeHTTP(w, r); w.Code == 200 {
					admitted.Add(1)
				}
			}
		})
	}
	for n := range 50 {
		require.NoError(t, operate.Change(l, limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: int64(20 + n), Window: time.Hour})))
		for range operate.Policies(l) {
		}
	}
	group.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64(69))
	for i := range 69 - admitted.Load() {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "/last"
		w := httptest.NewRecorder()
		each.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code, i)
	}
	assert.Zero(t, left(t, l, "app", "all", ""))
}

// TestWithPending is With a set that only Change defines.
func TestWithPending(t *testing.T) {
	l := limit.New(nil, nil)
	p := bound(t, l, limit.Named("p", limit.Global(time.Hour, 5)).With(limit.Named("app").Overridable()))
	_, err := p.Take(t.Context(), limit.Request{})
	assert.ErrorIs(t, err, limit.ErrUndecided)
	require.NoError(t, operate.Change(l, application))
	assert.Nil(t, take(t, p, 1))
	assert.EqualValues(t, 9, left(t, l, "app", "all", ""))
}

// withOnce puts a set and one that is With it around each other, in both orders.
func withOnce(t *testing.T, l *limit.Limiter) {
	held := limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour}, limit.Concurrent(limit.Everyone, 1))
	route := limit.Named("route", limit.Global(time.Hour, 3)).With(held)
	app := bound(t, l, held)
	composed := bound(t, l, route)
	var marks [][]string
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var names []string
		for d, ok := limit.DecisionFrom(r.Context()), true; ok; d, ok = d.Outer() {
			for rule := range d.Rules() {
				if !rule.Exempt {
					names = append(names, rule.Name)
				}
			}
		}
		marks = append(marks, names)
	})
	h := app.Middleware(composed.Handler(note))
	assert.Equal(t, 200, sent(h, "/").Code)
	assert.EqualValues(t, 9, left(t, l, "app", "all", ""))
	h = composed.Middleware(app.Handler(note))
	w := sent(h, "/")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, []string{`"global-1h";r=1;t=3600, "all";r=8;t=3600, "global-concurrency";r=0;t=30`}, w.Header()["Ratelimit"])
	assert.EqualValues(t, 8, left(t, l, "app", "all", ""))
	h = composed.Middleware(composed.Handler(note))
	assert.Equal(t, 200, sent(h, "/").Code, "and a set twice")
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
	assert.EqualValues(t, 0, left(t, l, "route", "global-1h", ""))
	for _, names := range marks {
		slices.Sort(names)
		assert.Equal(t, []string{"all", "global-1h", "global-concurrency"}, names)
	}
	assert.Len(t, marks, 3)

	h = app.Middleware(composed.Handler(note))
	assert.Equal(t, 429, sent(h, "/").Code)
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""), "given back by the outer set")
	assert.EqualValues(t, 1, left(t, l, "app", "global-concurrency", ""))
}

// withBack refuses requests behind a set that is With the application's.
func withBack(t *testing.T, l *limit.Limiter) {
	group := bound(t, l, limit.Named("group", limit.Global(time.Hour, 8)).With(application))
	h := group.Middleware(l.Limit(limit.Named("route", limit.Global(time.Hour, 3)))(ok200))
	codes := map[int]int{}
	for range 10 {
		codes[sent(h, "/").Code]++
	}
	assert.Equal(t, map[int]int{200: 3, 429: 7}, codes)
	assert.EqualValues(t, 5, left(t, l, "group", "global-1h", ""))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
}

// withJobs waits for, reserves, settles and resets the quotas of all sets.
func withJobs(t *testing.T, l *limit.Limiter) {
	users := limit.Named("users", limit.Rule{Name: "user", Key: limit.ByUser, Limit: 10, Window: 200 * time.Millisecond, Algorithm: limit.TokenBucket{Burst: 10}})
	p := bound(t, l, limit.Named("p", limit.PerIP(time.Hour, 100)).With(application, users))
	keys := map[string]string{"ip": "192.0.2.1", "user": "u"}
	d, err := p.Reserve(t.Context(), limit.Request{Keys: keys, Cost: 8})
	require.NoError(t, err)
	require.NoError(t, d.Settle(t.Context(), 3))
	assert.EqualValues(t, 97, left(t, l, "p", "per-ip-1h", "192.0.2.1"))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
	d, err = p.Peek(t.Context(), limit.Request{Keys: keys})
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	d, err = p.Take(t.Context(), limit.Request{Keys: keys, Cost: 99, UpTo: true})
	require.NoError(t, err)
	assert.EqualValues(t, 7, d.Taken)
	require.NoError(t, p.Reset(t.Context(), keys))
	assert.EqualValues(t, 100, left(t, l, "p", "per-ip-1h", "192.0.2.1"))
	require.NoError(t, operate.Reset(t.Context(), l, "app", "all", ""))

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = bound(t, l, users).Take(ctx, limit.Request{Keys: keys, Cost: 10})
	require.NoError(t, err)
	d, err = p.Wait(ctx, limit.Request{Keys: keys, Cost: 5})
	require.NoError(t, err, "a wait for a rule of another set")
	assert.True(t, d.Waited > 0)
	assert.EqualValues(t, 5, left(t, l, "app", "all", ""))
}

// TestWithLayers sends requests through random layers of sets that are With each other. Every
// quota has what the requests took that were admitted, once for each.
func TestWithLayers(t *testing.T) {
	client := redistest.Real(t)
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		var store core.Store
		if seed%4 == 0 {
			store = redisstore.New(client, &redisstore.Options{Prefix: fmt.Sprint(seed)})
		}
		l := limit.New(store, nil)
		limits, took := make(map[string]int64), make(map[string]int64)
		var sets []limit.RuleSet
		var scopes [][]string // of each set
		for i := range 6 {
			name := fmt.Sprint("s", i)
			limits[name] = 3 + random.Int64N(20)
			set, names := limit.Named(name, limit.Global(time.Hour, limits[name])), []string{name}
			for j := range sets {
				if random.IntN(3) == 0 {
					set, names = set.With(sets[j]), append(names, scopes[j]...)
				}
			}
			sets, scopes = append(sets, set), append(scopes, names)
		}
		for range 60 {
			served := false
			h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
			met, alone := make(map[string]bool), make(map[int]bool)
			for range 1 + random.IntN(4) {
				i := random.IntN(len(sets))
				if len(sets[i].Others()) == 0 {
					if alone[i] { // one set twice is a mistake, and noticed
						continue
					}
					alone[i] = true
				}
				h = bound(t, l, sets[i]).Middleware(h)
				for _, name := range scopes[i] {
					met[name] = true
				}
			}
			sent(h, "/")
			fits := true
			for name := range met {
				fits = fits && took[name] < limits[name]
			}
			assert.Equal(t, fits, served, seed)
			for name := range met {
				if served {
					took[name]++
				}
			}
		}
		for name := range limits {
			assert.Equal(t, limits[name]-took[name], left(t, l, name, "global-1h", ""), "%d %s", seed, name)
		}
	}
}
