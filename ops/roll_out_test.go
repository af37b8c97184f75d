package ops_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
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

	limiter := limit.New(nil, &limit.Options{
		Caller: limit.Caller[*http.Request]{User: user},
		Observe: func(_ *http.Request, d limit.Decision, _ error) {
			for _, pair := range operate.Comparisons(d) {
				if pair.Old.Allowed != pair.New.Allowed {
					logger.Info("the rules differ", "old admits", pair.Old.Allowed, "new admits", pair.New.Allowed)
				}
			}
			for rule := range d.Rules() {
				if d.Allowed && !d.GivenBack && rule.Shadow && !rule.Allowed {
					logger.Info("would be refused", "rule", rule.Name)
				}
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
	// Output:
	// level=INFO msg="the rules differ" "old admits"=true "new admits"=false
	// level=INFO msg="would be refused" rule=new
	// shadow 200
	// level=INFO msg="the rules differ" "old admits"=true "new admits"=false
	// level=INFO msg="would be refused" rule=new
	// some keys 200
	// replaced 429
}
