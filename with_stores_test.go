package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestWith checks sets that are With others on each store.
func TestWith(t *testing.T) {
	cluster := redistest.Cluster(t)
	for name, store := range map[string]func(prefix string) core.Store{
		"memory": func(string) core.Store { return nil },
		"Redis":  func(string) core.Store { return patientStore(redistest.Real(t), redisstore.Options{}) },
		"Cluster": func(prefix string) core.Store {
			return patientStore(cluster, redisstore.Options{Prefix: prefix})
		},
		"Spread": func(prefix string) core.Store {
			return patientStore(cluster, redisstore.Options{Prefix: prefix, Spread: 3})
		},
	} {
		for check, f := range map[string]func(*testing.T, *limit.Limiter){
			"decides together": withTogether, "charges once": withOnce, "gives back": withBack, "outside HTTP": withJobs, "holds": withHolds,
		} {
			t.Run(name+" "+check, func(t *testing.T) { f(t, limit.New(store(name+" "+check), nil)) })
		}
	}
}

// withHolds repeats a request of one set and of one that is With another: it is held, or an error
// says that it cannot be.
func withHolds(t *testing.T, l *limit.Limiter) {
	r := limit.Request{Hold: time.Minute, ID: "1"}
	own := limit.Named("own", limit.Global(time.Hour, 3))
	for _, set := range []limit.RuleSet{own, limit.Named("composed", limit.Global(time.Hour, 3)).With(application)} {
		p := bound(t, l, set)
		for range 5 {
			d, err := p.Take(t.Context(), r)
			if strings.Contains(t.Name(), "Spread") || strings.Contains(t.Name(), "Cluster") && set.Others() != nil {
				require.ErrorContains(t, err, "leave out Hold")
				require.ErrorContains(t, p.Serve(nil, httptest.NewRequest("GET", "/", nil), limit.Request{Hold: time.Minute}, nil), "leave out Hold")
				continue
			}
			require.NoError(t, err)
			require.True(t, d.Allowed)
			assert.EqualValues(t, 2, leftOf(t, p))
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

// withOnce puts a set and one that is With it around each other, in both orders.
func withOnce(t *testing.T, l *limit.Limiter) {
	held := limit.Named("app", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour},
		limit.Rule{Key: limit.Everyone, Limit: 1, Window: 30 * time.Second, Algorithm: limit.Concurrency{}})
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
	h := app.Handler(composed.Handler(note))
	assert.Equal(t, 200, sent(h, "/").Code)
	assert.EqualValues(t, 9, left(t, l, "app", "all", ""))
	h = composed.Handler(app.Handler(note))
	w := sent(h, "/")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, []string{`"global-1h";r=1;t=3600, "all";r=8;t=3600, "global-concurrency";r=0;t=30`}, w.Header()["Ratelimit"])
	assert.EqualValues(t, 8, left(t, l, "app", "all", ""))
	h = composed.Handler(composed.Handler(note))
	assert.Equal(t, 200, sent(h, "/").Code, "and a set twice")
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
	assert.EqualValues(t, 0, left(t, l, "route", "global-1h", ""))
	for _, names := range marks {
		slices.Sort(names)
		assert.Equal(t, []string{"all", "global-1h", "global-concurrency"}, names)
	}
	assert.Len(t, marks, 3)

	h = app.Handler(composed.Handler(note))
	assert.Equal(t, 429, sent(h, "/").Code)
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""), "given back by the outer set")
	assert.EqualValues(t, 1, left(t, l, "app", "global-concurrency", ""))
}

// withBack refuses requests behind a set that is With the application's.
func withBack(t *testing.T, l *limit.Limiter) {
	group := bound(t, l, limit.Named("group", limit.Global(time.Hour, 8)).With(application))
	h := group.Handler(l.Limit(limit.Named("route", limit.Global(time.Hour, 3)))(ok200))
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
	d := must.Get(p.Take(t.Context(), limit.Request{Keys: keys, Cost: 8, Settle: true}))(t)
	require.NoError(t, d.Settle(t.Context(), 3))
	assert.EqualValues(t, 97, left(t, l, "p", "per-ip-1h", "192.0.2.1"))
	assert.EqualValues(t, 7, left(t, l, "app", "all", ""))
	d = must.Get(p.Peek(t.Context(), limit.Request{Keys: keys}))(t)
	assert.True(t, d.Allowed)
	d = must.Get(p.Take(t.Context(), limit.Request{Keys: keys, Cost: 99, UpTo: true}))(t)
	assert.EqualValues(t, 7, d.Taken)
	require.NoError(t, p.Reset(t.Context(), keys))
	assert.EqualValues(t, 100, left(t, l, "p", "per-ip-1h", "192.0.2.1"))
	require.NoError(t, operate.Reset(t.Context(), l, "app", "all", ""))

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.Get(bound(t, l, users).Take(ctx, limit.Request{Keys: keys, Cost: 10}))(t)
	d = must.Get(p.Wait(ctx, limit.Request{Keys: keys, Cost: 5}))(t, "a wait for a rule of another set")
	assert.True(t, d.Waited > 0)
	assert.EqualValues(t, 5, left(t, l, "app", "all", ""))
}

// TestWithLayers sends requests through random layers of sets that are With each other, of which
// some know the plan of the caller. Every quota has what the requests took that were admitted, once
// for each.
func TestWithLayers(t *testing.T) {
	client := redistest.Real(t)
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		var store core.Store
		if seed%4 == 0 {
			store = patientStore(client, redisstore.Options{Prefix: fmt.Sprint(seed)})
		}
		l := limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{Plan: header("Plan")}})
		limits, took := make(map[string]map[string]int64), make(map[string]int64) // by plan
		var sets []limit.RuleSet
		var scopes [][]string // of each set
		for i := range 6 {
			name := fmt.Sprint("s", i)
			limits[name] = map[string]int64{"": 3 + random.Int64N(20), "free": 1 + random.Int64N(20)}
			rule := limit.Global(time.Hour, limits[name][""])
			rule.Plans = map[string]int64{"free": limits[name]["free"]}
			set, names := limit.Named(name, rule), []string{name}
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
			fits, plan := true, []string{"", "free"}[random.IntN(2)] // of the sets so far, from the inside out
			met, alone := make(map[string]bool), make(map[int]bool)
			for range 1 + random.IntN(4) {
				i := random.IntN(len(sets))
				if len(sets[i].Others()) == 0 {
					if alone[i] { // one set twice is a mistake, and noticed
						continue
					}
					alone[i] = true
				}
				h = bound(t, l, sets[i]).Handler(h)
				for _, name := range scopes[i] {
					met[name] = true
					fits = fits && took[name] < limits[name][plan]
				}
				if inside := h; plan != "" && random.IntN(2) == 0 {
					plan = ""
					h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						r.Header.Set("Plan", "free")
						inside.ServeHTTP(w, r)
					})
				}
			}
			send(h, "GET", "/", "Plan", plan)
			assert.Equal(t, fits, served, seed)
			for name := range met {
				if served {
					took[name]++
				}
			}
		}
		for name := range limits {
			assert.Equal(t, max(0, limits[name][""]-took[name]), left(t, l, name, "global-1h", ""), "%d %s", seed, name)
		}
	}
}
