package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/redisserver"
	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/redisstore"
)

const (
	processes = 8
	demand    = 40_000.0 // requests a second of all; the n-th process sends a share of 1/n
)

// A setting is what the processes do. TestSimulation has the same.
type setting struct {
	limit float64 // of the demand
	hold  time.Duration
}

func (s setting) units() int64 { return int64(s.limit * demand) }

var settings = []setting{
	{1.2, 0}, {1.2, 10 * time.Millisecond}, {1.2, 100 * time.Millisecond},
	{0.7, 0}, {0.7, 10 * time.Millisecond}, {0.7, 100 * time.Millisecond},
}

// compareProcesses runs real processes on one Redis, and writes what came of it a second.
func compareProcesses(rounds int) error {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	client := server.Client
	fmt.Printf("%d processes, %.0f requests/s, %d rounds of %v\n\n", processes, demand, rounds, measured)
	fmt.Println("| limit / demand | Hold | offered/s | admitted/s | Redis calls/s | refused early % | unused % |\n|---|---|---|---|---|---|---|")
	for _, s := range settings {
		var offered, admitted, calls, early, unused []float64
		for range rounds {
			if err := client.FlushAll(context.Background()).Err(); err != nil {
				return err
			}
			// The bucket begins empty, as it is under lasting load.
			empty := []core.Charge{{Policy: rules[0].Policy, Rule: rules[0].Name, Quota: bucket(s.units()), Cost: bucket(s.units()).Burst}}
			if _, err := core.Take(context.Background(), redisstore.New(client, nil), empty); err != nil {
				return err
			}
			all, err := s.run(client.Options().Addr)
			if err != nil {
				return err
			}
			seconds := measured.Seconds()
			o, a := float64(all.Offered)/seconds, float64(all.Admitted)/seconds
			offered, admitted = append(offered, o), append(admitted, a)
			calls = append(calls, float64(all.Calls)/seconds)
			early = append(early, 100*max(0, 1-a/min(o, float64(s.units()))))
			unused = append(unused, 100*float64(all.Returned)/float64(max(1, all.Taken)))
		}
		fmt.Printf("| %.1f | %v | %s | %s | %s | %s | %s |\n", s.limit, s.hold, stats.Spread("%.0f", offered), stats.Spread("%.0f", admitted),
			stats.Spread("%.0f", calls), stats.Spread("%.2f", early), stats.Spread("%.1f", unused))
	}
	return nil
}

func (s setting) run(addr string) (all counts, err error) {
	own, err := os.Executable()
	if err != nil {
		return all, err
	}
	sum := 0.0
	for n := range processes {
		sum += 1 / float64(n+1)
	}
	start := time.Now().Add(500 * time.Millisecond).UnixMicro()
	var commands [processes]*exec.Cmd
	var outputs [processes]bytes.Buffer
	for n := range commands {
		c := exec.Command(own, "-worker", addr, "-rate", fmt.Sprint(demand/sum/float64(n+1)),
			"-limit", strconv.FormatInt(s.units(), 10), "-hold", s.hold.String(), "-start", strconv.FormatInt(start, 10))
		c.Stdout, c.Stderr = &outputs[n], os.Stderr
		if err := c.Start(); err != nil {
			return all, err
		}
		commands[n] = c
	}
	for n, c := range commands {
		if failed := c.Wait(); failed != nil {
			err = failed
			continue
		}
		one, failed := readCounts(&outputs[n])
		if failed != nil {
			err = failed
		}
		all.add(one)
	}
	return all, err
}
