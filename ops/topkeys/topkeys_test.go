package topkeys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/topkeys"
	"github.com/routelimit/limit/rules"
)

// observed returns a limiter whose decisions c counts.
func observed(c *topkeys.Counter, options *limit.Options) *limit.Limiter {
	limiter := limit.New(nil, options)
	operate.Observe(limiter, func(_ *http.Request, d limit.Decision, err error) {
		if err == nil {
			c.Observe(&d)
		}
	})
	return limiter
}

func policy(t testing.TB, limiter *limit.Limiter, name string, rules ...limit.Rule) *limit.Policy {
	p := must.Get(limiter.Policy(limit.Named(name, rules...)))(t)
	return p
}

func take(t testing.TB, p *limit.Policy, n int, user string) (d limit.Decision) {
	t.Helper()
	for range n {
		d = must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": user}}))(t)
	}
	return d
}

// TestGivenBack refuses requests by an inner set: the outer one counts each once, and its
// keys have used what the admitted ones took.
func TestGivenBack(t *testing.T) {
	c := topkeys.New(nil)
	limiter := observed(c, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.URL.Query().Get("user") }}})
	attempts := limit.PerUser(time.Hour, 50)
	attempts.Name, attempts.Attempts = "attempts", true
	outer := policy(t, limiter, "outer", limit.PerUser(time.Hour, 10), attempts)
	inner := limiter.Limit(limit.Named("inner", limit.PerUser(time.Minute, 3)))
	h := outer.Handler(inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for range 8 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/?user=alice", nil))
	}
	keys := map[string]topkeys.Key{}
	for _, key := range c.TopOf("outer", topkeys.ByUse, 10) {
		keys[key.Rule] = key
	}
	assert.InDelta(t, 8, keys["per-user-1h"].Requests, 0.1)
	assert.EqualValues(t, 7, keys["per-user-1h"].Remaining)
	assert.InDelta(t, 0.3, keys["per-user-1h"].Used, 1e-9)
	assert.EqualValues(t, 42, keys["attempts"].Remaining)
	assert.Empty(t, c.TopOf("outer", topkeys.ByRefusals, 10))
	assert.EqualValues(t, 5, math.Round(c.TopOf("inner", topkeys.ByRefusals, 10)[0].Refused))
}

func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := topkeys.New(nil)
		limiter := observed(c, nil)
		api := policy(t, limiter, "api", limit.PerUser(time.Minute, 5), limit.Global(time.Minute, 1000))
		login := policy(t, limiter, "login", limit.PerUser(time.Hour, 10))
		take(t, api, 8, "alice")
		take(t, api, 4, "bob")
		take(t, api, 1, "carol")
		take(t, login, 11, "mallory")

		assert.Empty(t, c.Top(topkeys.ByRefusals, 0))
		assert.Equal(t, []topkeys.Key{
			{Policy: "api", Rule: "per-user-1m", Key: "alice", Requests: 8, Refused: 3, Used: 1, Limit: 5, Capacity: 5, Last: time.Now(), Until: time.Now().Add(time.Minute)},
			{Policy: "login", Rule: "per-user-1h", Key: "mallory", Requests: 11, Refused: 1, Used: 1, Limit: 10, Capacity: 10, Last: time.Now(), Until: time.Now().Add(time.Hour)},
		}, c.Top(topkeys.ByRefusals, 10))
		assert.Equal(t, "alice", c.Top(topkeys.ByRefusals, 1)[0].Key)

		keys := func(list []topkeys.Key) (keys []string) {
			for _, k := range list {
				keys = append(keys, fmt.Sprintf("%s %s %q %.3f", k.Policy, k.Rule, k.Key, k.Used))
			}
			return keys
		}
		assert.Equal(t, []string{`login per-user-1h "mallory" 1.000`, `api per-user-1m "alice" 1.000`, `api per-user-1m "bob" 0.800`,
			`api per-user-1m "carol" 0.200`, `api global-1m "" 0.010`}, keys(c.Top(topkeys.ByUse, 10)))
		assert.Equal(t, []string{`api per-user-1m "alice" 1.000`, `api per-user-1m "bob" 0.800`},
			keys(c.TopOf("api", topkeys.ByUse, 2)))
		assert.Empty(t, c.TopOf("other", topkeys.ByUse, 2))

		time.Sleep(time.Minute)
		assert.Equal(t, []string{`login per-user-1h "mallory" 1.000`}, keys(c.Top(topkeys.ByUse, 10)), "the quotas of a minute are full again")
		assert.InDelta(t, 3*0.8187, c.Top(topkeys.ByRefusals, 1)[0].Refused, 1e-3)
	})
}

