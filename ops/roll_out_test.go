package ops_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/agreement"
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
		Caller: limit.Caller[*http.Request]{User: user},
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

	for _, n := range counter.Counts() {
		logger.Info("agreement", "policy", n.Policy, "both admit", n.BothAdmit, "both refuse", n.BothRefuse,
			"only new refuses", n.OnlyNewRefuses, "only old refuses", n.OnlyOldRefuses)
	}
	// Output:
	// level=INFO msg="would be refused" rules=[new]
	// shadow 200
	// level=INFO msg="would be refused" rules=[new]
	// some keys 200
	// replaced 429
	// level=INFO msg=agreement policy="GET /items" "both admit"=30 "both refuse"=0 "only new refuses"=2 "only old refuses"=0
}
