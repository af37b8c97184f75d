package docs_test

import (
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/routelimit/limit"
)

func Example_observing() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "retry_after":
			a.Value = slog.DurationValue(a.Value.Duration().Round(time.Minute))
		}
		return a
	}}))
	admitted := 0
	count := func(_ *http.Request, d limit.Decision, _ error) {
		if d.Allowed {
			admitted++
		}
	}

	limiter := limit.New(nil, &limit.Options{
		Observe: func(r *http.Request, d limit.Decision, err error) {
			count(r, d, err)
			if err != nil || d.Allowed {
				return // the library logs errors
			}
			path := ""
			if r != nil { // nil outside HTTP
				path = r.URL.Path
			}
			logger.Info("refused", "decision", d, "path", path)
		},
	})

	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)))
	send(mux, "GET", "/items")
	send(mux, "GET", "/items")
	logger.Info("end", "admitted", admitted)
	// Output:
	// level=INFO msg=refused decision.policy="GET /items" decision.allowed=false decision.mode=exact decision.refusing=[per-ip-1h] decision.retry_after=1h0m0s path=/items
	// level=INFO msg=end admitted=1
}
