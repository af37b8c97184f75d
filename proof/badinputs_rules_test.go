package proof

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// invalid asserts that the rules cannot be declared on any framework, and that the
// error says what is wrong or what to write instead.
func (r *row) invalid(want string, rules ...limit.RuleSet) {
	r.Helper()
	for _, set := range rules {
		_, err := new(adapter.Adapter[any]).Bind(limit.New(nil, nil), "", set)
		if !assert.Error(r, err, "%v", set) {
			continue
		}
		assert.Contains(r, strings.ToLower(err.Error()), strings.ToLower(want))
		for name, serve := range frameworks {
			assert.PanicsWithError(r, err.Error(), func() { serve(limit.New(nil, nil), "POST /login", nil, set) }, name)
		}
	}
}

// invalidText asserts that texts are not rules, and that the errors of the parser have
// a valid position.
func (r *row) invalidText(texts ...string) {
	r.Helper()
	for _, text := range texts {
		_, err := limit.Parse(text)
		if !assert.Error(r, err, "%q", text) {
			continue
		}
		var wrong *rules.Error
		if assert.True(r, errors.As(err, &wrong), "%q: %v", text, err) {
			assert.True(r, 0 <= wrong.Offset && wrong.Offset <= len(text) && wrong.Text == text, "%q: %v", text, err)
		}
	}
}

// byIP returns a set of the rule for each address.
func byIP(rule limit.Rule) limit.RuleSet {
	rule.Key = limit.ByIP
	return limit.Rules(rule)
}

// costly has 5 units. A request takes as many as its header says.
var costly = limit.Rule{Name: "costly", Key: limit.ByIP, Limit: 5, Window: time.Hour, Cost: rules.CostBy("units", func(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
	if err != nil {
		return 1
	}
	return n
})}

const year = 366 * 24 * time.Hour // the longest window

