package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// TestExempt sends requests of callers that one rule or both exempt. What a rule does
// not charge, it neither refuses nor shows.
func TestExempt(t *testing.T) {
	const ip, all = `"per-ip-1h";q=1;w=3600`, `"all";q=2;w=3600`
	for _, row := range []struct {
		name, address, forwarded, user, plan, class string
		header                                      string
		admitted                                    int // of 4
		mode                                        core.Mode
	}{
		{name: "nobody", address: "192.0.2.1", header: ip + ", " + all, admitted: 1},
		{name: "address", address: "10.1.2.3", header: all, admitted: 2},
		{name: "address behind a proxy", address: "203.0.113.1", forwarded: "10.1.2.3", header: all, admitted: 2},
		{name: "forged address", address: "192.0.2.1", forwarded: "10.1.2.3", header: ip + ", " + all, admitted: 1},
		{name: "IPv6", address: "2001:db8::5", header: all, admitted: 2},
		{name: "outside the prefix", address: "2001:db9::5", header: ip + ", " + all, admitted: 1},
		{name: "mapped", address: "::ffff:10.1.2.3", header: all, admitted: 2},
		{name: "user", address: "192.0.2.1", user: "root", header: all, admitted: 2},
		{name: "user of another case", address: "192.0.2.1", user: "Root", header: ip + ", " + all, admitted: 1},
		{name: "plan", address: "192.0.2.1", plan: "enterprise", header: ip, admitted: 1},
		{name: "class", address: "192.0.2.1", class: "critical", header: ip, admitted: 1},
		{name: "both", address: "192.0.2.1", user: "root", class: "critical", admitted: 4, mode: core.ModeExempt},
	} {
		store := &storeCalls{Store: memstore.New(nil)}
		var last limit.Decision
		limiter := limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User"), Plan: header("Plan"), Class: header("Class")},
			Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
			Observe: func(_ *http.Request, d limit.Decision, _ error) { last = d }})
		h := limiter.Limit(limit.MustParse("1/1h per ip exempt ip 10.0.0.0/8 exempt ip 2001:db8::/32 exempt user root; " +
			"all: 2/1h global exempt plan enterprise exempt class critical"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		admitted := 0
		for range 4 {
			r := httptest.NewRequest("GET", "/", nil)
			r.Pattern = "/"
			r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(row.address), 80).String()
			for name, v := range map[string]string{"X-Forwarded-For": row.forwarded, "User": row.user, "Plan": row.plan, "Class": row.class} {
				if v != "" {
					r.Header.Set(name, v)
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == http.StatusOK {
				admitted++
				assert.Equal(t, row.mode, last.Mode, row.name)
				assert.Len(t, slices.Collect(last.Rules()), 2, row.name)
				assert.Equal(t, row.header, w.Header().Get("RateLimit-Policy"), row.name)
			}
			for rule := range last.Rules() {
				if rule.Exempt {
					assert.Equal(t, []any{true, rule.Limit, rule.Limit}, []any{rule.Allowed, rule.Remaining, rule.Capacity})
				}
			}
		}
		assert.Equal(t, row.admitted, admitted, row.name)
		if row.mode == core.ModeExempt {
			assert.Zero(t, store.n, row.name)
		}
	}
}

// TestExemptAlgorithms exempts callers from rules of every algorithm, which charge them
// nothing: neither units nor leases, strikes or values.
func TestExemptAlgorithms(t *testing.T) {
	for _, words := range []string{"", "fixed-window", "sliding-cells", "sliding-counter", "token-bucket", "leaky-bucket", "queue", "concurrency",
		"ban 1m", "distinct query name"} {
		limiter := limit.New(nil, nil)
		policy := mustPolicy(limiter, limit.Named("p", limit.MustParse("r: 1/1h global "+words+" exempt user root; other: 3/1h per user").Rules()...))
		for n := range 5 {
			d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "root", "query name": fmt.Sprint(n)}, Settle: true}))(t)
			assert.Equal(t, n < 3, d.Allowed, "%s %d", words, n)
			if d.Allowed {
				require.NoError(t, d.Settle(t.Context(), 1))
			}
		}
		request := limit.Request{Keys: map[string]string{"user": "alice", "query name": "a"}}
		for n := range 2 {
			d := must.Get(policy.Take(t.Context(), request))(t)
			assert.Equal(t, n == 0 || words == "ban 1m" || words == "distinct query name", d.Allowed, "%s: nothing was spent before", words)
		}
		root := must.Get(policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "root", "query name": "z"}}))(t)
		assert.True(t, slices.Collect(root.Rules())[0].Exempt)
		assert.Equal(t, []string{"other"}, routetest.Refused(root))
	}
}

