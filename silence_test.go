package limit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/rules"
)

// TestNoticeOfNoUsers sends requests to a rule by user, with a user or without.
func TestNoticeOfNoUsers(t *testing.T) {
	perUser := limit.PerUser(time.Hour, 10)
	const want = `level=WARN msg="limit: a rule by user has met no user so far, so all requests share its quota: put authentication ` +
		`before the rules, have the User function return its user, or write \"per user or ip\"" code=LIMIT-111 rule="10/1h per user" requests=100`
	for name, test := range map[string]struct {
		rules   limit.RuleSet
		silence []string
		user    func(request int) string
		want    []string
	}{
		"never a user":           {limit.Rules(perUser), nil, func(int) string { return "" }, []string{want}},
		"never, of two rules":    {limit.Rules(limit.PerIP(time.Hour, 1000), perUser), nil, func(int) string { return " " }, []string{want}},
		"never, silenced":        {limit.Rules(perUser), []string{"LIMIT-111"}, func(int) string { return "" }, nil},
		"always a user":          {limit.Rules(perUser), nil, func(int) string { return "alice" }, nil},
		"a user at last":         {limit.Rules(perUser), nil, func(i int) string { return map[int]string{99: "alice"}[i] }, nil},
		"a user too late":        {limit.Rules(perUser), nil, func(i int) string { return map[int]string{100: "alice"}[i] }, []string{want}},
		"an address otherwise":   {limit.Rules(limit.Per(limit.ByUser.Or(limit.ByIP), time.Hour, 10)), nil, func(int) string { return "" }, nil},
		"no rule by user":        {limit.Rules(limit.PerIP(time.Hour, 10)), nil, func(int) string { return "" }, nil},
		"never, of a named set":  {limit.Named("n", perUser), nil, func(int) string { return "" }, []string{want}},
		"never, on two routes":   {limit.EachRoute(perUser), nil, func(int) string { return "" }, []string{want}},
		"the first alone has it": {limit.Rules(perUser), nil, func(i int) string { return map[int]string{0: "alice"}[i] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			request := 0
			limiter, book := logged(limit.Options{Silence: test.silence, Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return test.user(request) }}})
			h := limiter.Limit(test.rules)(status(http.StatusOK))
			for ; request < 99; request++ {
				routed(h, "GET /")
			}
			require.Empty(t, book.Lines())
			for ; request < 400; request++ {
				routed(h, "GET /")
			}
			assert.ElementsMatch(t, test.want, book.Lines())
		})
	}
}

