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
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "retry_after":
			a.Value = slog.DurationValue(a.Value.Duration().Round(time.Minute))
		}
		return a
	}}))
	admitted := 0
	count := func(_ *http.Request, d limit.Decision, err error) {
		if err == nil && d.Allowed && !d.GivenBack {
			admitted++
		}
	}

	limiter := limit.New(nil, &limit.Options{
		Observe: func(r *http.Request, d limit.Decision, err error) {
			count(r, d, err)
			path := ""
			if r != nil { // nil outside HTTP
				path = r.URL.Path
			}
			switch {
			case d.GivenBack: // an inner rule set has refused the request
				logger.Debug("given back", "decision", d, "path", path)
			case err == nil && !d.Allowed: // the library logs errors
				logger.Info("refused", "decision", d, "path", path)
			}
		},
	})

	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 1)))(http.HandlerFunc(ok)))
	application, err := limiter.Policy(limit.Named("application", limit.Global(time.Hour, 100)))
	if err != nil {
		log.Fatal(err)
	}
	server := application.Handler(mux)
	send(server, "GET", "/items")
	send(server, "GET", "/items")
	logger.Info("end", "admitted", admitted) // by the application both times, and by the route once
	// Output:
	// level=DEBUG msg="given back" decision.policy=application decision.allowed=true decision.mode=exact decision.outcome="given back" path=/items
	// level=INFO msg=refused decision.policy="GET /items" decision.allowed=false decision.mode=exact decision.refusing=[per-ip-1h] decision.retry_after=1h0m0s path=/items
	// level=INFO msg=end admitted=3
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
