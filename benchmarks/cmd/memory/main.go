// Command memory compares limit in memory with the usual alternatives, and writes the
// table of BENCHMARKS.md, in Markdown, to standard output:
//
//	cd benchmarks && go run ./cmd/memory -callers 2 -rounds 5
//
// All contenders run in this process, in turn, so that a slow phase of the machine affects
// them all.
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
	{"a million keys", 1_000_000, quota{100, time.Minute}},
}

// A row is what one contender did: the ns of a decision for each load and round.
type row struct {
	ns    [][]float64
	bytes float64 // of a key of the last load
}

func main() {
	rounds := flag.Int("rounds", 5, "how often each contender runs")
	callers := flag.Int("callers", 2, "how many goroutines decide")
	lasts := flag.Duration("time", 200*time.Millisecond, "how long each cell is measured")
	flag.Parse()
	fmt.Printf("%s, %s/%s, GOMAXPROCS %d, callers %d, rounds %d\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *callers, *rounds)
	rows := make([]row, len(contenders))
	for i := range rows {
		rows[i].ns = make([][]float64, len(loads))
	}
	for i, l := range loads {
		l.measure(rows, i, *callers, *rounds, *lasts)
	}
	write(rows)
}

// measure adds the cells of the column at to the rows. A cell of a contender that does not
// admit what it should stays empty: the time of refusals says nothing about that of admissions.
func (l load) measure(rows []row, at, callers, rounds int, lasts time.Duration) {
	keys := stats.Addresses(l.keys)
	// Neighbors have nothing in common, so that no contender profits from the order of the keys.
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	decides := make([]caller, len(contenders))
	for i, c := range contenders {
		before := stats.Heap()
		decides[i] = c.new(l)
		decide := decides[i]()
		for _, key := range keys {
			decide(strings.Clone(key)) // a server has a string of its own for each request
		}
		rows[i].bytes = (stats.Heap() - before) / float64(l.keys)
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", l.name, round+1, rounds)
		for i, decide := range decides {
			if ns, admitted := cell(decide, callers, keys, lasts); admitted > 0.99 || l.each == spent {
				rows[i].ns[at] = append(rows[i].ns[at], ns)
			}
		}
	}
}

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

func write(rows []row) {
	fmt.Print("| ns a decision | rules |")
	for _, l := range loads {
		fmt.Printf(" %s |", l.name)
	}
	fmt.Printf(" bytes a key |\n|%s\n", strings.Repeat("---|", len(loads)+3))
	for i, c := range contenders {
		fmt.Printf("| %s | %d |", c.name, c.rules)
		for _, ns := range rows[i].ns {
			fmt.Printf(" %s |", stats.Spread("%.0f", ns))
		}
		fmt.Printf(" %.0f |\n", rows[i].bytes)
	}
}