// TestNoUsersCostNothing holds that the question costs a request no allocation, before
// it is answered and afterwards.
func TestNoUsersCostNothing(t *testing.T) {
	race.Skip(t) // which drops what is put into pools
	allocations := func(key limit.KeyResolver) float64 {
		limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler), Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "" }}})
		h := limiter.Limit(limit.Named("p", limit.Per(key, time.Hour, 10)))(status(http.StatusOK))
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = "GET /"
		for range 20 { // which carry marks
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		w := discard{http.Header{}}
		return testing.AllocsPerRun(50, func() { h.ServeHTTP(w, r) })
	}
	assert.InDelta(t, allocations(limit.Everyone), allocations(limit.ByUser), 0.5)
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { clear(d.header); return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// TestSilence causes each line once, and not at all if its code is silenced.
func TestSilence(t *testing.T) {
	answer := status(http.StatusOK)
	perIP := limit.Rules(limit.PerIP(time.Hour, 100))
	settled := limit.Global(time.Hour, 1000)
	settled.Settle = rules.SettleBy("units", func(*http.Request, int) int64 { return -1 })
	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	for code, test := range map[string]struct {
		store   core.Store
		options limit.Options
		serve   func(l *limit.Limiter)
	}{
		"LIMIT-101": {serve: func(l *limit.Limiter) {
			h := l.Limit(perIP)(answer)
			routed(h, "GET /a")
			routed(h, "GET /b")
		}},
		"LIMIT-102": {serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(l.Limit(perIP)(answer)), "GET /") }},
		"LIMIT-103": {serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "") }},
		"LIMIT-105": {serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /", "X-Forwarded-For", "203.0.113.1") }},
		"LIMIT-106": {serve: func(l *limit.Limiter) {
			routed(l.Limit(limit.Rules(limit.Per(limit.ByPathValue("id"), time.Minute, 9)))(answer), "GET /a")
		}},
		"LIMIT-107": {serve: func(l *limit.Limiter) {
			engine := gin.New()
			rl := ginlimit.New(l)
			rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
			engine.GET("/", rl.Limit(limit.Rules(limit.PerUser(time.Hour, 900))), func(c *gin.Context) { c.Set("user", "alice") })
			for range 200 { // LIMIT-111 says the same
				routed(engine, "GET /")
			}
		}},
		"LIMIT-108": {options: limit.Options{Proxies: trusted}, serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
		"LIMIT-109": {serve: func(l *limit.Limiter) {
			routed(l.Limit(perIP)(answer), "/reports")
			routed(l.Limit(perIP)(answer), "/reports")
		}},
		"LIMIT-110": {serve: func(l *limit.Limiter) {
			routed(l.Limit(perIP)(answer), "GET /")
			routed(l.Limit(limit.Rules(limit.PerIP(time.Hour, 5)))(answer), "GET /")
		}},
		"LIMIT-111": {options: limit.Options{Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "" }}}, serve: func(l *limit.Limiter) {
			h := l.Limit(limit.Rules(limit.PerUser(time.Hour, 5)))(answer)
			for range 300 {
				routed(h, "GET /")
			}
		}},
		"LIMIT-112": {options: limit.Options{Instances: 3}, serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
		"LIMIT-113": {options: limit.Options{Override: func(string, string, string) int64 { return -1 }}, serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
		"LIMIT-201": {store: failing{err: errors.New("nonsense")}, serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
		"LIMIT-202": {serve: func(l *limit.Limiter) { routed(l.Limit(limit.Rules(settled))(answer), "GET /") }},
		"LIMIT-204": {store: full(t), serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
		"LIMIT-205": {store: failing{err: core.ErrUnavailable}, serve: func(l *limit.Limiter) { routed(l.Limit(perIP)(answer), "GET /") }},
	} {
		for _, silence := range [][]string{nil, {"LIMIT-103"}, {"LIMIT-103", code}} {
			book := new(logbook.Book)
			o := test.options
			o.Log, o.Silence = book.Log(), silence
			if code != "LIMIT-112" {
				o.Instances = 1
			}
			l := limit.New(test.store, &o)
			for range 3 {
				test.serve(l)
			}
			lines := slices.DeleteFunc(book.Lines(), func(line string) bool { return !strings.Contains(line, "code="+code) })
			if slices.Contains(silence, code) {
				assert.Empty(t, lines, code)
			} else {
				assert.NotEmpty(t, lines, code)
			}
		}
	}
	for _, code := range []string{"", "LIMIT-999", "limit-101", "LIMIT-101 "} {
		err := panicOf(func() { limit.New(nil, &limit.Options{Silence: []string{"LIMIT-101", code}}) })
		require.Error(t, err)
		assert.Contains(t, err.Error(), fmt.Sprintf("limit: Silence %q: write one of LIMIT-101, LIMIT-102, ", code))
	}
}

// TestLateUserIsEnough holds that a user who is known too late is not also said to be
// missing.
func TestLateUserIsEnough(t *testing.T) {
	limiter, book := logged(limit.Options{})
	engine := gin.New()
	rl := ginlimit.New(limiter)
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	engine.GET("/", rl.Limit(limit.Rules(limit.PerUser(time.Hour, 900))), func(c *gin.Context) { c.Set("user", "alice") })
	for range 300 {
		routed(engine, "GET /")
	}
	lines := book.Lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "code=LIMIT-107")
}

func panicOf(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}
