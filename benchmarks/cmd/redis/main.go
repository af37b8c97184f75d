// Command redis compares limit on Redis with the usual alternatives. It starts its own
// redis-server and writes the tables of BENCHMARKS.md, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/redis -pin
//
// All contenders run in this process, one after the other in rounds, so that a slow phase
// of the machine affects them all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
	core := -1
	if o.pin {
		core = 0
		runtime.GOMAXPROCS(1)
		if err := pinClient(1); err != nil {
			return err
		}
	}
	s, err := startServer(core, 64)
	if err != nil {
		return err
	}
	defer s.stop()
	version, err := s.field("server", "redis_version")
	if err != nil {
		return err
	}
	fmt.Printf("Redis %s, %s, %d rounds of %v, pinned: %v\n", version, runtime.Version(), o.rounds, o.lasts, o.pin)
	zset := redis.NewScript(string(text))
	if o.speed {
		if err := o.compare(s, zset, callers); err != nil {
			return err
		}
	}
	if o.bytes {
		return writeBytes(ctx, os.Stdout, s, zset)
	}
	return nil
}

// compare runs all contenders, round by round.
func (o options) compare(s *server, zset *redis.Script, callers []int) error {
	all, err := contenders(s.client, zset)
	if err != nil {
		return err
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = "198.51." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
	}
	r := make(results)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, g := range callers {
			if r[g] == nil {
				r[g] = make(map[string][]cell)
			}
			for _, c := range all {
				cell, err := measure(s, c, g, names, o.lasts)
				if err != nil {
					return err
				}
				r[g][c.name] = append(r[g][c.name], cell)
			}
		}
	}
	r.writeCells(os.Stdout, all, callers)
	r.writeRatios(os.Stdout)
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
