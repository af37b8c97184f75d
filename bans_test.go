package limit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
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
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// A login is a server with one route, whose password is "good", on a clock of the test.
type login struct {
	*testing.T
	server *httptest.Server
	clock  atomic.Int64 // µs
}

func newLogin(t *testing.T, rules limit.RuleSet) *login {
	l := &login{T: t}
	l.clock.Store(1_800_000_000_000_000)
	limiter := limit.New(memstore.New(&memstore.Options{Now: l.clock.Load}), nil)
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(rules)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})))
	l.server = httptest.NewServer(mux)
	t.Cleanup(l.server.Close)
	return l
}

func (l *login) wait(d time.Duration) { l.clock.Add(d.Microseconds()) }

// try logs in, and returns the status and the Retry-After.
func (l *login) try(user, password string) (status int, retry string, h http.Header) {
	l.Helper()
	query := url.Values{"user": {user}, "password": {password}}
	response := must.Get(http.Post(l.server.URL+"/login?"+query.Encode(), "", nil))(l)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode, response.Header.Get("Retry-After"), response.Header
}

func (l *login) want(status int, retry string) {
	l.Helper()
	got, after, h := l.try("alice", "bad")
	assert.Equal(l, status, got)
	assert.Equal(l, retry, after)
	assert.NotContains(l, h.Get("RateLimit-Policy")+h.Get("RateLimit"), "ban")
}

// TestBanEscalates bars an address that goes on after its refusals: for 15 minutes,
// then 30, then an hour at most, and for 15 minutes again after a quiet time.
func TestBanEscalates(t *testing.T) {
	l := newLogin(t, limit.MustParse("5/1m per ip; 3/1h per ip ban 15m to 1h"))
	for _, minutes := range []int{15, 30, 60, 60} {
		for range 5 {
			l.want(http.StatusUnauthorized, "")
		}
		l.want(http.StatusTooManyRequests, "60")
		l.want(http.StatusTooManyRequests, "60")
		l.want(http.StatusTooManyRequests, fmt.Sprint(minutes*60)) // the third strike
		l.wait(2 * time.Minute)
		l.want(http.StatusTooManyRequests, fmt.Sprint(minutes*60-120)) // where the other rule has room
		l.wait(time.Duration(minutes-2) * time.Minute)
	}
	l.wait(time.Hour)
	for range 5 {
		l.want(http.StatusUnauthorized, "")
	}
	l.want(http.StatusTooManyRequests, "60")
	l.want(http.StatusTooManyRequests, "60")
	l.want(http.StatusTooManyRequests, "900")
}

// TestBanAfterAnswers strikes for failed logins only.
func TestBanAfterAnswers(t *testing.T) {
	rule := limit.Rule{Key: limit.ByIP, Limit: 3, Window: time.Hour, Algorithm: limit.Ban{Bar: 15 * time.Minute},
		Settle: rules.OnStatus(http.StatusUnauthorized)}
	l := newLogin(t, limit.Rules(rule))
	for range 2 {
		l.want(http.StatusUnauthorized, "")
	}
	for range 10 {
		status, _, h := l.try("alice", "good")
		require.Equal(t, http.StatusOK, status)
		require.Empty(t, h.Get("RateLimit"), "a ban has no headers")
	}
	l.want(http.StatusUnauthorized, "")
	status, retry, _ := l.try("alice", "good")
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Equal(t, "900", retry)
	l.wait(15 * time.Minute)
	status, _, _ = l.try("alice", "good")
	assert.Equal(t, http.StatusOK, status)
}

// TestSpraying tries one password on 10,000 names. It is stopped after ten of them, while
// a client that mistypes its own goes on.
func TestSpraying(t *testing.T) {
	t.Run("memory", func(t *testing.T) { spraying(t, nil) })
	t.Run("redis", func(t *testing.T) { spraying(t, patientStore(redistest.Client(t), redisstore.Options{})) })

	l := newLogin(t, limit.MustParse("100/1m per ip; 10/1h per ip distinct query user"))
	for i := range 12 {
		status, _, h := l.try(fmt.Sprint("user", i), "bad")
		assert.Equal(t, i >= 10, status == http.StatusTooManyRequests, i)
		assert.NotContains(t, h.Get("RateLimit-Policy"), "distinct")
	}
}

// patientStore returns a store on Redis that decides however slow the machine is.
func patientStore(client redis.UniversalClient, o redisstore.Options) core.Store {
	o.Timeout = time.Minute
	return guard.New(redisstore.New(client, &o), &guard.Options{Slow: time.Minute})
}

func spraying(t *testing.T, store core.Store) {
	policy := mustPolicy(limit.New(store, nil), limit.Named("login", limit.MustParse("10/1h per ip distinct query user").Rules()...))
	try := func(ip, user string, cost int64) limit.Decision {
		d := must.Get(policy.Take(t.Context(), limit.Request{Cost: cost, Keys: map[string]string{"ip": ip, "query user": user}}))(t)
		require.Equal(t, core.ModeExact, d.Mode)
		return d
	}
	tried := 0
	for i := range 10_000 {
		if try("203.0.113.9", fmt.Sprint("user", i), 1).Allowed {
			tried++
		}
	}
	assert.Equal(t, 10, tried)
	for range 100 {
		d := try("203.0.113.10", "bob", 1)
		require.True(t, d.Allowed)
		require.EqualValues(t, 9, slices.Collect(d.Rules())[0].Remaining)
	}
	for name, user := range map[string]string{"known": "user3", "no value": ""} {
		assert.True(t, try("203.0.113.9", user, 7).Allowed, name)
	}
	_, err := policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}})
	assert.ErrorContains(t, err, `no key "query user"`)
}

