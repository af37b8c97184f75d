// Package algorithms compares the algorithms of package core: how exact they are, and what they
// cost.
package algorithms

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// A row has the measurements of one algorithm.
type row struct {
	algorithm
	Hostile, Usual accuracy
	Heap           float64
	Redis          int64
	Nanoseconds    float64
}

//go:embed table.md.tmpl
var text string

var table = template.Must(template.New("").Funcs(template.FuncMap{"percent": percent}).Parse(text))

const (
	file     = "../../docs/algorithms-table.md"
	requests = 500_000 // of each kind, for each algorithm
)

// TestTable checks what docs/algorithms-table.md says of how exact the algorithms are, which is
// the same on every run. With LIMIT_TABLE=1 it measures their costs too, and writes the file:
//
//	LIMIT_TABLE=1 LIMIT_REQUIRE_REDIS=1 go test -count=1 ./benchmarks/algorithms
func TestTable(t *testing.T) {
	race.Skip(t)
	var rows []row
	var hostile, usual int
	var wait float64 // ms, of the queue
	for _, a := range algorithms() {
		r := row{
			algorithm: a,
			Hostile:   measure(a.quota, adversarial, requests),
			Usual:     measure(a.quota, []round{traffic}, requests),
		}
		rows = append(rows, r)
		hostile, usual = hostile+r.Hostile.Asked, usual+r.Usual.Asked
		wait = max(wait, float64(r.Usual.delay)/float64(r.Usual.admitted)/1000)
	}
	if os.Getenv("LIMIT_TABLE") == "" {
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, r := range rows {
			assert.Contains(t, string(written), fmt.Sprintf("| %s | %d / %d | %s / %s | %s / %s |", r.Name, r.Hostile.Most, r.Usual.Most,
				percent(r.Hostile.Over, r.Hostile.Asked), percent(r.Usual.Over, r.Usual.Asked),
				percent(r.Hostile.Under, r.Hostile.Asked), percent(r.Usual.Under, r.Usual.Asked)))
		}
		return
	}
	client := redistest.Real(t)
	for i := range rows {
		rows[i].Heap, rows[i].Redis = heapBytes(t, rows[i].quota), redisBytes(t, client, rows[i].quota)
	}
	require.NoError(t, flag.Set("test.benchtime", "100ms"))
	decisionTimes(rows, 10)
	out, err := os.Create(file)
	require.NoError(t, err)
	defer out.Close()
	require.NoError(t, table.Execute(out, map[string]any{
		"Rows": rows, "Hostile": float64(hostile) / 1e6, "Usual": float64(usual) / 1e6, "Wait": wait,
		"Name":   len(lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: addresses[0]})),
		"System": runtime.GOOS + "/" + runtime.GOARCH, "Go": runtime.Version(),
	}))
}

func percent(n, of int) string {
	if n == 0 {
		return "0"
	}
	share := 100 * float64(n) / float64(of)
	if share < 0.01 {
		return "<0.01 %"
	}
	return fmt.Sprintf("%.2f %%", share)
}

func TestPercent(t *testing.T) {
	for n, want := range map[int]string{0: "0", 1: "<0.01 %", 1234: "1.23 %"} {
		if got := percent(n, 100_000); got != want {
			t.Errorf("%d of 100,000 is %q, not %q", n, got, want)
		}
	}
}

// All algorithms have the same limit.
const (
	limit  = 100
	second = 1_000_000 // µs
	window = second
)

// An algorithm is a row of the table.
type algorithm struct {
	Name  string
	quota core.Quota
}

func algorithms() []algorithm {
	all := []algorithm{
		{"sliding-log", core.Quota{Algorithm: core.SlidingLog}},
		{"fixed-window", core.Quota{Algorithm: core.FixedWindow}},
		{"fixed-window, aligned", core.Quota{Algorithm: core.FixedWindow, Aligned: true}},
		{"sliding-cells, 10 cells", core.Quota{Algorithm: core.SlidingCells, Cells: 10}},
		{"sliding-cells, 60 cells", core.Quota{Algorithm: core.SlidingCells, Cells: 60}},
		{"sliding-counter", core.Quota{Algorithm: core.SlidingCounter}},
		{"token-bucket, burst 100", core.Quota{Algorithm: core.TokenBucket, Burst: 100}},
		{"token-bucket, burst 10", core.Quota{Algorithm: core.TokenBucket, Burst: 10}},
		{"leaky-bucket, burst 100", core.Quota{Algorithm: core.LeakyBucket, Burst: 100}},
		{"queue of 100", core.Quota{Algorithm: core.Queue, Burst: 100}},
	}
	for i := range all {
		all[i].quota.Limit, all[i].quota.Window = limit, window
	}
	return all
}

// A key is one key under an algorithm, decided at explicit times.
type key struct {
	charges [1]core.Charge
	states  [1]core.State
}

func newKey(q core.Quota) *key {
	return &key{
		charges: [1]core.Charge{{Rule: "rule", Quota: q, Cost: 1}},
		states:  [1]core.State{core.NewState(q.Algorithm)},
	}
}

func (k *key) ask(at int64) core.Decision {
	return core.Decide(at, k.charges[:], k.states[:])
}