// TestExemptSettle has the Settle of a rule leave exempt requests alone.
func TestExemptSettle(t *testing.T) {
	list := limit.MustParse("bad: 2/1h global ban 1h exempt user root; few: 100/1h global").Rules()
	list[0].Settle = rules.OnStatus(http.StatusUnauthorized)
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User")}})
	h := limiter.Limit(limit.Named("login", list...))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	send := func(user string) int {
		w := send(h, "GET", "/", "User", user)
		return w.Code
	}
	for range 5 {
		assert.Equal(t, http.StatusUnauthorized, send("root"))
	}
	assert.Equal(t, http.StatusUnauthorized, send("alice"))
	assert.Equal(t, http.StatusUnauthorized, send("alice"))
	assert.Equal(t, http.StatusTooManyRequests, send("alice"), "banned")
	assert.Equal(t, http.StatusUnauthorized, send("root"), "the ban of others does not refuse it")
}

// TestWaitsOfExempt has callers wait for one quota of whom other rules exempt some, or watch
// some: each is decided by its own rules.
func TestWaitsOfExempt(t *testing.T) {
	for _, first := range []limit.Rule{
		{Name: "first", Key: limit.ByUser, Limit: 500, Window: time.Hour, Exempt: []string{"user vip"}},
		{Name: "first", Key: limit.ByUser, Limit: 500, Window: time.Hour, Shadow: &rules.Shadow{Enforced: 50}},
	} {
		for _, vipFirst := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User")}})
				list := limit.Named("api", first, limit.Rule{Name: "all", Key: limit.Everyone, Limit: 1, Window: time.Second,
					OnRefusal: limit.Refusal{Wait: time.Hour}})
				policy := must.Get(limiter.Policy(list))(t)
				handler := policy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				var all sync.WaitGroup
				for i := range 40 {
					user := fmt.Sprint("user-", i)
					if (i%2 == 0) == vipFirst {
						user = "vip"
					}
					all.Go(func() {
						w := send(handler, "GET", "/", "User", user)
						assert.Equal(t, http.StatusOK, w.Code)
					})
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						_, err := policy.Wait(ctx, limit.Request{Keys: map[string]string{"user": user}})
						assert.NoError(t, err)
					})
					synctest.Wait()
				}
				all.Wait()
			})
		}
	}
}

// TestExemptFromAll decides requests outside HTTP of a caller whom all rules exempt. They are
// admitted, and there is nothing to settle.
func TestExemptFromAll(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("api",
		limit.Rule{Name: "mine", Key: limit.ByUser, Limit: 1, Window: time.Hour, Exempt: []string{"user vip"}},
		limit.Rule{Name: "slots", Key: limit.ByUser, Limit: 1, Algorithm: limit.Concurrency{}, Exempt: []string{"user vip"}}))
	vip := map[string]string{"user": "vip"}
	for range 3 {
		for _, r := range []limit.Request{{}, {Settle: true}, {Hold: time.Minute, ID: "x"}, {UpTo: true, Cost: 3}} {
			r.Keys = vip
			d := must.Get(policy.Take(t.Context(), r))(t)
			assert.Equal(t, []any{true, core.ModeExempt, max(1, r.Cost)}, []any{d.Allowed, d.Mode, d.Taken})
			assert.WithinDuration(t, time.Now(), d.At, time.Minute)
			for rule := range d.Rules() {
				assert.True(t, rule.Exempt)
			}
			if r.Settle || r.Hold > 0 {
				assert.NoError(t, d.Use(t.Context(), map[string]int64{"mine": 5}))
				assert.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"mine": 5}))
			}
			d.Release()
		}
		d, err := policy.Wait(t.Context(), limit.Request{Keys: vip, Cost: 10}) // more than there ever is for others
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		d = must.Get(policy.Peek(t.Context(), limit.Request{Keys: vip}))(t)
		assert.True(t, d.Allowed)
	}
}
