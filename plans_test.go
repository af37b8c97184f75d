package limit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"github.com/routelimit/limit/stores/memstore"
)

// header returns a function that returns a header of a request.
func header(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// storeCalls counts the calls of a store.
type storeCalls struct {
	core.Store
	n int
}

func (s *storeCalls) Take(ctx context.Context, asks []core.Ask) error {
	s.n++
	return s.Store.Take(ctx, asks)
}

// TestPlans has callers on plans, with overrides and with neither, until they are
// refused. Headers, documents and decisions show the limit that applied to each.
func TestPlans(t *testing.T) {
	overrides := map[[3]string]int64{{"GET /", "per-user-1h", "dora"}: 7, {"GET /", "per-user-1h", "erik"}: 2, {"GET /", "global-1h", ""}: 500}
	store := &storeCalls{Store: memstore.New(nil)}
	var last limit.Decision
	limiter := limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User"), Plan: header("Plan")}, Headers: limit.Draft11 | limit.XRateLimit,
		Override: func(policy, rule, key string) int64 { return overrides[[3]string{policy, rule, key}] },
		Observe:  func(_ *http.Request, d limit.Decision, _ error) { last = d },
	})
	mux := http.NewServeMux()
	mux.Handle("GET /", limiter.Limit(limit.MustParse("3/1h per user plan pro 5 plan enterprise 1k; 100/1h global plan pro 200"))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, row := range []struct {
		user, plan string
		limit      int64
	}{
		{"alice", "", 3}, {"bob", "unknown", 3}, {"carl", "pro", 5}, {"dora", "pro", 7}, {"erik", "pro", 2}, {"erik", "", 2}, {"frida", "enterprise", 1000},
	} {
		for n := range min(row.limit, 10) + 1 {
			if row.user == "erik" && row.plan == "" && n == 0 {
				continue // it has used up its limit on the plan
			}
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("User", row.user)
			r.Header.Set("Plan", row.plan)
			w := httptest.NewRecorder()
			store.n = 0
			mux.ServeHTTP(w, r)
			refused := n == row.limit || row.user == "erik" && row.plan == ""
			if refused {
				assert.LessOrEqual(t, store.n, 1, "none if the refusal is remembered")
			} else {
				assert.Equal(t, 1, store.n, "one round trip")
			}
			assert.Equal(t, refused, w.Code == http.StatusTooManyRequests, "%s %d", row.user, n)
			assert.Equal(t, fmt.Sprintf(`"per-user-1h";q=%d;w=3600, "global-1h";q=500;w=3600`, row.limit), w.Header().Get("RateLimit-Policy"))
			assert.Equal(t, row.limit, slices.Collect(last.Rules())[0].Limit)
			assert.Equal(t, int64(500), slices.Collect(last.Rules())[1].Limit)
			if row.limit < 100 {
				assert.Equal(t, fmt.Sprint(row.limit), w.Header().Get("X-RateLimit-Limit"), "the nearest")
			}
			if refused {
				var document struct {
					Limits map[string]int64
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
				assert.Equal(t, map[string]int64{"per-user-1h": row.limit}, document.Limits)
			}
			if refused {
				break
			}
		}
	}
}

// TestPlanWithoutHTTP takes requests of plans, changes the plan of a user, and asks for
// the keys of overrides.
func TestPlanWithoutHTTP(t *testing.T) {
	limits := map[string]int64{}
	limiter := limit.New(nil, &limit.Options{Override: func(policy, rule, key string) int64 { return limits[policy+" "+rule+" "+key] }})
	policy := mustPolicy(limiter, limit.Named("api", limit.MustParse("4/1h per user and ip plan pro 8").Rules()...))
	keys := map[string]string{"user": "alice", "ip": "[2001:db8::7]:443"}
	take := func(plan string, n int64) (limit.Decision, int64) {
		d := must.Get(policy.Take(t.Context(), limit.Request{Keys: keys, Plan: plan, Cost: n, UpTo: true}))(t)
		return d, slices.Collect(d.Rules())[0].Remaining
	}
	d, _ := take("", 10)
	assert.Equal(t, int64(4), d.Taken)
	d, left := take("pro", 3)
	assert.Equal(t, []int64{3, 1}, []int64{d.Taken, left}, "what was spent on one plan counts on the other")
	d, _ = take("", 1)
	assert.False(t, d.Allowed)

	key := must.Get(operate.Key(policy, "per-user-and-ip-1h", keys))(t)
	limits["api per-user-and-ip-1h "+key] = 20
	d, left = take("", 1)
	assert.Equal(t, []any{true, int64(12), int64(20)}, []any{d.Allowed, left, slices.Collect(d.Rules())[0].Limit})
	peeked := must.Get(policy.Peek(t.Context(), limit.Request{Keys: keys, Plan: "pro"}))(t)
	assert.Equal(t, int64(20), slices.Collect(peeked.Rules())[0].Limit)

	_, err := operate.Key(policy, "per-user-2h", keys)
	assert.EqualError(t, err, `limit: no rule has the name "per-user-2h": write one of per-user-and-ip-1h`)
	_, err = operate.Key(policy, "per-user-and-ip-1h", map[string]string{"user": "alice"})
	assert.ErrorContains(t, err, `no key "ip"`)
}

// TestAbsurdOverrides has a function return limits that no rule can have.
func TestAbsurdOverrides(t *testing.T) {
	var log strings.Builder
	said := int64(0)
	limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Override: func(string, string, string) int64 { return said }})
	for text, want := range map[string]map[int64]int64{
		"5/1h per user":                                {-1: 5, -1 << 63: 5, 0: 5, 1: 1, 1 << 62: core.MaxLog},
		"5/1h per user token-bucket":                   {-1: 5, 1<<63 - 1: core.MaxLimit, 7: 7},
		"5/1s per user token-bucket burst 3":           {1 << 62: core.MaxLimit},
		"300M/1h per user token-bucket burst 1000000M": {1: 300_000_000},
		"5/1h per user concurrency":                    {1 << 62: core.MaxLeases},
		"5/1h per user ban 1m; 100/1h per user":        {1 << 62: core.MaxStrikes},
		"5/1h per user distinct ip; 100/1h per user":   {1 << 62: core.MaxValues},
		"10/1h per user token-bucket empty":            {20: 20, 1: 1},
		"10/1h per user reserve critical 9 plan a 11":  {20: 20, 1: 1},
	} {
		policy := mustPolicy(limiter, limit.Named(strings.Map(letters, text), limit.MustParse(text).Rules()...))
		for said = range want {
			log.Reset()
			d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": fmt.Sprint(said), "ip": "::1"}}))(t)
			assert.Equal(t, want[said], slices.Collect(d.Rules())[0].Limit, "%s: %d", text, said)
			d.Release()
		}
	}
	said = -7
	log.Reset()
	must.Get(mustPolicy(limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Override: func(string, string, string) int64 { return said }}),
		limit.Named("p", limit.PerUser(time.Hour, 5))).Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	assert.Contains(t, log.String(), `code=LIMIT-113 policy=p rule=per-user-1h limit=-7 instead=5`)
	assert.NotContains(t, log.String(), "alice")
}

