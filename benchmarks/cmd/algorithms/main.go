// Command algorithms compares the algorithms of package core: how exact they
// are, and what they cost. It writes docs/algorithms-table.md and
// docs/algorithms.svg:
//
//	go run ./benchmarks/cmd/algorithms
//
// It starts a redis-server to measure bytes in Redis; without one that column is empty. All
// results but the times are the same on every run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
)

func main() {
	testing.Init() // for the flags of testing.Benchmark
	requests := flag.Int("requests", 1_000_000, "how many requests each algorithm decides, half of them adversarial")
	out := flag.String("out", "docs", "the directory to write to")
	flag.Parse()
	if err := run(context.Background(), *requests, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A row has the measurements of one algorithm.
type row struct {
	algorithm
	hostile, usual accuracy
	heap           float64
	redis          int64 // 0 if there was no server
	ns             float64
}

func run(ctx context.Context, requests int, out string) error {
	if err := flag.Set("test.benchtime", "100ms"); err != nil {
		return err
	}
	client, stop, err := redisserver.Start(ctx)
	switch {
	case err == nil:
		defer stop()
	case !errors.Is(err, exec.ErrNotFound):
		return err
	}
	var rows []row
	for _, a := range algorithms() {
		r := row{
			algorithm: a,
			hostile:   measureAll(a.quota, adversarial, requests/2),
			usual:     measureAll(a.quota, []schedule{realistic}, requests/2),
		}
		if r.heap, err = heapBytes(a.quota); err != nil {
			return err
		}
		if client != nil {
			if r.redis, err = redisBytes(ctx, client, a.quota); err != nil {
				return err
			}
		}
		rows = append(rows, r)
		fmt.Fprintf(os.Stderr, "%s: at most %d in a window (%s)\n", a.name, r.hostile.most, r.hostile.worst)
	}
	decisionTimes(rows, 10)
	text := table(rows)
	fmt.Print(text)
	if err := os.WriteFile(filepath.Join(out, "algorithms-table.md"), []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "algorithms.svg"), []byte(picture()), 0o644)
}
