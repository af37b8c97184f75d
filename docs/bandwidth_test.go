package docs_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/throttle"
)

func Example_bandwidth() {
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(*http.Request) string { return "alice" }}})
	mux := http.NewServeMux()
	fileServer := http.HandlerFunc(ok)

	files, err := throttle.New(limiter, limit.Rules(
		throttle.Bandwidth(limit.ByUser, time.Second, 100_000),
		throttle.Bandwidth(limit.Everyone, time.Second, 10_000_000),
	), nil)
	if err != nil {
		panic(err)
	}
	mux.Handle("GET /files/", files.Handler(fileServer))

	fmt.Print(send(mux, "GET", "/files/a").Body)
	// Output: ok
}
