package limit

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

// policyOf returns the RateLimit-Policy of a request to h.
func policyOf(t *testing.T, h http.Handler) string {
	t.Helper()
	return serve(h, t.Context()).Header().Get("RateLimit-Policy")
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func TestChange(t *testing.T) {
	l := New(nil, nil)
	declared := Named("login", PerIP(time.Minute, 5)).Overridable()
	before := l.Limit(declared)(ok) // two declarations of one name
	again := must.Get(l.Policy(declared))(t)
	assert.Equal(t, `"per-ip-1m";q=5;w=60`, policyOf(t, before))

	require.NoError(t, l.change(Named("login", PerIP(time.Minute, 2), Global(time.Hour, 9))))
	changed := `"per-ip-1m";q=2;w=60, "global-1h";q=9;w=3600`
	assert.Equal(t, changed, policyOf(t, before))
	assert.Equal(t, changed, policyOf(t, again.Handler(ok)))
	assert.Equal(t, http.StatusTooManyRequests, serve(before, t.Context()).Code, "one admitted before the change counts")
	assert.Equal(t, changed, policyOf(t, l.Limit(declared)(ok)), "declared after the change")

	require.NoError(t, l.change())
	assert.Equal(t, `"per-ip-1m";q=5;w=60`, policyOf(t, before))
}

// TestChangeIsWhole makes changes with one mistake each, and looks that nothing has
// changed.
func TestChangeIsWhole(t *testing.T) {
	l := New(nil, nil)
	login := l.Limit(Named("login", PerIP(time.Minute, 100)).Overridable())(ok)
	l.Limit(Named("fixed", PerIP(time.Minute, 5)))
	require.NoError(t, l.change(Named("only", PerIP(time.Minute, 7))))
	l.Limit(Named("only"))
	onPath, err := New(nil, nil).Policy(EachRoute(PerIP(time.Second, 1)).Overridable())
	assert.Nil(t, onPath)
	assert.ErrorContains(t, err, "no name to be changed by: write limit.Named")

	good, only := Named("login", PerIP(time.Minute, 2)), Named("only", PerIP(time.Minute, 8))
	for want, sets := range map[string][]RuleSet{
		`rules 1/1m per ip have no name: write limit.Named("…", rules…)`: {good, only, Rules(PerIP(time.Minute, 1))},
		`policy "login": is changed twice: remove one of the two sets`:   {good, only, good},
		`rule "0/1m per ip": `: {only, Named("login", PerIP(time.Minute, 0))},
		`policy "fixed": has other rules in code (5/1m per ip, here 6/1m per ip): declare them Over`: {good, only, Named("fixed", PerIP(time.Minute, 6))},
		`policy "only": has no rules: it was declared without, so write a set of that name`:          {good},
		`rule "1/1m per user": no user resolver: set`:                                                {only, Named("login", PerUser(time.Minute, 1))},
		`no rules: write at least one`:                                                               {good, only, Named("later")},
	} {
		assert.ErrorContains(t, l.change(sets...), want)
		assert.Equal(t, `"per-ip-1m";q=100;w=60`, policyOf(t, login), want)
	}
	require.NoError(t, l.change(good, only, Named("fixed", PerIP(time.Minute, 5))), "the same rules are no change")
	assert.Equal(t, `"per-ip-1m";q=2;w=60`, policyOf(t, login))
}

func TestChangeBeforeTheDeclaration(t *testing.T) {
	l := New(nil, nil)
	require.NoError(t, l.change(Named("login", PerIP(time.Minute, 2)), Named("only", PerUser(time.Minute, 3))))
	assert.Equal(t, `"per-ip-1m";q=2;w=60`, policyOf(t, l.Limit(Named("login", PerIP(time.Minute, 5)).Overridable())(ok)))
	_, err := l.Policy(Named("login", PerIP(time.Minute, 6)))
	assert.ErrorContains(t, err, `policy "login": already has other rules (5/1m per ip, here 6/1m per ip)`)
	_, err = l.Policy(Named("unknown"))
	assert.ErrorContains(t, err, "no rules: write at least one")
	assert.PanicsWithError(t, `limit: policy "only": rule "3/1m per user": no user resolver: set Caller.User of limit.Options, or that of your adapter, such as rl.Caller.User`, func() { l.Limit(Named("only")) })

	l = New(nil, nil)
	require.NoError(t, l.change(Named("fixed", PerIP(time.Minute, 2))))
	_, err = l.Policy(Named("fixed", PerIP(time.Minute, 5)))
	assert.ErrorContains(t, err, `policy "fixed": has other rules in code (5/1m per ip, here 2/1m per ip)`)
}

// TestChangeKeepsFunctions changes rules that have functions by rules in text.
func TestChangeKeepsFunctions(t *testing.T) {
	l := New(nil, nil)
	failed := PerIP(time.Minute, 1)
	failed.Name, failed.Settle = "failed", rules.OnStatus(http.StatusUnauthorized)
	cached := Global(time.Minute, 1)
	cached.Name = "cached"
	cached.OnRefusal = Refusal{Degrade: true, Fallback: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNonAuthoritativeInfo) })}
	h := l.Limit(Named("login", failed, cached).Overridable())(ok)

	changed := Named("login", MustParse("failed: 1/1m per ip; cached: 3/1m global refuse degrade").Rules()...)
	before := changed.Rules()
	require.NoError(t, l.change(changed))
	assert.Equal(t, before, changed.Rules(), "Change writes nothing into a set")
	for range 3 {
		assert.Equal(t, http.StatusOK, serve(h, t.Context()).Code, "successes are given back")
	}
	assert.Equal(t, http.StatusNonAuthoritativeInfo, serve(h, t.Context()).Code)
}