func letters(c rune) rune {
	if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
		return c
	}
	return '-'
}

// TestPlanDeclarations has declarations that could never find a plan, a class or a user.
func TestPlanDeclarations(t *testing.T) {
	none := limit.New(nil, nil)
	for text, want := range map[string]string{
		"5/1s per ip plan pro 9":           "no plan resolver: set Caller.Plan of limit.Options",
		"5/1s per ip exempt plan pro":      "no plan resolver: set Caller.Plan of limit.Options",
		"5/1s per ip reserve critical 1":   "no class resolver: set Caller.Class of limit.Options",
		"5/1s per ip exempt class default": "no class resolver: set Caller.Class of limit.Options",
		"5/1s per ip exempt user root":     "no user resolver: set Caller.User of limit.Options",
	} {
		func() {
			defer func() { assert.ErrorContains(t, recover().(error), want) }()
			none.Limit(limit.MustParse(text))
		}()
		_, err := none.Policy(limit.MustParse(text))
		assert.NoError(t, err, "outside HTTP the request says it")
	}
	for text, want := range map[string]string{
		"5/1s per ip reserve urgent 1":     "reserve urgent: write one of the classes critical, default, background, or add it to limit.Options.Classes",
		"5/1s per ip reserve background 1": "reserve background: no class is below it: write a higher one",
		"5/1s per ip exempt class urgent":  "exempt class urgent: write one of the classes",
	} {
		_, err := none.Policy(limit.MustParse(text))
		assert.ErrorContains(t, err, want)
	}
	for want, classes := range map[string][]string{
		`Classes ["high" "low"]: write at most 16, with "default" for requests without a class`: {"high", "low"},
		`Classes []: write at most 16`:                {},
		`Classes[1] "default": write different names`: {"default", "default"},
		`Classes[0] "a b"`:                            {"a b", "default"},
	} {
		assert.PanicsWithError(t, fmt.Sprint(recovered(func() { limit.New(nil, &limit.Options{Classes: classes}) })), func() { limit.New(nil, &limit.Options{Classes: classes}) })
		assert.Contains(t, fmt.Sprint(recovered(func() { limit.New(nil, &limit.Options{Classes: classes}) })), want)
	}
}

