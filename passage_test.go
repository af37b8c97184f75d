package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
)

// TestLateDecisions has handlers ask for decisions while requests are served, and goroutines
// that outlive them go on asking, behind one set or two, and behind a timeout. Whatever they
// see is of their own request.
func TestLateDecisions(t *testing.T) {
	l := limit.New(nil, nil)
	inner := bound(t, l, limit.Named("inner", limit.Per(limit.ByHeader("Key"), time.Hour, 100_000), limit.Global(time.Hour, 100_000)))
	outer := bound(t, l, limit.Named("outer", limit.Per(limit.ByHeader("Key"), time.Hour, 100_000)))
	check := func(d limit.Decision, policy, key string) (rules int) {
		assert.Equal(t, policy, d.Policy)
		assert.True(t, d.Allowed)
		assert.Equal(t, "admitted", d.Outcome())
		for r := range d.Rules() {
			if rules++; r.Name != "global-1h" {
				assert.Equal(t, key, r.Key)
			}
		}
		return rules
	}
	var late sync.WaitGroup
	handler := func(asks, sleeps bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, key := r.Context(), r.Header.Get("Key")
			if asks {
				d := limit.DecisionFrom(ctx)
				assert.Equal(t, 2, check(d, "inner", key))
				late.Go(func() { // a decision that is kept stays whole
					time.Sleep(time.Millisecond)
					assert.Equal(t, 2, check(d, "inner", key))
					if o, ok := d.Outer(); ok {
						assert.Equal(t, 1, check(o, "outer", key))
					}
				})
			}
			late.Go(func() {
				for range 100 {
					check(limit.DecisionFrom(ctx), "inner", key)
				}
			})
			if sleeps {
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	alone, asked := inner.Handler(handler(false, false)), inner.Handler(handler(true, false))
	slow := inner.Handler(handler(false, true))
	timed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // perhaps after its request
		defer late.Done()
		slow.ServeHTTP(w, r)
	})
	handlers := []http.Handler{alone, asked, outer.Handler(alone), outer.Handler(asked),
		outer.Handler(http.TimeoutHandler(timed, time.Millisecond, ""))}
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 200 {
				r := httptest.NewRequestWithContext(context.Background(), "GET", "/", nil)
				r.Header.Set("Key", fmt.Sprint(c, i))
				if i%len(handlers) == len(handlers)-1 {
					late.Add(1)
				}
				handlers[i%len(handlers)].ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	clients.Wait()
	late.Wait()

	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	var ctx context.Context
	inner.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })).ServeHTTP(w, r)
	assert.Zero(t, check(limit.DecisionFrom(ctx), "inner", ""), "the rules are gone with the request")
}