// TestChangeWhileServed changes rules while a request is in its handler, and another
// waits: both end under the rules that they began with.
func TestChangeWhileServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		inHandler := make(chan struct{})
		slots := Rule{Key: ByIP, Limit: 1, Algorithm: Concurrency{}}
		slots.OnRefusal.Wait = time.Minute
		p := must.Get(l.Policy(Named("export", slots).Overridable()))(t)
		h := p.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-inHandler }))
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() { assert.Equal(t, http.StatusOK, serve(h, t.Context()).Code) })
		}
		synctest.Wait()
		require.NoError(t, l.change(Named("export", PerIP(time.Hour, 1))))
		d := must.Get(p.Take(t.Context(), Request{Keys: map[string]string{"ip": "192.0.2.1"}}))(t)
		assert.True(t, d.Allowed, "under the new rule")
		assert.Equal(t, "per-ip-1h", slices.Collect(d.Rules())[0].Name)
		inHandler <- struct{}{}
		inHandler <- struct{}{}
		done.Wait()
		require.NoError(t, l.change())
		d = must.Get(p.Take(t.Context(), Request{Keys: map[string]string{"ip": "192.0.2.1"}}))(t)
		assert.True(t, d.Allowed, "all slots are free")
		d.Release()
	})
}

// TestChangeUnderLoad changes a policy while requests are decided, and looks that each
// has the rules of one change.
func TestChangeUnderLoad(t *testing.T) {
	l := New(nil, nil)
	p := must.Get(l.Policy(Named("p", Global(time.Hour, 5e4), PerIP(time.Hour, 5e4)).Overridable()))(t)
	h := p.Handler(ok)
	var stop atomic.Bool
	var done sync.WaitGroup
	seen := make([]map[string]bool, 4)
	for g := range seen {
		seen[g] = make(map[string]bool)
		done.Go(func() {
			for !stop.Load() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				assert.Equal(t, http.StatusOK, w.Code)
				seen[g][w.Header().Get("RateLimit-Policy")] = true
			}
		})
	}
	for i := range 200 {
		n := int64(5e4 + i)
		sets := Named("p", Global(time.Hour, n), PerIP(time.Hour, n))
		if i%3 == 0 {
			sets = Named("p", Global(time.Hour, n))
		}
		require.NoError(t, l.change(sets))
	}
	stop.Store(true)
	done.Wait()
	for _, headers := range seen {
		for header := range headers {
			var n int
			for i := range 201 {
				if q := strconv.Itoa(5e4 + i); header == `"global-1h";q=`+q+`;w=3600` || header == `"global-1h";q=`+q+`;w=3600, "per-ip-1h";q=`+q+`;w=3600` {
					n++
				}
			}
			assert.Equal(t, 1, n, header)
		}
	}
}