func recovered(f func()) (problem any) {
	defer func() { problem = recover() }()
	f()
	return nil
}

// TestPlanAllocations holds that plans, classes and exemptions cost a decision in memory
// nothing on the heap.
func TestPlanAllocations(t *testing.T) {
	made := 0
	pool := sync.Pool{New: func() any { made++; return new(int) }}
	for range 1000 {
		pool.Put(pool.Get())
	}
	if made > 100 {
		t.Skip("the race detector has pools drop what is put back")
	}
	options := &limit.Options{Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }, Plan: func(*http.Request) string { return "pro" }, Class: func(*http.Request) string { return "background" }},
		Override: func(string, string, string) int64 { return 0 }}
	plain := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.MustParse("100000/1ms per user; 100000/1ms global").Rules()...))
	rich := mustPolicy(limit.New(nil, options), limit.Named("p", limit.MustParse(
		"10/1ms per user plan pro 100000 reserve critical 2; 100000/1ms global plan free 1 exempt plan pro exempt ip 10.0.0.0/8 exempt user bob; 9/1ms per ip exempt class background").Rules()...))
	r := httptest.NewRequest("GET", "/", nil)
	for name, policy := range map[string]*limit.Policy{"plain": plain, "rich": rich} {
		request := limit.Request{Keys: map[string]string{"user": "alice", "ip": "203.0.113.9"}, Plan: "pro", Class: "background"}
		assert.Zero(t, testing.AllocsPerRun(1000, func() { policy.Take(context.Background(), request) }), name)
	}
	assert.Equal(t, testing.AllocsPerRun(1000, func() { deciding.Decide(plain, r, nil, 0) }), testing.AllocsPerRun(1000, func() { deciding.Decide(rich, r, nil, 0) }))
}

// TestResetOfPlans resets the buckets of all plans.
func TestResetOfPlans(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.MustParse("2/1h per user token-bucket plan pro 3").Rules()...))
	keys := map[string]string{"user": "alice"}
	for range 2 {
		for plan, n := range map[string]int64{"": 2, "pro": 3} {
			d := must.Get(policy.Take(t.Context(), limit.Request{Keys: keys, Plan: plan, Cost: 9, UpTo: true}))(t)
			assert.Equal(t, n, d.Taken)
		}
		require.NoError(t, policy.Reset(t.Context(), keys))
	}
}

