package limit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// TestJitter holds that what clients are told is never too early, is spread evenly, and
// is the same in the header and in the body.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jitter = 9 // s
		limiter := limit.New(nil, &limit.Options{Jitter: jitter * time.Second})
		h := limiter.Limit(limit.Rules(limit.Global(time.Hour, 1)))(http.NotFoundHandler())
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		start, told := time.Now(), make(map[int]int)
		const refusals = 10_000
		for range refusals {
			time.Sleep(time.Microsecond)
			w := send(h, "GET", "/")
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			seconds := must.Get(strconv.Atoi(w.Header().Get("Retry-After")))(t)
			require.Contains(t, w.Body.String(), fmt.Sprintf("Try again in %d s.", seconds))
			early := (time.Hour - time.Since(start) - time.Duration(seconds)*time.Second)
			require.LessOrEqual(t, early, time.Duration(0))
			told[seconds-3600]++
		}
		require.Len(t, told, jitter+1, "%v", told)
		for seconds := 1; seconds <= jitter; seconds++ {
			assert.InDelta(t, refusals/jitter, told[seconds], refusals/jitter/5, "%v", told) // seven standard deviations
		}
	})
	for _, jitter := range []time.Duration{-1, 24*time.Hour + 1} {
		assert.PanicsWithError(t, fmt.Sprintf("limit: Jitter %v: write 0 to 24h0m0s", jitter), func() {
			limit.New(nil, &limit.Options{Jitter: jitter})
		})
	}
	assert.NotPanics(t, func() { limit.New(nil, &limit.Options{Jitter: 24 * time.Hour}) })
}

// TestHeaderStyles checks the fields of each style, of a request that is admitted and of one that
// is refused.
func TestHeaderStyles(t *testing.T) {
	fields := []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	draft := []string{`"ip";r=1;t=60, "all";r=9;t=3600`, `"ip";q=2;w=60, "all";q=10;w=3600`, "", "", ""}
	for name, test := range map[string]struct {
		style limit.Headers
		want  []string
		rest  string // after a refusal
	}{
		"zero":       {0, draft, ""},
		"Draft11":    {limit.Draft11, draft, ""},
		"XRateLimit": {limit.XRateLimit, []string{"", "", "2", "1", "60"}, "0"},
		"both":       {limit.Draft11 | limit.XRateLimit, []string{draft[0], draft[1], "2", "1", "60"}, "0"},
		"NoHeaders":  {limit.NoHeaders, make([]string, 5), ""},
	} {
		h := limit.New(nil, &limit.Options{Headers: test.style}).Limit(limit.Named("p",
			limit.Rule{Name: "ip", Key: limit.ByIP, Limit: 2, Window: time.Minute},
			limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10, Window: time.Hour}))(ok200)
		admitted := sent(h, "/")
		for i, field := range fields {
			assert.Equal(t, test.want[i], strings.Join(admitted.Header().Values(field), ", "), "%s: %s", name, field)
		}
		require.Equal(t, http.StatusOK, sent(h, "/").Code)
		refused := sent(h, "/")
		require.Equal(t, http.StatusTooManyRequests, refused.Code)
		assert.Equal(t, "60", refused.Header().Get("Retry-After"), name)
		assert.Equal(t, test.rest, refused.Header().Get("X-RateLimit-Remaining"), name)
	}
}

// TestXRateLimitUnix holds that X-RateLimit-Reset is a time of the store, rounded up, and
// that the other fields are those of XRateLimit.
func TestXRateLimitUnix(t *testing.T) {
	const second = 1_767_225_600
	for _, style := range []limit.Headers{limit.XRateLimit, limit.XRateLimitUnix, limit.Draft11 | limit.XRateLimitUnix} {
		clock := int64(second*1_000_000 + 400_000)
		store := memstore.New(&memstore.Options{Now: func() int64 { return clock }})
		h := limit.New(store, &limit.Options{Headers: style}).Limit(limit.Named("p", limit.Global(time.Minute, 2)))(http.NotFoundHandler())
		send := func() http.Header {
			w := send(h, "GET", "/")
			return w.Header()
		}
		send()
		clock += 10_700_000
		for range 2 { // the second is refused
			headers := send()
			assert.Equal(t, "2", headers.Get("X-RateLimit-Limit"))
			assert.Equal(t, "0", headers.Get("X-RateLimit-Remaining"))
			want := "60" // until the quota is full
			if style&limit.XRateLimitUnix != 0 {
				want = strconv.Itoa(second + 72) // 0.4 + 10.7 + 60, rounded up
			}
			assert.Equal(t, want, headers.Get("X-RateLimit-Reset"))
			assert.Equal(t, style&limit.Draft11 != 0, headers.Get("RateLimit") != "")
		}
	}
	for _, style := range []limit.Headers{limit.XRateLimit | limit.XRateLimitUnix, limit.NoHeaders | limit.XRateLimitUnix, limit.NoHeaders | limit.Draft11, limit.NoHeaders | limit.OpenAI, limit.Anthropic << 1} {
		assert.PanicsWithError(t, "limit: Headers: NoHeaders cannot be combined, and XRateLimit and XRateLimitUnix exclude each other", func() {
			limit.New(nil, &limit.Options{Headers: style})
		})
	}
}

