package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
)

// customer stands for what has checked the key of the request.
func customer(r *http.Request) string { return r.Header.Get("X-Customer") }

// usage is what a request has used: the most that it may be, until its answer has passed.
type usage struct{ input, output int64 }

type usageKey struct{}

func usageOf(r *http.Request) *usage { return r.Context().Value(usageKey{}).(*usage) }

func gateway(limiter *limit.Limiter, upstream http.Handler) http.Handler {
	limited := limiter.Limit(limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.ByUser, Limit: 60, Window: time.Minute},
		limit.Rule{Name: "input-tokens", Key: limit.ByUser, Limit: 40_000, Window: time.Minute,
			Algorithm: limit.TokenBucket{Burst: 8_000},
			Cost:      rules.CostBy("estimate", func(r *http.Request) int64 { return usageOf(r).input }),
			Settle:    rules.SettleBy("input", func(r *http.Request, _ int) int64 { return usageOf(r).input })},
		limit.Rule{Name: "output-tokens", Key: limit.ByUser, Limit: 10_000, Window: time.Minute,
			Algorithm: limit.TokenBucket{Burst: 2_000},
			Cost:      rules.CostBy("most", func(r *http.Request) int64 { return usageOf(r).output }),
			Settle:    rules.SettleBy("output", func(r *http.Request, _ int) int64 { return usageOf(r).output })},
	))(upstream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &usage{input: max(0, r.ContentLength) / 4, output: 1_000}
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), usageKey{}, u)))
	})
}

// Example_modelGateway sends requests that use 100 tokens each, and one that uses 1,000: each
// reserves 1,000 of 2,000.
func Example_modelGateway() {
	limiter := limit.New(nil, &limit.Options{
		Headers: limit.OpenAI | limit.Anthropic,
		Caller:  limit.Caller[*http.Request]{User: customer},
	})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "an answer")
		*usageOf(r) = usage{input: 20, output: 100}
		if r.URL.Query().Has("long") {
			usageOf(r).output = 1_000
		}
	})
	h := gateway(limiter, upstream)
	for _, target := range []string{"/", "/", "/", "/?long=1", "/"} {
		r := httptest.NewRequest("POST", target, strings.NewReader(`{"prompt": "…"}`))
		r.Header.Set("X-Customer", "alice")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining-Requests"), w.Header().Get("Retry-After-Ms") != "")
	}
	// Output:
	// 200 59 false
	// 200 58 false
	// 200 57 false
	// 200 56 false
	// 429 56 true
}

// TestGatewayWithoutUsage holds that a request of which nothing is known keeps what it
// reserved, as the page says.
func TestGatewayWithoutUsage(t *testing.T) {
	for name, upstream := range map[string]http.HandlerFunc{
		"returns": func(http.ResponseWriter, *http.Request) {},
		"aborts":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			limiter := limit.New(nil, &limit.Options{Headers: limit.OpenAI, Caller: limit.Caller[*http.Request]{User: customer}})
			h := gateway(limiter, upstream)
			for _, want := range []int{200, 200, 429} {
				w := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("an estimate of four bytes a token")))
				}()
				assert.Equal(t, want, w.Code)
			}
		})
	}
}
