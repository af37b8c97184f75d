package throttle_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

// Limit slows bodies: a user's downloads get 100 kB a second together, behind
// a burst, and all users a megabyte.
func ExampleLimit() {
	limiter := limit.New(nil, &limit.Options{
		Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }},
	})
	user := throttle.Bandwidth(limit.ByUser, time.Second, 100_000)
	user.Algorithm = limit.TokenBucket{Burst: 20_000}
	h := throttle.Limit(limiter, limit.Rules(user, throttle.Bandwidth(limit.Everyone, time.Second, 1_000_000)), nil)(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 70_000)) }))

	start := time.Now()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Body.Len(), "bytes; half a second or more:", time.Since(start) >= 500*time.Millisecond)
	// Output:
	// 70000 bytes; half a second or more: true
}
