// Command memory compares limit in memory with the usual alternatives, and writes the
// table of BENCHMARKS.md, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/memory
//	cd benchmarks && go run ./cmd/memory -callers 2
//
// All contenders run in this process, in turn, so that a slow phase of the machine affects
// them all. Of one caller, the processor time is measured; of several that decide at the
// same time, the time that passes.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/stats"
	"github.com/routelimit/limit/internal/turns"
)

// A load is what the callers ask for. A second rule, which all keys share, refuses nothing.
type load struct {
	name string
	keys int
	each quota
}

// ample is more than two cores can use up, and spent is used up at once.
var (
	ample = quota{20_000, time.Millisecond}
	spent = quota{1, time.Hour}
)

var loads = []load{
	{"hot key", 1, ample},
	{"hot key, refused", 1, spent},
	{"1,000 keys", 1_000, ample},
	{"1,000 keys, refused", 1_000, spent},
	{"a million keys", 1_000_000, quota{100, time.Minute}},
}

// A row is what one contender did: the ns of a decision for each load and round.
type row struct {
	ns    [][]float64
	bytes float64 // of a key of the last load
}

func main() {
	rounds := flag.Int("rounds", 7, "how often each contender runs")
	callers := flag.Int("callers", 1, "how many goroutines decide")
	lasts := flag.Duration("time", 200*time.Millisecond, "how long each cell is measured, with several callers")
	flag.Parse()
	fmt.Printf("%s, %s/%s, GOMAXPROCS %d, callers %d, rounds %d\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *callers, *rounds)
	rows := make([]row, len(contenders))
	for i := range rows {
		rows[i].ns = make([][]float64, len(loads))
	}
	for i, l := range loads {
		if err := l.measure(rows, i, *callers, *rounds, *lasts); err != nil {
			fmt.Fprintln(os.Stderr, "memory:", err)
			os.Exit(1)
		}
	}
	write(rows)
}

// measure adds the cells of the column at to the rows.
func (l load) measure(rows []row, at, callers, rounds int, lasts time.Duration) error {
	stored, asked := addresses(l.keys), addresses(l.keys)
	decides := make([]caller, len(contenders))
	for i, c := range contenders {
		if c.hot && l.keys > 1 {
			continue
		}
		before := stats.Heap()
		decides[i] = c.new(l)
		decide := decides[i]()
		for _, key := range stored {
			decide(strings.Clone(key)) // a server has a string of its own for each request
		}
		rows[i].bytes = (stats.Heap() - before) / float64(l.keys)
	}
	if callers == 1 {
		return l.measureOne(rows, at, rounds, decides, asked)
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", l.name, round+1, rounds)
		for i, decide := range decides {
			if decide == nil {
				continue
			}
			ns, admitted := cell(decide, callers, asked, lasts)
			if l.counts(admitted) {
				rows[i].ns[at] = append(rows[i].ns[at], ns)
			}
		}
	}
	return nil
}

// measureOne adds the cells of one caller.
func (l load) measureOne(rows []row, at, rounds int, decides []caller, keys []string) error {
	functions, asked, admitted := make([]func(), len(decides)), make([]float64, len(decides)), make([]float64, len(decides))
	for i, start := range decides {
		if start == nil {
			continue
		}
		decide, next := start(), 0
		functions[i] = func() {
			if asked[i]++; decide(keys[next]) {
				admitted[i]++
			}
			if next++; next == len(keys) {
				next = 0
			}
		}
	}
	ns, err := turns.Run(functions, rounds)
	for i := range functions {
		if functions[i] != nil && err == nil && l.counts(admitted[i]/asked[i]) {
			rows[i].ns[at] = ns[i]
		}
	}
	return err
}

// counts reports whether a contender that admits so many did what it is measured for: the
// time of refusals says nothing about that of admissions.
func (l load) counts(admitted float64) bool { return admitted > 0.99 || l.each == spent }

// cell lets all callers decide for a while, and returns the time of a decision in ns and
// the part that was admitted. Each goes through the keys in turn, from a random one on.
func cell(start caller, callers int, keys []string, lasts time.Duration) (ns, admitted float64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	decisions, passed := 0, 0
	began := time.Now()
	for range callers {
		all.Go(func() {
			decide := start()
			n, ok, at := 0, 0, rand.IntN(len(keys))
			for ; time.Since(began) < lasts; n += 256 {
				for range 256 { // so that the clock costs nothing
					if decide(keys[at]) {
						ok++
					}
					if at++; at == len(keys) {
						at = 0
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			decisions, passed = decisions+n, passed+ok
		})
	}
	all.Wait()
	took := float64(time.Since(began).Nanoseconds())
	return took / float64(decisions), float64(passed) / float64(decisions)
}

// addresses returns n different keys in an order in which neighbors have nothing in
// common, so that no contender profits from the order in which keys were stored.
func addresses(n int) []string {
	keys := stats.Addresses(n)
	rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// write writes the table, and the ratios of memstore to one limiter on one key.
func write(rows []row) {
	fmt.Print("| ns a decision | rules |")
	for _, l := range loads {
		fmt.Printf(" %s |", l.name)
	}
	fmt.Printf(" bytes a key |\n|%s\n", strings.Repeat("---|", len(loads)+3))
	var base row
	for i, c := range contenders {
		fmt.Printf("| %s | %d |", c.name, c.rules)
		for _, ns := range rows[i].ns {
			fmt.Printf(" %s |", stats.Spread("%.0f", ns))
		}
		if c.hot {
			base = rows[i]
			fmt.Println(" – |")
		} else {
			fmt.Printf(" %.0f |\n", rows[i].bytes)
		}
	}
	fmt.Println()
	for i, c := range contenders {
		if c.name == memory {
			for load := range 2 {
				fmt.Printf("%s with %d of the rules, to one rate.Limiter, %s: %s\n", c.name, c.rules, loads[load].name,
					stats.Spread("%.2f", stats.Ratios(rows[i].ns[load], base.ns[load])))
			}
		}
	}
}