// badRules are mistakes in declarations and calls.
var badRules = []badInput{
	{1, "a limit of 0", func(r *row) {
		r.invalid("at least 1", limit.Rules(limit.PerIP(time.Second, 0)))
		r.invalidText("0/1s per ip")
		r.admits(1, behind(limit.PerIP(time.Hour, 1)))
	}},
	{2, "a limit below 0", func(r *row) {
		r.invalid("at least 1", limit.Rules(limit.PerIP(time.Second, -5)), limit.Rules(limit.PerIP(time.Second, math.MinInt64)))
		r.invalidText("-5/1s per ip")
	}},
	{3, "a limit that its algorithm cannot count", func(r *row) {
		r.invalid("sliding-cells", limit.Rules(limit.PerIP(time.Second, 100_001)))
		bind(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Second, 100_000)))
		r.invalid("at most", byIP(limit.Rule{Limit: math.MaxInt64, Window: time.Second, Algorithm: limit.FixedWindow{}}))
		r.invalidText("5/1s per ip burst 3")
		r.invalid("burst", byIP(limit.Rule{Limit: 5, Window: time.Second, Algorithm: limit.TokenBucket{Burst: -1}}))
		r.invalid("2 to 60", byIP(limit.Rule{Limit: 5, Window: time.Second, Algorithm: limit.SlidingCells{Cells: 1}}))
		r.invalid("algorithm", byIP(limit.Rule{Limit: 5, Window: time.Second, Algorithm: &limit.TokenBucket{}}))
	}},
	{4, "a window of 0", func(r *row) { r.invalid("1ms", limit.Rules(limit.PerIP(0, 5))) }},
	{5, "a window below 0", func(r *row) {
		r.invalid("1ms", limit.Rules(limit.PerIP(-time.Second, 5)), limit.Rules(limit.PerIP(math.MinInt64, 5)))
	}},
	{6, "a window of 1 ns", func(r *row) {
		r.invalid("1ms", limit.Rules(limit.PerIP(1, 5)), limit.Rules(limit.PerIP(time.Millisecond-1, 5)))
		r.invalid("whole number of microseconds", limit.Rules(limit.PerIP(time.Millisecond+1, 5)))
		bind(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Millisecond, 5)))
	}},
	{7, "the largest window", func(r *row) {
		r.invalid("366 days", limit.Rules(limit.PerIP(math.MaxInt64, 5)), limit.Rules(limit.PerIP(year+time.Microsecond, 5)))
		// The largest allowed limit and window do not overflow.
		limiter := limit.New(nil, nil)
		for a, algorithm := range map[core.Algorithm]rules.Algorithm{core.FixedWindow: limit.FixedWindow{}, core.SlidingCells: limit.SlidingCells{},
			core.SlidingCounter: limit.SlidingCounter{}, core.TokenBucket: limit.TokenBucket{}, core.LeakyBucket: limit.LeakyBucket{}} {
			const most = 1_000_000_000_000
			set := limit.Named(a.String(), limit.Rule{Key: limit.Everyone, Limit: most, Window: year, Algorithm: algorithm})
			policy, admitted := bind(limiter, set), 0
			for range 2 {
				d := must.Get(policy.Take(r.Context(), limit.Request{Cost: most}))(r)
				if d.Allowed {
					admitted++
					continue
				}
				assert.True(r, year/2 < d.RetryAfter && d.RetryAfter <= 2*year, "%v: %v", a, d.RetryAfter)
			}
			r.ran(admitted, 1, a)
		}
	}},
	{8, "a cost of 0", func(r *row) {
		// A cost of 0 passes even if nothing is left, and takes nothing.
		r.runs(3+5+3, behind(costly), func(h http.Handler) {
			r.send(h, 3, 0, "Cost", "0")
			r.send(h, 7, http.StatusTooManyRequests)
			r.send(h, 3, 0, "Cost", "0")
		})
	}},
	{9, "a cost below 0", func(r *row) {
		r.runs(5, behind(costly, limit.Global(time.Hour, 10)), func(h http.Handler) {
			for _, cost := range []string{"-1", "-5", fmt.Sprint(int64(math.MinInt64))} {
				assert.Equal(r, http.StatusServiceUnavailable, do(h, "192.0.2.1:1", "/login", "Cost", cost).Code)
			}
			r.send(h, 5, http.StatusOK)
			r.send(h, 2, http.StatusServiceUnavailable, "Cost", "-5")
			r.send(h, 2, http.StatusTooManyRequests) // nothing was given back
		})
		limiter, jobs, keys := limit.New(nil, nil), limit.Named("jobs", limit.PerIP(time.Hour, 5)), map[string]string{"ip": "192.0.2.1"}
		d := must.Get(bind(limiter, jobs).Take(r.Context(), limit.Request{Keys: keys, Cost: 5, Settle: true}))(r)
		assert.Error(r, d.Settle(r.Context(), -1))
		for _, cost := range []int64{-1, math.MinInt64} {
			d, err := bind(limiter, jobs).Take(r.Context(), limit.Request{Keys: keys, Cost: cost})
			assert.Error(r, err)
			assert.False(r, d.Allowed)
		}
		r.left(limiter, jobs, keys, 0)
	}},
	{10, "a cost above the limit", func(r *row) {
		r.runs(5, behind(costly, limit.Global(time.Hour, 10)), func(h http.Handler) {
			for _, cost := range []string{"6", fmt.Sprint(int64(math.MaxInt64))} {
				answer := do(h, "192.0.2.1:1", "/login", "Cost", cost)
				assert.Equal(r, http.StatusTooManyRequests, answer.Code)
				assert.Empty(r, answer.Header().Get("Retry-After"), "it never fits")
			}
			r.send(h, 7, http.StatusTooManyRequests) // the limit is unused
		})
	}},
	{11, "a cost that is no number", func(r *row) {
		// A cost is an integer, so these are conversions that a function could make. Some
		// processors convert NaN to 0, which is row 8.
		for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300} {
			if n := int64(f); n != 0 {
				r.runs(0, behind(costly), func(h http.Handler) {
					answer := do(h, "192.0.2.1:1", "/login", "Cost", fmt.Sprint(n))
					assert.Contains(r, []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}, answer.Code)
				})
			}
		}
		r.invalidText("NaN/1s per ip", "Inf/1s per ip", "1.5/1s per ip")
	}},
	{12, "no rules", func(r *row) {
		r.invalid("rule", limit.Rules(), limit.RuleSet{})
		r.invalid("rule", limit.Named("jobs"))
		r.invalid("key", limit.Rules(limit.Rule{}), limit.Rules(limit.Rule{Limit: 5, Window: time.Second}))
		r.invalidText("", ";", "\n")
		_, err := bind(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Hour, 5))).Take(r.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1"}})
		assert.ErrorContains(r, err, "limit.Named")
	}},
	{13, "the same rule twice", func(r *row) {
		twice := limit.Rules(limit.PerIP(time.Second, 5), limit.PerIP(time.Second, 5))
		r.invalid("per-ip-1s", twice)
		_, err := limit.New(nil, nil).Policy(twice)
		assert.Len(r, err.(interface{ Unwrap() []error }).Unwrap(), 1)
		assert.Equal(r, 2, strings.Count(err.Error(), "5/1s per ip"), "%v", err)
		r.invalidText("5/2s per ip; 5/2s per ip")
	}},
	{14, "17 rules", func(r *row) {
		var rules []limit.Rule
		for i := range 17 {
			rules = append(rules, limit.Rule{Name: fmt.Sprint("r", i), Key: limit.ByIP, Limit: 5, Window: time.Hour})
		}
		r.invalid("16", limit.Rules(rules...))
		r.invalidText(limit.Rules(rules...).String())
		r.admits(5, behind(rules[:16]...))
	}},
	{15, "no store", func(r *row) {
		// A nil store is documented to mean memory, so that it limits and there is no
		// warning. A store without a client cannot be made.
		r.admits(5, behind(limit.PerIP(time.Hour, 5)))
		assert.PanicsWithValue(r, "redisstore: the client is nil: write redisstore.New(redis.NewClient(&redis.Options{Addr: \"localhost:6379\"}), nil)",
			func() { redisstore.New(nil, nil) })
	}},
	{16, "the same middleware twice", func(r *row) {
		// Both charge the same quota, so that fewer requests are admitted than the
		// rule says, and never more. The headers show both, and a warning says so.
		rules := limit.Rules(limit.PerIP(time.Hour, 5))
		r.runs(2, site{rules: []limit.RuleSet{rules, rules}}, func(h http.Handler) {
			assert.Len(r, do(h, "192.0.2.1:1", "/login").Header()["Ratelimit"], 2)
			r.send(h, 6, http.StatusTooManyRequests)
		})
		for name, serve := range frameworks {
			var log strings.Builder
			limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			do(serve(limiter, "POST /login", func(http.ResponseWriter, *http.Request) {}, rules, rules), "192.0.2.1:1", "/login")
			assert.Contains(r, log.String(), "code=LIMIT-102", name)
		}
	}},
	{17, "a limiter made in the handler", func(r *row) {
		// With one store the limit holds, since the store has what was admitted. With
		// a nil store each limiter has its own: docs say so.
		rules := limit.Rules(limit.PerIP(time.Hour, 5))
		for name, serve := range frameworks {
			store, ran := memstore.New(nil), 0
			r.send(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				serve(limit.New(store, nil), "POST /login", func(http.ResponseWriter, *http.Request) { ran++ }, rules).ServeHTTP(w, q)
			}), 8, http.StatusTooManyRequests)
			r.ran(ran, 5, name)
		}
	}},
	{18, "rules that change", func(r *row) {
		rule := func(n int64, window time.Duration) limit.RuleSet {
			return limit.Named("jobs", limit.Rule{Name: "all", Key: limit.Everyone, Limit: n, Window: window})
		}
		for _, store := range []func() core.Store{
			func() core.Store { return memstore.New(nil) },
			func() core.Store {
				return redisstore.New(redistest.Client(r), &redisstore.Options{Timeout: 10 * time.Second})
			},
		} {
			kept := store()
			admitted := func(rules limit.RuleSet) (n int, last limit.Decision) {
				policy := bind(limit.New(kept, nil), rules) // a restarted program
				for range 12 {
					d := must.Get(policy.Take(r.Context(), limit.Request{}))(r)
					if last = d; d.Allowed {
						n++
					}
				}
				return n, last
			}
			first, _ := admitted(rule(5, time.Hour))
			r.ran(first, 5)
			raised, _ := admitted(rule(8, time.Hour))
			r.ran(raised, 3, "of a higher limit, the rest")
			lowered, _ := admitted(rule(3, time.Hour))
			r.ran(lowered, 0, "of a lower one, nothing")
			longer, d := admitted(rule(8, 2*time.Hour))
			r.ran(longer, 0, "of a longer window, nothing: what was admitted stays")
			// The key does not know the longer window, and is forgotten when the other ends.
			assert.True(r, 50*time.Minute < d.RetryAfter && d.RetryAfter <= time.Hour, "%v", d.RetryAfter)
		}
	}},
	{19, "a key function that returns nothing", func(r *row) {
		r.runs(2, behind(limit.Per(limit.By("tenant", func(*http.Request) string { return "" }), time.Hour, 2)), func(h http.Handler) {
			for i := range 5 { // all clients share one quota
				do(h, fmt.Sprintf("192.0.2.%d:1", i), "/login")
			}
		})
	}},
	{20, "a key that is unknown", func(r *row) {
		// Key functions return no error. Over HTTP one that fails returns "", as in row 19.
		// Outside HTTP a missing key is an error.
		r.invalid("Caller.User of limit.Options", limit.Rules(limit.PerUser(time.Second, 5)))
		r.invalid("not nil", limit.Rules(limit.Per(limit.By("tenant", nil), time.Hour, 5)))
		limiter, jobs, keys := limit.New(nil, nil), limit.Named("jobs", limit.PerIP(time.Hour, 5)), map[string]string{"ip": "192.0.2.1"}
		for _, wrong := range []map[string]string{nil, {"user": "a"}, {"ip": "somewhere"}} {
			d, err := bind(limiter, jobs).Take(r.Context(), limit.Request{Keys: wrong})
			assert.Error(r, err)
			assert.False(r, d.Allowed)
		}
		r.left(limiter, jobs, keys, 5)
	}},
	{21, "a function that panics", func(r *row) {
		// The panic belongs to the program, and passes to its own recovery. The request has
		// taken nothing and holds nothing.
		panics := func(q *http.Request) string {
			if q.Header.Get("Bad") == "key" {
				panic("the program's own")
			}
			return "k"
		}
		cost := rules.CostBy("units", func(q *http.Request) int64 {
			if q.Header.Get("Bad") == "cost" {
				panic("the program's own")
			}
			return 1
		})
		r.runs(2, behind(limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}}, limit.Rule{Name: "all", Key: limit.Everyone, Limit: 2, Window: time.Hour, Cost: cost},
			limit.Per(limit.By("tenant", panics), time.Hour, 2)), func(h http.Handler) {
			for _, bad := range []string{"key", "cost", "key", "cost"} {
				assert.PanicsWithValue(r, "the program's own", func() { do(h, "192.0.2.1:1", "/login", "Bad", bad) })
			}
			r.send(h, 4, http.StatusTooManyRequests)
		})
	}},
	{22, "text that is no rule", func(r *row) {
		r.invalidText("5", "5/", "5/0s", "5 per", "1e9/s", "٥/s per ip", " 5/2s\n", "5/2s ip", "5/2s per", "5/2s per ip;;",
			"5/2s per header", "5/2s per header X: Y", "5/2s per ip bursts 3", "5/99999999999999999999s per ip",
			"99999999999999999999/2s per ip", "5.5/2s per ip", "5/2s per ip\x00", "5/2s per ip algorithm", "5/2s per ip\xff", "５/2s per ip")
		// Blanks and line breaks around rules are ignored.
		rules := must.Get(limit.Parse(" 5/2s per ip\n"))(r)
		assert.Equal(r, "5/2s per ip", rules.String())
	}},
}