// TestModelStyles checks the fields of OpenAI and Anthropic of a request that is admitted,
// one that is refused, and one for which no wait helps.
func TestModelStyles(t *testing.T) {
	const second = 1_767_225_600
	clock := int64(second*1_000_000 + 400_000)
	store := memstore.New(&memstore.Options{Now: func() int64 { return clock }})
	limiter := limit.New(store, &limit.Options{Headers: limit.OpenAI | limit.Anthropic})
	cost := int64(0)
	h := limiter.Limit(limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.Everyone, Limit: 60, Window: time.Hour},
		limit.Rule{Name: "input-tokens", Key: limit.Everyone, Limit: 100, Window: time.Minute,
			Algorithm: limit.TokenBucket{Burst: 70}, Cost: rules.CostBy("input", func(*http.Request) int64 { return cost })},
		limit.Rule{Name: "secret", Key: limit.Everyone, Limit: 60, Window: time.Hour, Hidden: true},
		limit.Global(time.Hour, 60)))(http.NotFoundHandler())
	send := func(n int64) (fields []string) {
		cost = n
		w := send(h, "GET", "/")
		for name, values := range w.Header() {
			if name != "Content-Type" && name != "X-Content-Type-Options" && name != "Cache-Control" {
				fields = append(fields, name+": "+strings.Join(values, ", "))
			}
		}
		slices.Sort(fields)
		return fields
	}
	assert.Equal(t, []string{
		"Anthropic-Ratelimit-Input-Tokens-Limit: 70",
		"Anthropic-Ratelimit-Input-Tokens-Remaining: 0",
		"Anthropic-Ratelimit-Input-Tokens-Reset: 2026-01-01T00:00:43Z", // 42.4 s, rounded up
		"Anthropic-Ratelimit-Requests-Limit: 60",
		"Anthropic-Ratelimit-Requests-Remaining: 59",
		"Anthropic-Ratelimit-Requests-Reset: 2026-01-01T01:00:01Z",
		"X-Ratelimit-Limit-Input-Tokens: 70",
		"X-Ratelimit-Limit-Requests: 60",
		"X-Ratelimit-Remaining-Input-Tokens: 0",
		"X-Ratelimit-Remaining-Requests: 59",
		"X-Ratelimit-Reset-Input-Tokens: 42s",
		"X-Ratelimit-Reset-Requests: 1h0m0s",
	}, send(70))
	clock += 10_123
	refused := send(1)
	assert.Contains(t, refused, "Retry-After: 1")
	assert.Contains(t, refused, "Retry-After-Ms: 590") // 589.877, rounded up
	assert.Contains(t, refused, "X-Ratelimit-Reset-Input-Tokens: 41.99s")
	assert.Contains(t, refused, "X-Ratelimit-Remaining-Requests: 59")
	assert.NotContains(t, strings.Join(refused, "\n"), "X-Should-Retry")
	never := send(71)
	assert.Contains(t, never, "X-Should-Retry: false")
	assert.NotContains(t, strings.Join(never, "\n"), "Retry-After")

	for style, prefix := range map[limit.Headers]string{limit.OpenAI: "X-Ratelimit-Limit-Tokens", limit.Anthropic: "Anthropic-Ratelimit-Tokens-Limit", limit.Draft11 | limit.OpenAI: "X-Ratelimit-Limit-Tokens"} {
		w := httptest.NewRecorder()
		limit.New(nil, &limit.Options{Headers: style}).Limit(limit.Rules(limit.Rule{Name: "tokens", Key: limit.ByIP, Limit: 5, Window: time.Hour}))(http.NotFoundHandler()).
			ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, []string{"5"}, w.Header()[prefix])
		assert.Equal(t, style&limit.Draft11 != 0, w.Header().Get("RateLimit") != "")
		assert.Empty(t, w.Header().Get("Retry-After-Ms"))
	}

	slow := limit.New(nil, &limit.Options{Headers: limit.OpenAI}).Limit(limit.Named("slow", limit.Global(time.Hour, 1)))(http.NotFoundHandler())
	var w *httptest.ResponseRecorder
	for range 2 {
		w = httptest.NewRecorder()
		slow.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	}
	assert.Equal(t, []any{429, "false", "3600"}, []any{w.Code, w.Header().Get("X-Should-Retry"), w.Header().Get("Retry-After")}, "SDKs would not wait")
}