// TestTies checks that keys that are otherwise equal have a fixed order.
func TestTies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := topkeys.New(nil)
		p := policy(t, observed(c, nil), "p", limit.PerUser(time.Minute, 1))
		for _, user := range []string{"d", "b", "a", "c"} {
			take(t, p, 2, user)
		}
		for _, order := range []topkeys.Order{topkeys.ByRefusals, topkeys.ByUse} {
			for n := 1; n <= 4; n++ {
				keys := ""
				for _, k := range c.Top(order, n) {
					keys += k.Key
				}
				assert.Equal(t, "abcd"[:n], keys)
			}
		}
	})
}

// TestFirst checks that the first keys of many rules are those of the whole list.
func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := topkeys.New(nil)
		limiter := observed(c, nil)
		for i := range 50 {
			p := policy(t, limiter, fmt.Sprint("p", i), limit.PerUser(time.Hour, 1+rand.Int64N(10)))
			for range 200 {
				take(t, p, 1, fmt.Sprint(rand.IntN(20)))
			}
		}
		for _, order := range []topkeys.Order{topkeys.ByRefusals, topkeys.ByUse} {
			all := c.Top(order, 10_000)
			require.Greater(t, len(all), 100)
			for _, n := range []int{1, 2, 5, 20, 100} {
				first := c.Top(order, n)
				require.Len(t, first, n)
				for i := range first {
					assert.Equal(t, [3]string{all[i].Policy, all[i].Rule, all[i].Key}, [3]string{first[i].Policy, first[i].Rule, first[i].Key}, "%d of %d", i, n)
				}
			}
		}
	})
}

// TestRefusals checks what counts as a refusal.
func TestRefusals(t *testing.T) {
	c := topkeys.New(nil)
	limiter := observed(c, nil)
	shadow := limit.Rule{Name: "shadow", Key: limit.ByUser, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{}}
	mark := limit.Rule{Name: "mark", Key: limit.ByUser, Limit: 1, Window: time.Hour, OnRefusal: limit.Refusal{Mark: true}}
	exempt := limit.Rule{Name: "exempt", Key: limit.ByUser, Limit: 5, Window: time.Hour, Exempt: []string{"plan staff"}}
	small := limit.Rule{Name: "small", Key: limit.ByUser, Limit: 3, Window: time.Hour}
	p := policy(t, limiter, "p", shadow, mark, exempt, small)
	for range 4 {
		must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "bob"}, Plan: "staff"}))(t)
	}
	refused := c.Top(topkeys.ByRefusals, 10)
	require.Len(t, refused, 1)
	assert.Equal(t, "small", refused[0].Rule)
	assert.InDelta(t, 1, refused[0].Refused, 0.1)
	for _, k := range c.Top(topkeys.ByUse, 10) {
		assert.NotEqual(t, "exempt", k.Rule)
	}
}

// TestOutage checks that a request that is refused because Redis is away is not blamed on its key.
func TestOutage(t *testing.T) {
	c := topkeys.New(nil)
	c.Observe(&limit.Decision{Mode: core.ModeRefused})
	c.Observe(&limit.Decision{})
	assert.Empty(t, c.Top(topkeys.ByUse, 10))
}

func TestName(t *testing.T) {
	name := topkeys.Hashed([]byte("secret"))
	c := topkeys.New(&topkeys.Options{Name: name})
	take(t, policy(t, observed(c, nil), "p", limit.PerUser(time.Hour, 1)), 2, "alice")
	assert.Equal(t, name("alice"), c.Top(topkeys.ByRefusals, 1)[0].Key)
	assert.Regexp(t, "^[A-Z2-7]{12}$", name("alice"))
	assert.Equal(t, name("alice"), topkeys.Hashed([]byte("secret"))("alice"))
	assert.NotEqual(t, name("alice"), name("bob"))
	assert.NotEqual(t, topkeys.Hashed(nil)("alice"), topkeys.Hashed(nil)("alice"))
	assert.Empty(t, name(""))
}

func TestOptions(t *testing.T) {
	assert.PanicsWithValue(t, "topkeys: Keys -1: write 1 to 10000, or 0 for 256", func() { topkeys.New(&topkeys.Options{Keys: -1}) })
	assert.PanicsWithValue(t, "topkeys: Rules 10001: write 1 to 10000, or 0 for 1000", func() { topkeys.New(&topkeys.Options{Rules: 10_001}) })
}

// TestRules checks that there are no more rules than Options.Rules, and that those that
// there are go on.
func TestRules(t *testing.T) {
	c := topkeys.New(&topkeys.Options{Rules: 3})
	limiter := observed(c, nil)
	var policies []*limit.Policy
	for i := range 10 {
		policies = append(policies, policy(t, limiter, fmt.Sprint(i), limit.PerUser(time.Hour, 1), limit.PerUser(time.Minute, 1)))
	}
	for range 2 {
		for _, p := range policies {
			take(t, p, 1, "alice")
		}
	}
	var rules []string
	for _, k := range c.Top(topkeys.ByRefusals, 100) {
		rules = append(rules, k.Policy+" "+k.Rule)
	}
	assert.ElementsMatch(t, []string{"0 per-user-1h", "0 per-user-1m", "1 per-user-1h"}, rules)
}

