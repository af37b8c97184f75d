package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/routelimit/limit"
)

func Example_headers() {
	limiter := limit.New(nil, &limit.Options{
		Headers: limit.Draft11 | limit.XRateLimit,
		Refuse: func(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
			var refused []string
			for rule := range d.Rules() {
				if rule.Refused {
					refused = append(refused, rule.Name)
				}
			}
			json.NewEncoder(w).Encode(map[string]any{"error": "refused", "rules": refused})
		},
	})

	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 1)))(http.HandlerFunc(ok)))
	send(mux, "GET", "/items")
	w := send(mux, "GET", "/items")
	var names []string
	for name := range w.Header() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("%s: %s\n", name, w.Header().Get(name))
	}
	fmt.Print(w.Body)
	// Output:
	// Cache-Control: no-store
	// Content-Type: application/json
	// Ratelimit: "per-ip-1m";r=0;t=60
	// Ratelimit-Policy: "per-ip-1m";q=1;w=60
	// Retry-After: 60
	// X-Ratelimit-Limit: 1
	// X-Ratelimit-Remaining: 0
	// X-Ratelimit-Reset: 60
	// {"error":"refused","rules":["per-ip-1m"]}
}
