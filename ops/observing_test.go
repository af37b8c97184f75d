package ops_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/topkeys"
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

func Example_topKeys() {
	top := topkeys.New(nil)
	limiter := limit.New(nil, nil)
	operate.Observe(limiter, func(_ *http.Request, d limit.Decision, err error) {
		if err == nil {
			top.Observe(&d)
		}
	})

	api, err := limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 10)))
	if err != nil {
		log.Fatal(err)
	}
	for user, n := range map[string]int{"alice": 8, "mallory": 50} {
		for range n {
			if _, err := api.Take(context.Background(), limit.Request{Keys: map[string]string{"user": user}}); err != nil {
				log.Fatal(err)
			}
		}
	}

	for _, key := range top.Top(topkeys.ByRefusals, 10) {
		fmt.Printf("%s %s %q: %.0f of %.0f requests refused\n", key.Policy, key.Rule, key.Key, key.Refused, key.Requests)
	}
	for _, key := range top.Top(topkeys.ByUse, 10) {
		fmt.Printf("%s %s %q: %.0f%% of %d used\n", key.Policy, key.Rule, key.Key, 100*key.Used, key.Capacity)
	}
	// Output:
	// api per-user-1h "mallory": 40 of 50 requests refused
	// api per-user-1h "mallory": 100% of 10 used
	// api per-user-1h "alice": 80% of 10 used
}