// TestConcurrent counts exactly what several goroutines do at once.
func TestConcurrent(t *testing.T) {
	c := topkeys.New(nil)
	limiter := observed(c, nil)
	p := policy(t, limiter, "p", limit.PerUser(time.Hour, 1), limit.Global(time.Hour, 100_000))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				take(t, p, 1, fmt.Sprint(i%3))
				if i%100 == 0 {
					c.Top(topkeys.Order(g%2), 5)
				}
			}
		})
	}
	wg.Wait()
	refused := 0.0
	for _, k := range c.Top(topkeys.ByRefusals, 10) {
		refused += k.Refused
		assert.Zero(t, k.Error)
	}
	assert.InDelta(t, 8000-3, refused, 8000*0.05, "ages of a few seconds")
}

func TestHTTP(t *testing.T) {
	c := topkeys.New(nil)
	limiter := observed(c, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }}})
	h := limiter.Limit(limit.Rules(limit.PerUser(time.Hour, 1)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "GET /items"
		r.Header.Set("X-User", strings.Repeat("x", 5000))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	top := c.Top(topkeys.ByRefusals, 10)
	require.Len(t, top, 1)
	assert.Equal(t, "GET /items", top[0].Policy)
	assert.LessOrEqual(t, len(top[0].Key), 128, "package limit shortens keys")
}

// TestWithoutStore counts what was decided without the store, which says nothing about what
// the keys have used.
func TestWithoutStore(t *testing.T) {
	c := topkeys.New(nil)
	observe := func(mode core.Mode, back bool, outcome limit.RuleDecision) {
		outcome.Name, outcome.Limit, outcome.Capacity, outcome.ResetAfter = "r", 10, 10, time.Hour
		c.ObserveRule(&limit.Decision{Policy: "p", Mode: mode, At: time.Now(), GivenBack: back}, &outcome)
	}
	observe(core.ModeExact, false, limit.RuleDecision{Key: "alice", Allowed: true, Remaining: 8})
	observe(core.ModeLocal, false, limit.RuleDecision{Key: "alice", Allowed: true, Remaining: 1})
	observe(core.ModeLocal, true, limit.RuleDecision{Key: "alice", Allowed: true, Remaining: 2})
	observe(core.ModeRefused, false, limit.RuleDecision{Key: "alice"})
	observe(core.ModeLocal, false, limit.RuleDecision{Key: "bob"})
	used := c.Top(topkeys.ByUse, 2)
	require.Len(t, used, 1)
	assert.Equal(t, []any{"alice", int64(8)}, []any{used[0].Key, used[0].Remaining})
	assert.InDelta(t, 0.2, used[0].Used, 1e-9)
	assert.InDelta(t, 2, used[0].Requests, 0.01)
	refused := c.Top(topkeys.ByRefusals, 2)
	require.Len(t, refused, 1)
	assert.Equal(t, []any{"bob", 0.0, int64(10)}, []any{refused[0].Key, refused[0].Used, refused[0].Capacity})
}

// TestAll asks for more keys than there can be.
func TestAll(t *testing.T) {
	c := topkeys.New(nil)
	take(t, policy(t, observed(c, nil), "p", limit.PerUser(time.Hour, 1)), 2, "alice")
	for _, n := range []int{math.MaxInt / 4, math.MaxInt/4 + 1, math.MaxInt} {
		assert.Len(t, c.Top(topkeys.ByRefusals, n), 1)
		assert.Len(t, c.TopOf("p", topkeys.ByUse, n), 1)
	}
}

// TestOtherClock checks decisions on the clock of a Redis that is an hour off: they age, and
// their quotas fill, by the time that passes.
func TestOtherClock(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := topkeys.New(nil)
			refusal := limit.RuleDecision{Name: "r", Key: "alice", Limit: 1, Capacity: 1, RetryAfter: time.Minute, ResetAfter: time.Minute}
			for range 10 {
				c.ObserveRule(&limit.Decision{Policy: "p", At: time.Now().Add(off)}, &refusal)
			}
			time.Sleep(59 * time.Second)
			top := c.Top(topkeys.ByRefusals, 1)
			require.Len(t, top, 1)
			assert.InDelta(t, 10*math.Exp(-59.0/300), top[0].Refused, 0.1)
			assert.Len(t, c.Top(topkeys.ByUse, 1), 1)
			time.Sleep(time.Second)
			assert.Empty(t, c.Top(topkeys.ByUse, 1))
		})
	}
}
