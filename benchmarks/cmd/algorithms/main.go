// Command algorithms compares the algorithms of package core: how exact they are, and what
// they cost. It writes docs/algorithms-table.md, and starts its own redis-server:
//
//	go run ./benchmarks/cmd/algorithms > docs/algorithms-table.md
//
// All results but the times are the same on every run.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"text/template"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

func main() {
	testing.Init() // for the flags of testing.Benchmark
	requests := flag.Int("requests", 1_000_000, "how many requests each algorithm decides, half of them adversarial")
	flag.Parse()
	if err := run(context.Background(), *requests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

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

func run(ctx context.Context, requests int) error {
	if err := flag.Set("test.benchtime", "100ms"); err != nil {
		return err
	}
	client, stop, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var rows []row
	var hostile, usual int
	var wait float64 // ms, of the queue
	for _, a := range algorithms() {
		fmt.Fprintln(os.Stderr, a.Name)
		r := row{
			algorithm: a,
			Hostile:   measure(a.quota, adversarial, requests/2),
			Usual:     measure(a.quota, []round{traffic}, requests/2),
		}
		if r.Heap, err = heapBytes(a.quota); err != nil {
			return err
		}
		if r.Redis, err = redisBytes(ctx, client, a.quota); err != nil {
			return err
		}
		rows = append(rows, r)
		hostile, usual = hostile+r.Hostile.Asked, usual+r.Usual.Asked
		wait = max(wait, float64(r.Usual.delay)/float64(r.Usual.admitted)/1000)
	}
	decisionTimes(rows, 10)
	return table.Execute(os.Stdout, map[string]any{
		"Rows": rows, "Hostile": float64(hostile) / 1e6, "Usual": float64(usual) / 1e6, "Wait": wait,
		"Name":   len(lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: address(0)})),
		"System": runtime.GOOS + "/" + runtime.GOARCH, "Go": runtime.Version(),
	})
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
