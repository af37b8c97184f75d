// Command redis compares limit on Redis with the usual alternatives, and writes tables of
// BENCHMARKS.md, in Markdown. It starts its own redis-server. Its argument names the
// contest:
//
//	cd benchmarks && go run ./cmd/redis -pin admitted # two rules that admit everything
//	cd benchmarks && go run ./cmd/redis refused       # 90 % of the requests are over the limit
//	cd benchmarks && go run ./cmd/redis hot           # one rule that all requests share
//	cd benchmarks && go run ./cmd/redis steady        # a steady load for a long time
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redistest"
)

// patience is a timeout of calls that a pause of the machine does not reach.
const patience = 20 * time.Second

var contests = map[string]func(contest, context.Context) error{
	"admitted": contest.admitted,
	"refused":  contest.refused,
	"hot":      contest.hot,
	"steady":   contest.steady,
}

func main() {
	var t contest
	flag.IntVar(&t.rounds, "rounds", 5, "how often each contender runs; a steady load has one round")
	flag.DurationVar(&t.lasts, "time", time.Second, "how long each cell is measured")
	flag.Int64Var(&t.limit, "limit", 100, "the limit of each key in the contest admitted")
	pin := flag.Bool("pin", false, "keep Redis on core 0 and the client on core 1, with taskset")
	flag.Parse()
	run := contests[flag.Arg(0)]
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: redis [flags] admitted|refused|hot|steady")
		flag.PrintDefaults()
		os.Exit(2)
	}
	if err := start(context.Background(), t, run, *pin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, t contest, run func(contest, context.Context) error, pin bool) error {
	process, err := redistest.Start()
	if err != nil {
		return err
	}
	defer process.Kill()
	t.client = redis.NewClient(&redis.Options{
		Addr: process.Addr, PoolSize: 64, ReadTimeout: patience, ContextTimeoutEnabled: true,
	})
	defer t.client.Close()
	server := t.client.InfoMap(ctx, "server")
	if err := server.Err(); err != nil {
		return err
	}
	if pin {
		runtime.GOMAXPROCS(1)
		if err := pinTo("0", server.Item("Server", "process_id")); err != nil {
			return err
		}
		if err := pinTo("1", strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	fmt.Printf("Redis %s, %s, GOMAXPROCS %d, %d rounds of %v, pinned: %v\n", server.Item("Server", "redis_version"),
		runtime.Version(), runtime.GOMAXPROCS(0), t.rounds, t.lasts, pin)
	return run(t, ctx)
}

// pinTo moves a process, all its threads, to one core.
func pinTo(core, process string) error {
	if out, err := exec.Command("taskset", "-a", "-c", "-p", core, process).CombinedOutput(); err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}
