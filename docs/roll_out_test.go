package docs_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/agreement"
)

func Example_rollOut() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	user := func(r *http.Request) string { return r.Header.Get("X-User") }

	shadow := limit.MustParse(`
		old: 100/1m per user
		new: 30/1m per user shadow replaces old`)

	var counter agreement.Counter
	limiter := limit.New(nil, &limit.Options{
		User: user,
		Observe: func(_ *http.Request, d limit.Decision, _ error) {
			counter.Observe(d)
			if refused := d.Shadowed(); d.Allowed && refused != nil {
				logger.Info("would be refused", "rules", refused)
			}
		},
	})

	some := limit.MustParse(`
		old: 100/1m per user
		new: 30/1m per user shadow enforced 10 replaces old`)

	done := limit.MustParse("new: 30/1m per user")

	status := func(rules limit.RuleSet, requests int) (last int) {
		mux := http.NewServeMux()
		mux.Handle("GET /items", limiter.Limit(rules)(http.HandlerFunc(ok)))
		for range requests {
			last = send(mux, "GET", "/items", "X-User", "alice").Code
		}
		return last
	}
	fmt.Println("shadow", status(shadow, 31))
	fmt.Println("some keys", status(some, 1))
	fmt.Println("replaced", status(done, 1))
	n := counter.Counts()[0]
	fmt.Printf("%s: both admit %d, only %s refuses %d\n", n.Policy, n.BothAdmit, n.New, n.OnlyNewRefuses)
	// Output:
	// level=INFO msg="would be refused" rules=[new]
	// shadow 200
	// level=INFO msg="would be refused" rules=[new]
	// some keys 200
	// replaced 429
	// GET /items: both admit 30, only new refuses 2
}
