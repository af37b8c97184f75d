package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// most returns the most that a request may use: a token for each byte, and what it asks for.
func most(body []byte) *usage {
	var asked struct {
		MaxTokens int64 `json:"max_tokens"`
	}
	if json.Unmarshal(body, &asked) != nil || asked.MaxTokens < 1 {
		asked.MaxTokens = 1_000 // tell the upstream so
	}
	return &usage{input: int64(len(body)) + 1, output: asked.MaxTokens}
}

func gateway(limiter *limit.Limiter, upstream http.Handler) http.Handler {
	limited := limiter.Limit(limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.ByUser, Limit: 60, Window: time.Minute},
		limit.Rule{Name: "input-tokens", Key: limit.ByUser, Limit: 200_000, Window: time.Minute,
			Algorithm: limit.TokenBucket{Burst: 64_000},
			Cost:      rules.CostBy("most-input", func(r *http.Request) int64 { return usageOf(r).input }),
			Settle:    rules.SettleBy("input", func(r *http.Request, _ int) int64 { return usageOf(r).input })},
		limit.Rule{Name: "output-tokens", Key: limit.ByUser, Limit: 10_000, Window: time.Minute,
			Algorithm: limit.TokenBucket{Burst: 2_000},
			Cost:      rules.CostBy("most-output", func(r *http.Request) int64 { return usageOf(r).output }),
			Settle:    rules.SettleBy("output", func(r *http.Request, _ int) int64 { return usageOf(r).output })},
	))(upstream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body is too long", http.StatusRequestEntityTooLarge)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), usageKey{}, most(body)))
		r.Body = io.NopCloser(bytes.NewReader(body))
		limited.ServeHTTP(w, r)
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

// TestGatewayReservesTheMost holds that a client cannot choose a low estimate: by a body without a
// length, or by asking for more than it reserves.
func TestGatewayReservesTheMost(t *testing.T) {
	limiter := limit.New(nil, &limit.Options{Headers: limit.OpenAI, Caller: limit.Caller[*http.Request]{User: customer}})
	h := gateway(limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	send := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/", struct{ io.Reader }{strings.NewReader(body)}) // of unknown length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	never := send(`{"max_tokens": 1000000}`)
	assert.Equal(t, []any{429, "false"}, []any{never.Code, never.Header().Get("X-Should-Retry")})
	assert.Equal(t, 200, send(`{"max_tokens": -5}`+strings.Repeat(" ", 40_000)).Code)
	assert.Equal(t, 429, send(strings.Repeat(" ", 40_000)).Code)
	assert.Equal(t, 413, send(strings.Repeat(" ", 2<<20)).Code)
}

var estimated = limit.Named("estimated",
	limit.Rule{Name: "output-tokens", Key: limit.ByUser, Limit: 200_000, Window: time.Minute,
		Algorithm: limit.TokenBucket{Burst: 20_000}, Debt: 20_000})

// A customer whose answers are longer than estimated pays for them before the next request.
func Example_debt() {
	policy, err := limit.New(nil, nil).Policy(estimated)
	if err != nil {
		panic(err)
	}
	keys := map[string]string{"user": "alice"}
	d, _ := policy.Take(context.Background(), limit.Request{Keys: keys, Cost: 1_000, Settle: true})
	if err := d.Settle(context.Background(), 30_000); err != nil {
		panic(err)
	}
	d, _ = policy.Take(context.Background(), limit.Request{Keys: keys})
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Second))
	// Output: false 3s
}