// TestChangeOfRefusal changes nothing but what refused requests meet.
func TestChangeOfRefusal(t *testing.T) {
	l := New(nil, nil)
	h := l.Limit(Named("p", MustParse("1/1h global refuse mark").Rules()...).Overridable())(ok)
	for range 3 {
		assert.Equal(t, http.StatusOK, serve(h, t.Context()).Code)
	}
	require.NoError(t, l.change(Named("p", MustParse("1/1h global refuse 503").Rules()...)))
	assert.Equal(t, http.StatusServiceUnavailable, serve(h, t.Context()).Code)
	require.NoError(t, l.change(Named("p", MustParse("1/1h global").Rules()...)))
	assert.Equal(t, http.StatusTooManyRequests, serve(h, t.Context()).Code)
	require.NoError(t, l.change())
	assert.Equal(t, http.StatusOK, serve(h, t.Context()).Code)

	l.Limit(Named("fixed", Global(time.Hour, 1)))
	assert.ErrorContains(t, l.change(Named("fixed", Global(time.Hour, 1)).OnRefusal(Refusal{Mark: true})),
		`policy "fixed": has other rules in code (1/1h global, here 1/1h global refuse mark)`)
}

// TestNamedRefusal declares a policy again with another refusal, which is not that of
// its requests.
func TestNamedRefusal(t *testing.T) {
	l := New(nil, nil)
	must.Get(l.Policy(Named("p", Global(time.Hour, 1)).OnRefusal(Refusal{Mark: true})))(t)
	_, err := l.Policy(Named("p", Global(time.Hour, 1)))
	assert.ErrorContains(t, err, `policy "p": already has other rules (1/1h global refuse mark, here 1/1h global)`)
}

// TestChangeToFunctions changes rules by others that have functions.
func TestChangeToFunctions(t *testing.T) {
	l := New(nil, nil)
	costing := func(n int64) RuleSet {
		r := Global(time.Hour, 10)
		r.Cost = rules.CostBy("units", func(*http.Request) int64 { return n })
		return Named("p", r).Overridable()
	}
	h := l.Limit(costing(1))(ok)
	assert.Equal(t, http.StatusOK, serve(h, t.Context()).Code)
	require.NoError(t, l.change(costing(11)))
	assert.Equal(t, http.StatusTooManyRequests, serve(h, t.Context()).Code)
}

// TestChangeLosesNoFunction leaves out a rule with functions, or changes its window, and
// with it the name by which it has them.
func TestChangeLosesNoFunction(t *testing.T) {
	l := New(nil, nil)
	costly := PerIP(time.Minute, 10)
	costly.Cost = rules.CostBy("units", func(*http.Request) int64 { return 10 })
	other := Global(time.Hour, 100)
	l.Limit(Named("p", costly, other).Overridable())(ok)
	err := l.change(Named("p", MustParse("10/2m per ip; 100/2h global").Rules()...))
	assert.ErrorContains(t, err, `rule "10/1m per ip cost units": this rule has functions (Cost, Settle or Fallback) in code, `+
		`and no rule here has its name: write a rule "per-ip-1m: 10/1m per ip" to keep them`)
	var wrong *rules.Error
	require.ErrorAs(t, err, &wrong)
	require.NoError(t, l.change(Named("p", MustParse("per-ip-1m: 10/2m per ip; 100/2h global").Rules()...)))
	assert.Error(t, l.change(Named("p", MustParse("100/2h global").Rules()...)), "without the rule")
}

// TestChangeDefines declares a policy that only Change defines.
func TestChangeDefines(t *testing.T) {
	l := New(nil, nil)
	_, err := l.Policy(Named("not a name").Overridable())
	assert.ErrorContains(t, err, `policy name "not a name": write`)
	p := must.Get(l.Policy(Named("login").Overridable()))(t)
	h := p.Handler(ok)
	assert.Equal(t, http.StatusServiceUnavailable, serve(h, t.Context()).Code)
	_, err = p.Take(t.Context(), Request{})
	assert.ErrorIs(t, err, ErrUndecided)
	assert.ErrorContains(t, err, "the policy has no rules yet: call operate.Change")
	_, err = p.Wait(t.Context(), Request{})
	assert.ErrorIs(t, err, ErrUndecided)
	_, err = p.Peek(t.Context(), Request{})
	assert.ErrorIs(t, err, ErrUndecided)

	assert.ErrorContains(t, l.change(), `policy "login": has no rules`)
	assert.ErrorContains(t, l.change(Named("login").Overridable()), "no rules: write at least one")
	require.NoError(t, l.change(Named("login", PerIP(time.Minute, 5))))
	assert.Equal(t, `"per-ip-1m";q=5;w=60`, policyOf(t, h))
}