// TestHeadersOfSets has three sets on a request. X-RateLimit shows the rule of all of them that is
// nearest to refusing. What the outer sets give back is shown by their names, too.
func TestHeadersOfSets(t *testing.T) {
	l := limit.New(nil, &limit.Options{Headers: limit.XRateLimit | limit.OpenAI | limit.Anthropic})
	named := func(policy, rule string, limited int64, hidden bool) func(http.Handler) http.Handler {
		return l.Limit(limit.Named(policy, limit.Rule{Name: rule, Key: limit.Everyone, Limit: limited, Window: time.Hour, Hidden: hidden}))
	}
	application, tokens := named("application", "requests", 10, false), named("model", "tokens", 40, false)
	refuses, wide := named("small", "small", 1, false), named("wide", "tokens", 99, false)
	hidden, attempts := named("hidden", "hidden", 1, true), l.Limit(limit.Named("kept",
		limit.Rule{Name: "requests", Key: limit.Everyone, Limit: 30, Window: time.Hour, Attempts: true}))
	for _, test := range []struct {
		name                            string
		handler                         http.Handler
		status                          int
		limited, left, requests, tokens string
	}{
		{"the outer set is nearest", application(tokens(wide(ok200))), 200, "10", "9", "9", "98"},
		{"a middle one", application(wide(tokens(ok200))), 200, "10", "8", "8", "38"},
		{"the only unit", application(tokens(refuses(ok200))), 200, "1", "0", "7", "37"},
		{"an inner set refuses", application(tokens(refuses(ok200))), 429, "1", "0", "7", "37"},
		{"two sets have one name", application(tokens(wide(refuses(ok200)))), 429, "1", "0", "7", "97"},
		{"of which the inner one keeps its charge", application(attempts(tokens(refuses(ok200)))), 429, "1", "0", "29", "37"},
		{"a hidden rule has a unit", application(tokens(hidden(ok200))), 200, "10", "6", "6", "36"},
		{"a hidden rule refuses", application(tokens(hidden(ok200))), 429, "10", "0", "6", "36"},
	} {
		w := sent(test.handler, "/")
		h := w.Header()
		assert.Equal(t, test.status, w.Code, test.name)
		assert.Equal(t, []string{test.limited, test.left}, []string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining")}, test.name)
		for _, style := range []string{"X-RateLimit-Remaining-%s", "Anthropic-RateLimit-%s-Remaining"} {
			assert.Equal(t, test.requests, h.Get(fmt.Sprintf(style, "Requests")), test.name)
			assert.Equal(t, test.tokens, h.Get(fmt.Sprintf(style, "Tokens")), test.name)
		}
	}
}

// TestHeadersOfBarred has a set bar a user whom the set around it did not know. X-RateLimit shows the rule
// of that, and when the bar ends.
func TestHeadersOfBarred(t *testing.T) {
	user := ""
	l := limit.New(nil, &limit.Options{Headers: limit.XRateLimitUnix, Bar: func(limit.Client) time.Duration {
		if user == "" {
			return 0
		}
		return 2 * time.Hour
	}})
	behind := l.Limit(limit.Named("behind", limit.Global(time.Hour, 5)))(ok200)
	around := l.Limit(limit.Named("around", limit.Global(time.Hour, 5)))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user = "barred"
		behind.ServeHTTP(w, r)
	}))
	w := sent(around, "/")
	assert.Equal(t, []any{403, "0"}, []any{w.Code, w.Header().Get("X-RateLimit-Remaining")})
	reset := must.Get(strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64))(t)
	assert.InDelta(t, time.Now().Add(2*time.Hour).Unix(), reset, 10)
}
