// Command memory compares limit in memory with the usual alternatives, and writes
// tables in Markdown to standard output:
//
//	cd benchmarks && go run ./cmd/memory
//
// All contenders run in this process, one after the other in rounds, so that a slow
// phase of the machine affects them all.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender runs")
	flag.DurationVar(&o.lasts, "time", 200*time.Millisecond, "how long each cell is measured")
	flag.IntVar(&o.callers, "goroutines", 2, "how many callers decide at the same time")
	cases := flag.String("cases", ".", "which cases, as a regular expression")
	only := flag.String("contenders", ".", "which contenders, as a regular expression")
	flag.Parse()
	if err := o.run(*cases, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	rounds  int
	lasts   time.Duration
	callers int
}

func (o options) run(which, only string) error {
	wanted, err := regexp.Compile(which)
	if err != nil {
		return err
	}
	named, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, GOMAXPROCS %d, %d callers, %d rounds of %v\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), o.callers, o.rounds, o.lasts)
	for _, c := range cases {
		if !wanted.MatchString(c.name) {
			continue
		}
		c.write(os.Stdout, o.measure(c, named))
	}
	if wanted.MatchString("pauses") {
		writePauses(os.Stdout, o.rounds)
	}
	return nil
}
