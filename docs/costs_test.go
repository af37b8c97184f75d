package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
)

// rowsOf limits the rows that a user reads in an hour.
var rowsOf = limit.Named("rows", limit.Rule{
	Name: "rows", Key: limit.ByUser, Limit: 2_000, Window: time.Hour,
	Cost:   rules.CostBy("most", func(*http.Request) int64 { return 1_000 }), // that a query sends
	Settle: rules.AsUsed,
})

// sendRows answers with rows until there are no more, or the user has none left.
func sendRows(w http.ResponseWriter, r *http.Request, rows iter.Seq[string]) error {
	decision, used := limit.DecisionFrom(r.Context()), map[string]int64{"rows": 0}
	for row := range rows {
		used["rows"]++
		if err := decision.Use(r.Context(), used); err != nil { // a *limit.RefusedError if no rows are left
			used["rows"]-- // which is not sent
			return errors.Join(err, decision.SettleCosts(r.Context(), used))
		}
		io.WriteString(w, row)
	}
	return decision.Use(r.Context(), used) // also if there were none
}

var estimatedRows = limit.Rule{
	Name: "rows", Key: limit.ByUser, Limit: 2_000, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 2_000},
	Cost:   rules.CostBy("estimate", func(*http.Request) int64 { return 100 }),
	Settle: rules.AsUsed, Debt: 1_000,
}

// Example_costs sends queries until no full reservation fits, and others that run up a debt and
// are cut off.
func Example_costs() {
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: customer}})
	query := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("rows"))
		if err := sendRows(w, r, slices.Values(slices.Repeat([]string{"row\n"}, n))); err != nil {
			io.WriteString(w, err.Error())
		}
	})
	ask := func(set limit.RuleSet, rows int) {
		w := send(limiter.Limit(set)(query), "GET", fmt.Sprint("/?rows=", rows), "X-Customer", "alice")
		body, problem, _ := strings.Cut(w.Body.String(), "limit: ")
		problem, _, _ = strings.Cut(problem, ", retry")
		line := fmt.Sprintln(w.Code, w.Header().Get("Retry-After"), w.Header().Get("RateLimit"), strings.Count(body, "row\n"), problem)
		fmt.Println(strings.TrimSpace(line))
	}
	ask(rowsOf, 0)
	ask(rowsOf, 40)
	ask(rowsOf, 1_000)
	ask(rowsOf, 40)

	estimated := limit.Named("estimated", estimatedRows)
	ask(estimated, 2_500)
	ask(estimated, 40)

	text, _ := rules.Functions{Costs: []rules.Cost{rowsOf.Rules()[0].Cost}}.Parse("rows: 2000/1h per user cost most settle used")
	ask(limit.Named("text", text.Rules()...), 2_500)
	// Output:
	// 200  "rows";r=1000;t=3600 0
	// 200  "rows";r=1000;t=3600 40
	// 200  "rows";r=960;t=3600 1000
	// 429 3600 "rows";r=960;t=3600 0
	// 200  "rows";r=1900;t=2 2500
	// 429 1080 "rows";r=0;t=1080 0
	// 200  "rows";r=1000;t=3600 2000 refused by rows
}

// TestRowsNotSent sends rows until a user may owe no more: the row that is not sent is neither owed
// nor forgiven.
func TestRowsNotSent(t *testing.T) {
	var log bytes.Buffer
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: customer}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	sent := send(limiter.Limit(limit.Rules(estimatedRows))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.ErrorContains(t, sendRows(w, r, slices.Values(slices.Repeat([]string{"row\n"}, 3_500))), "refused by rows")
	})), "GET", "/", "X-Customer", "alice")
	assert.Equal(t, 3_000, strings.Count(sent.Body.String(), "row\n"))
	assert.NotContains(t, log.String(), "LIMIT-208")
}
