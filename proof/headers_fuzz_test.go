package proof

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// FuzzHeaders parses the headers of decisions by rules of any kind with a parser of
// RFC 9651: the members of both fields, and the Retry-After of refusals.
func FuzzHeaders(f *testing.F) {
	for a := range uint8(8) {
		f.Add("login", a, int64(2), int64(1_500_000), int64(2), uint8(2))
	}
	f.Add("A.b-c_9", uint8(0), int64(core.MaxLog), int64(core.MaxWindow), int64(1), uint8(0))
	f.Fuzz(func(t *testing.T, name string, algorithm uint8, most, window, burst int64, asks uint8) {
		rule := limit.Rule{Name: word(name), Key: limit.ByIP}
		largest, shortest := int64(core.MaxLimit), int64(core.MinWindow)
		switch core.Algorithm(algorithm % 8) {
		case core.SlidingLog:
			largest = core.MaxLog
		case core.Concurrency:
			largest, shortest = core.MaxLeases, 1_000_000
		}
		rule.Limit = within(most, 1, largest)
		rule.Window = time.Duration(within(window, shortest, core.MaxWindow)) * time.Microsecond
		burst = within(burst, 1, min(10*rule.Limit, core.MaxLimit))
		rule.Algorithm = []rules.Algorithm{core.SlidingLog: nil, core.FixedWindow: limit.FixedWindow{}, core.SlidingCells: limit.SlidingCells{},
			core.SlidingCounter: limit.SlidingCounter{}, core.TokenBucket: limit.TokenBucket{Burst: burst}, core.LeakyBucket: limit.LeakyBucket{Burst: burst},
			core.Queue: limit.Queue{Burst: burst}, core.Concurrency: limit.Concurrency{}}[algorithm%8]
		set := limit.Named("p", rule, limit.Global(time.Minute, 3))
		synctest.Test(t, func(t *testing.T) {
			var d limit.Decision
			limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, decided limit.Decision, _ error) { d = decided }})
			policy := bind(limiter, set)
			ctx, end := context.WithCancel(t.Context())
			waits := &adapter.Adapter[any]{
				Route: func(any) (method, pattern string) { return "", "/" },
				Next: func(_ any, r *http.Request) (int, error) {
					<-r.Context().Done()
					return http.StatusOK, nil
				},
			}
			for range 1 + asks%5 {
				w := httptest.NewRecorder()
				go waits.Serve(policy, w, httptest.NewRequestWithContext(ctx, "GET", "/", nil), nil)
				synctest.Wait() // until it is answered, waits for its slot, or holds its lease
				checkHeaders(t, w.Header(), d)
			}
			end()
		})
	})
}

// checkHeaders compares headers with the decision that they report.
func checkHeaders(t *testing.T, h http.Header, d limit.Decision) {
	policies, wrong := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
	limits, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
	if wrong != nil || err != nil || len(policies) != 2 || len(limits) != 2 {
		t.Fatalf("%v: %v, %v", h, wrong, err)
	}
	for i, rule := range slices.Collect(d.Rules()) {
		p, l := policies[i].(httpsfv.Item), limits[i].(httpsfv.Item)
		q, _ := p.Params.Get("q")
		left, _ := l.Params.Get("r")
		after, later := l.Params.Get("t")
		if p.Value != rule.Name || l.Value != rule.Name || q != rule.Limit || left != rule.Remaining || later && after.(int64) <= 0 {
			t.Fatalf("%+v: %v", rule, h)
		}
	}
	if d.Allowed || d.RetryAfter == limit.Never {
		if h.Get("Retry-After") != "" {
			t.Fatalf("%+v: %v", d, h)
		}
		return
	}
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	if wait := time.Duration(seconds) * time.Second; err != nil || wait < d.RetryAfter || wait >= d.RetryAfter+time.Second {
		t.Fatalf("%d for %v", seconds, d.RetryAfter)
	}
}

// within maps a number into the range from least to most.
func within(n, least, most int64) int64 {
	return least + int64(uint64(n-least)%uint64(most-least+1))
}

// word returns the characters of name that a rule's name may have.
func word(name string) string {
	name = strings.Map(func(c rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", c) {
			return c
		}
		return -1
	}, name)
	return name[:min(len(name), 64)]
}
