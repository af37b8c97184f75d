// Command redis compares limit on Redis with the usual alternatives. It starts its own
// redis-server and writes the tables of BENCHMARKS.md, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/redis -pin
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/benchmarks/internal/contest"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
)

func main() {
	var o options
	flag.BoolVar(&o.pin, "pin", false, "keep Redis on core 0 and the client on core 1, with taskset")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender runs")
	flag.DurationVar(&o.lasts, "time", 2*time.Second, "how long each cell is measured")
	flag.StringVar(&o.callers, "goroutines", "1,64,256", "numbers of concurrent callers")
	flag.IntVar(&perKey, "limit", perKey, "the limit of each key in the tables of decisions")
	flag.StringVar(&o.zset, "zset", "../stores/redisstore/testdata/zset.lua", "the ZSET script")
	flag.BoolVar(&o.speed, "speed", true, "write the tables of decisions")
	flag.BoolVar(&o.bytes, "bytes", true, "write the table of bytes")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	pin          bool
	rounds       int
	lasts        time.Duration
	callers      string
	zset         string
	speed, bytes bool
}

func (o options) run(ctx context.Context) error {
	text, err := os.ReadFile(o.zset)
	if err != nil {
		return err
	}
	callers, err := numbers(o.callers)
	if err != nil {
		return err
	}
	var command []string
	if o.pin {
		command = []string{"taskset", "-c", "0"}
		runtime.GOMAXPROCS(1)
		if err := pinClient(1); err != nil {
			return err
		}
	}
	server, err := redisserver.Start(command...)
	if err != nil {
		return err
	}
	defer server.Stop()
	version, err := server.Version(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("Redis %s, %s, %d rounds of %v, pinned: %v\n", version, runtime.Version(), o.rounds, o.lasts, o.pin)
	zset := redis.NewScript(string(text))
	if o.speed {
		if err := o.compare(ctx, server, zset, callers); err != nil {
			return err
		}
	}
	if o.bytes {
		return writeBytes(ctx, os.Stdout, server, zset)
	}
	return nil
}

// compare runs all contenders, with each number of callers.
func (o options) compare(ctx context.Context, server *redisserver.Server, zset *redis.Script, callers []int) error {
	names := make([]string, keys)
	for i := range names {
		names[i] = "198.51." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
	}
	all := make(map[int]contest.Results)
	for _, g := range callers {
		load := contest.Load{Callers: g, Warm: 2 * window, Lasts: o.lasts, Times: true, Key: func() string { return names[rand.IntN(len(names))] }}
		results, err := contest.Run(ctx, server, contenders(zset), o.rounds, load)
		if err != nil {
			return err
		}
		fmt.Printf("\n%d goroutines\n\n", g)
		results.Write(os.Stdout, contenders(zset), columns...)
		all[g] = results
	}
	writeRatios(os.Stdout, all)
	return nil
}

// pinClient moves this process, all its threads, to one core.
func pinClient(core int) error {
	out, err := exec.Command("taskset", "-a", "-c", "-p", strconv.Itoa(core), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}

// numbers reads a list such as "1,64,256".
func numbers(list string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, errors.New("-goroutines is a list of positive numbers, such as 1,64,256")
		}
		out = append(out, n)
	}
	return out, nil
}