// failingStore is a store that fails while it is told to.
type failingStore struct {
	core.Store
	fails bool
	n     int
}

func (s *failingStore) Take(ctx context.Context, asks []core.Ask) error {
	s.n++
	if s.fails {
		return core.ErrUnavailable
	}
	return s.Store.Take(ctx, asks)
}

// TestPlansDecorated has callers on two plans share a key, behind a memory of refusals
// and a guard. A refusal of the one is no refusal of the other, and in an outage each
// has its own limit, of what both have spent.
func TestPlansDecorated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, words := range []string{"", "fixed-window", "sliding-cells", "sliding-counter"} {
			store := &failingStore{Store: memstore.New(nil)}
			policy := mustPolicy(limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)}),
				limit.Named("p", limit.MustParse("3/1h per ip plan pro 6 "+words).Rules()...))
			take := func(key, plan string) (limit.Decision, int) {
				before := store.n
				d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": key}, Plan: plan}))(t)
				return d, store.n - before
			}
			const shared, fresh = "203.0.113.1", "203.0.113.2"
			for range 3 {
				d, _ := take(shared, "")
				assert.True(t, d.Allowed)
			}
			for range 3 {
				d, _ := take(shared, "")
				assert.False(t, d.Allowed, words)
				d, calls := take(shared, "pro")
				assert.Equal(t, []any{true, core.ModeExact, 1}, []any{d.Allowed, d.Mode, calls}, "not refused from memory under the larger limit: %s", words)
			}
			for range 2 {
				for _, plan := range []string{"", "pro"} {
					d, _ := take(shared, plan)
					assert.False(t, d.Allowed, words)
				}
			}
			_, calls := take(shared, "pro")
			assert.Zero(t, calls, "the refusal is remembered: %s", words)

			store.fails = true
			for _, row := range []struct {
				plan string
				want bool
			}{{"", true}, {"", true}, {"", true}, {"", false}, {"pro", true}, {"pro", true}, {"", false}, {"pro", true}, {"pro", false}, {"", false}} {
				d, _ := take(fresh, row.plan)
				assert.Equal(t, []any{row.want, core.ModeLocal}, []any{d.Allowed, d.Mode}, "%s, plan %q", words, row.plan)
			}
			d, _ := take(shared, "pro")
			assert.False(t, d.Allowed, "what was spent before the outage counts: %s", words)
		}
	})
}

// TestBucketsOfPlansKeep has a bucket of a plan keep what is spent when the limit of the
// plan changes, and when its key or that of another rule gets an override.
func TestBucketsOfPlansKeep(t *testing.T) {
	over := make(map[string]int64)
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Plan: header("Plan")}, Override: func(_, rule, _ string) int64 { return over[rule] }})
	rules := func(text string) limit.RuleSet {
		return limit.Named("p", limit.MustParse(text).Rules()...).Overridable()
	}
	policy := mustPolicy(limiter, rules("a: 2/1h per user token-bucket burst 8 plan pro 4; b: 100/1h per user"))
	left := func() int64 {
		d := must.Get(policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}, Plan: "pro"}))(t)
		return slices.Collect(d.Rules())[0].Remaining
	}
	must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}, Plan: "pro", Cost: 8}))(t)
	require.Zero(t, left())
	over["b"] = 50
	assert.Zero(t, left(), "an override of another rule")
	over["a"] = 6
	assert.Zero(t, left(), "an override")
	clear(over)
	for _, n := range []string{"5", "2", "4"} {
		require.NoError(t, operate.Change(limiter, rules("a: 2/1h per user token-bucket burst 8 plan pro "+n+"; b: 100/1h per user")))
		assert.Zero(t, left(), "plan pro %s", n)
	}
}
