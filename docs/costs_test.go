package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
)

// rowsKey is the key of the rows that a request costs, in its context.
type rowsKey struct{}

func rowsOf(r *http.Request) *int64 { return r.Context().Value(rowsKey{}).(*int64) }

// limitRows limits the rows that a user reads. The query writes the rows it has sent to rowsOf.
func limitRows(limiter *limit.Limiter, query http.Handler) http.Handler {
	limited := limiter.Limit(limit.Named("rows", limit.Rule{
		Key: limit.ByUser, Limit: 2_000, Window: time.Hour,
		Cost:   rules.CostBy("most", func(r *http.Request) int64 { return *rowsOf(r) }),
		Settle: rules.SettleBy("sent", func(r *http.Request, _ int) int64 { return *rowsOf(r) }),
	}))(query)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rows := int64(1_000) // the most that a query sends
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), rowsKey{}, &rows)))
	})
}

var estimatedRows = limit.Rule{
	Key: limit.ByUser, Limit: 2_000, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 2_000},
	Cost:   rules.CostBy("estimate", func(*http.Request) int64 { return 100 }),
	Settle: rules.SettleBy("sent", func(r *http.Request, _ int) int64 { return *rowsOf(r) }),
	Debt:   1_000,
}

// Example_costs sends queries of 40 rows until no full reservation fits, and one that
// runs up a debt.
func Example_costs() {
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: customer}})
	query := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		*rowsOf(r), _ = strconv.ParseInt(r.URL.Query().Get("rows"), 10, 64)
	})
	ask := func(h http.Handler, rows int) {
		w := send(h, "GET", fmt.Sprint("/?rows=", rows), "X-Customer", "alice")
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("RateLimit"))
	}
	h := limitRows(limiter, query)
	ask(h, 40)
	ask(h, 1_000)
	ask(h, 40)

	estimated := limiter.Limit(limit.Named("estimated", estimatedRows))(query)
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		estimated.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), rowsKey{}, new(int64))))
	})
	ask(h, 2_500)
	ask(h, 40)
	// Output:
	// 200  "per-user-1h";r=1000;t=3600
	// 200  "per-user-1h";r=960;t=3600
	// 429 3600 "per-user-1h";r=960;t=3600
	// 200  "per-user-1h";r=1900;t=2
	// 429 1080 "per-user-1h";r=0;t=1080
}