// TestNoticeOfUndeclaredPolicies changes a policy under a misspelled name.
func TestNoticeOfUndeclaredPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := New(nil, &Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		h := l.Limit(Named("login", PerIP(time.Minute, 100)).Overridable())(ok)
		require.NoError(t, l.change(Named("logn", PerIP(time.Minute, 5)), Named("later", PerIP(time.Minute, 5))))
		serve(h, t.Context())
		assert.Empty(t, log.String(), "the program may still declare it")
		l.Limit(Named("later"))
		time.Sleep(time.Second + 1)
		for range 2 {
			serve(h, t.Context())
		}
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		assert.Contains(t, log.String(), `code=LIMIT-114 policies=logn declared="later, login"`)

		log.Reset()
		require.NoError(t, l.change(Named("login", PerIP(time.Minute, 5)), Named("later", PerIP(time.Minute, 5))))
		time.Sleep(time.Second + 1)
		serve(h, t.Context())
		assert.Empty(t, log.String())
	})
}

// TestLift has a policy without rules of its own admit all requests, and one with rules return to
// them.
func TestLift(t *testing.T) {
	l := New(nil, nil)
	bare := must.Get(l.Policy(Named("bare").Overridable()))(t)
	own := l.Limit(Named("own", PerIP(time.Minute, 1)).Overridable())(ok)
	joined := l.Limit(Rules(PerIP(time.Minute, 2)).With(Named("bare")))(ok)
	_, err := bare.Take(t.Context(), Request{Hold: time.Minute})
	assert.ErrorContains(t, err, "has no rules yet", "with Hold too")
	assert.Equal(t, http.StatusServiceUnavailable, serve(bare.Handler(ok), t.Context()).Code)
	require.NoError(t, l.change(Named("own", PerIP(time.Minute, 9)), Named("bare", Global(time.Hour, 3))))

	require.NoError(t, l.lift())
	for range 5 {
		assert.Equal(t, http.StatusOK, serve(bare.Handler(ok), t.Context()).Code)
		d, err := bare.Take(t.Context(), Request{Keys: map[string]string{"user": "u"}, Costs: map[string]int64{"global-1h": 7}, Hold: time.Minute})
		assert.True(t, d.Allowed && d.Mode == core.ModeExempt, "%v %v", d, err)
		assert.NoError(t, d.Use(t.Context(), map[string]int64{"global-1h": 8}))
		assert.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"global-1h": 9}))
	}
	assert.NoError(t, bare.Reset(t.Context(), nil))
	leases := must.Get(l.Policy(Named("leases", Rule{Key: Everyone, Limit: 9, Algorithm: Concurrency{}}).With(Named("bare"))))(t)
	given := Request{Keys: map[string]string{"user": "u"}, Costs: map[string]int64{"global-1h": 7}, Hold: time.Minute}
	d := must.Get(leases.Take(t.Context(), given))(t, "of rules that a lifted set would have")
	assert.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"global-1h": 9}))
	assert.NoError(t, leases.Reset(t.Context(), given.Keys))
	assert.NoError(t, leases.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), given, ok))
	assert.Equal(t, `"per-ip-1m";q=1;w=60`, policyOf(t, own))
	assert.Equal(t, `"per-ip-1m";q=2;w=60`, policyOf(t, joined), "the rules of others are lifted, not its own")
	for _, later := range []RuleSet{Named("later"), Named("also").Overridable(), Named("both").With(Named("bare"))} {
		assert.Equal(t, http.StatusOK, serve(l.Limit(later)(ok), t.Context()).Code, "declared after Lift: %s", later.Name())
	}

	assert.ErrorContains(t, l.change(), `policy "bare": has no rules`)
	require.NoError(t, l.change(Named("bare", Global(time.Hour, 1)), Named("later", Global(time.Hour, 1)), Named("also", Global(time.Hour, 1))))
	d = must.Get(bare.Peek(t.Context(), Request{}))(t)
	assert.Equal(t, core.ModeExact, d.Mode)
}
