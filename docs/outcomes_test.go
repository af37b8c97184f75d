package docs_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
)

// shop is the program of the page.
func shop(limiter *limit.Limiter, upload http.HandlerFunc) http.Handler {
	mux, checkout := http.NewServeMux(), http.HandlerFunc(ok)

	mux.Handle("GET /checkout", limiter.Limit(limit.MustParse("100/1m global refuse redirect /busy"))(checkout))

	mux.Handle("GET /catalog", limiter.Limit(limit.MustParse("50/1s global refuse degrade"))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limit.DecisionFrom(r.Context()).Outcome() == "degraded" {
				fmt.Fprintln(w, "catalog without recommendations")
				return
			}
			fmt.Fprintln(w, "catalog")
		})))

	uploads := limit.Rule{Key: limit.Everyone, Limit: 2, Algorithm: limit.Concurrency{}}
	uploads.OnRefusal = limit.Refusal{Wait: 10 * time.Second, Waiters: 50, Status: http.StatusServiceUnavailable}
	mux.Handle("POST /upload", limiter.Limit(limit.Rules(uploads))(upload))
	return mux
}

func Example_outcomes() {
	server := shop(limit.New(nil, nil), ok)
	for range 100 {
		send(server, "GET", "/checkout")
	}
	w := send(server, "GET", "/checkout")
	fmt.Println(w.Code, w.Header().Get("Location"))
	for range 50 {
		send(server, "GET", "/catalog")
	}
	fmt.Print(send(server, "GET", "/catalog").Body)

	cached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "from the cache") })
	pages := limit.Rules(limit.PerIP(time.Minute, 100), limit.Global(time.Second, 500)).
		OnRefusal(limit.Refusal{Degrade: true, Fallback: cached})
	limiter := limit.New(nil, &limit.Options{OnRefusal: limit.Refusal{Redirect: "https://status.example.com/"}})

	page := limiter.Limit(pages)(http.HandlerFunc(ok))
	other := limiter.Limit(limit.Rules(limit.Global(time.Hour, 1)))(http.HandlerFunc(ok))
	for range 100 {
		send(page, "GET", "/")
	}
	fmt.Print(send(page, "GET", "/").Body)
	send(other, "GET", "/")
	fmt.Println(send(other, "GET", "/").Header().Get("Location"))
	// Output:
	// 303 /busy
	// catalog without recommendations
	// from the cache
	// https://status.example.com/
}

// TestUploadsWait has five uploads of six seconds come at once: two begin, two wait, and
// one waits in vain.
func TestUploadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := shop(limit.New(nil, nil), func(http.ResponseWriter, *http.Request) { time.Sleep(6 * time.Second) })
		answers := make(chan string, 5)
		for range 5 {
			go func() {
				answers <- fmt.Sprint(send(server, "POST", "/upload").Code, " ", time.Since(start).Round(time.Second))
			}()
			synctest.Wait()
		}
		var got []string
		for range 5 {
			got = append(got, <-answers)
		}
		assert.Equal(t, []string{"200 6s", "200 6s", "503 10s", "200 12s", "200 12s"}, got)
	})
}
