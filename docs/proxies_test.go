package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/routelimit/limit"
)

func Example_proxies() {
	limiter := limit.New(nil, &limit.Options{Proxies: limit.Proxies{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}, // the proxy, and no more
	}})
	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 1)))(http.HandlerFunc(ok)))

	request := func(forwardedFor string) {
		r := httptest.NewRequest("GET", "/items", nil)
		r.RemoteAddr = "10.0.0.5:41000" // the proxy
		r.Header.Set("X-Forwarded-For", forwardedFor)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(limit.Client{Request: r, Limiter: limiter}.IP(), w.Code)
	}
	request("203.0.113.1")
	request("203.0.113.2")
	request("198.51.100.9, 203.0.113.2") // the client wrote the first address
	// Output:
	// 203.0.113.1 200
	// 203.0.113.2 200
	// 203.0.113.2 429
}
