// Command prefetch measures what package prefetch saves on one hot rule that all requests
// share. It starts its own redis-server:
//
//	cd benchmarks && go run ./cmd/prefetch            # decisions a second of 64 callers
//	cd benchmarks && go run ./cmd/prefetch -processes # 8 processes on one Redis
//	cd benchmarks && go run ./cmd/prefetch -plot      # docs/prefetch.svg, of what TestSimulation wrote
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	processes := flag.Bool("processes", false, "run 8 processes at a fixed rate")
	plot := flag.Bool("plot", false, "draw the results of the simulation")
	rounds := flag.Int("rounds", 5, "how often each contender runs")
	lasts := flag.Duration("time", time.Second, "how long each cell is measured")
	var w worker
	flag.StringVar(&w.addr, "worker", "", "be one of the processes, on the Redis at this address")
	flag.Float64Var(&w.rate, "rate", 0, "requests a second of the process")
	flag.Int64Var(&w.limit, "limit", 0, "units a second of all processes")
	flag.DurationVar(&w.hold, "hold", 0, "prefetch.Options.Hold; 0 is without prefetch")
	flag.Int64Var(&w.start, "start", 0, "when to start, in µs since the epoch")
	flag.Parse()
	var err error
	switch {
	case w.addr != "":
		err = w.run(context.Background())
	case *processes:
		err = compareProcesses(*rounds)
	case *plot:
		err = draw("../stores/prefetch/testdata/simulation.csv", "../docs/prefetch.svg")
	default:
		err = speed(context.Background(), *rounds, *lasts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