// TestBansOutsideHTTP has costs, reservations and calls that ask again.
func TestBansOutsideHTTP(t *testing.T) {
	limiter := limit.New(nil, nil)
	policy := mustPolicy(limiter, limit.Named("jobs", limit.MustParse("9/1m per user; 3/1h per user ban 15m; 5/1h per user distinct header X").Rules()...))
	request := limit.Request{Cost: 9, Keys: map[string]string{"user": "a", "header X": "x"}}
	left := func(d limit.Decision) (list []int64) {
		for r := range d.Rules() {
			list = append(list, r.Remaining)
		}
		return list
	}
	settled := request
	settled.Settle = true
	d := must.Get(policy.Take(t.Context(), settled))(t)
	assert.EqualValues(t, 9, d.Taken)
	require.NoError(t, d.Settle(t.Context(), 7))
	request.Cost = 0
	d = must.Get(policy.Peek(t.Context(), request))(t)
	assert.Equal(t, []int64{2, 3, 4}, left(d))

	request.Cost = 5
	for range 3 {
		d = must.Get(policy.Take(t.Context(), request))(t)
		require.False(t, d.Allowed)
	}
	assert.Equal(t, 15*time.Minute, d.RetryAfter)
	assert.Contains(t, routetest.Refused(d), "per-user-ban")
	request.Cost = 0
	d = must.Get(policy.Peek(t.Context(), request))(t)
	assert.False(t, d.Allowed)
	assert.InDelta(t, 15*time.Minute, d.RetryAfter, float64(time.Minute))
	require.NoError(t, policy.Reset(t.Context(), request.Keys))
	d = must.Get(policy.Take(t.Context(), request))(t)
	assert.Equal(t, []int64{8, 3, 4}, left(d))

	_, err := policy.Wait(t.Context(), request)
	assert.ErrorContains(t, err, "each is a strike")
	request.Cost, request.UpTo = 5, true
	_, err = policy.Take(t.Context(), request)
	assert.ErrorContains(t, err, "each is a strike")
}

func TestInvalidBans(t *testing.T) {
	for text, want := range map[string]string{
		"3/1h per ip ban 15m":                         "nothing can strike",
		"5/1m per ip; 3/1h per ip ban 15m to 10m":     "longest bar of 10m0s: write at least the bar of 15m0s",
		"5/1m per ip; 3/1h per ip ban 400d":           "bar of 9600h0m0s: write how long a key is barred, 1ms to 366 days",
		"5/1m per ip; 1001/1h per ip ban 1h":          "limit 1001 is too large for a ban",
		"10001/1h per ip distinct user":               "limit 10001 is too large for distinct values",
		"5/1m per ip; 3/1h per ip ban 1h burst 3":     "an algorithm that takes it",
		"5/1m per ip; 3/1h per ip distinct global":    "want a key",
		"5/1m per ip; 3/1h per ip distinct path name": "",
	} {
		_, err := limit.Parse(text)
		if want == "" {
			assert.NoError(t, err, text)
		} else {
			assert.ErrorContains(t, err, want, text)
		}
	}
	for want, rule := range map[string]limit.Rule{
		"no values: write what is counted":    {Key: limit.ByIP, Limit: 3, Window: time.Hour, Algorithm: limit.Distinct{}},
		"write whole numbers of microseconds": {Key: limit.ByIP, Limit: 3, Window: time.Hour, Algorithm: limit.Ban{Bar: time.Hour + 1}},
		"no pointer":                          {Key: limit.ByIP, Limit: 3, Window: time.Hour, Algorithm: &limit.Ban{Bar: time.Hour}},
	} {
		_, err := limit.New(nil, nil).Policy(limit.Rules(limit.PerUser(time.Minute, 1), rule))
		assert.ErrorContains(t, err, want)
	}
}

// TestXRateLimitOfBans shows in X-RateLimit that a ban refuses, which has no header.
func TestXRateLimitOfBans(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{Headers: limit.XRateLimit})
	for rules, want := range map[string][]string{
		"2/1h per ip; 1/1m per ip ban 2h":                          {"404 1 3600", "404 0 3600", "429 0 7200", "429 0 7200"},
		"9/1h per ip; 1/1h per query q hidden; 2/1m per ip ban 2h": {"404 8 3600", "429 0 3600", "429 0 7200"},
	} {
		h := limiter.Limit(limit.MustParse(rules))(http.NotFoundHandler())
		var got []string
		for range want {
			w := send(h, http.MethodGet, "/")
			got = append(got, fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Remaining"), " ", w.Header().Get("X-RateLimit-Reset")))
		}
		assert.Equal(t, want, got, rules)
	}
}
