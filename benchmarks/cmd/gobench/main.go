// Command gobench runs the Go benchmarks of this module in rounds, so that a slow phase of
// the machine affects them all, and writes tables in Markdown:
//
//	cd benchmarks && go run ./cmd/gobench
//
// Each group of benchmarks is a table. Ratios and differences are against the
// first benchmark of the group, in the same round.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

func main() {
	pattern := flag.String("bench", ".", "which benchmarks, as in go test")
	rounds := flag.Int("rounds", 9, "how often each benchmark runs")
	lasts := flag.String("time", "200ms", "how long each runs, as -benchtime of go test")
	flag.Parse()
	if err := run(*pattern, *rounds, *lasts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(pattern string, rounds int, lasts string) error {
	dir, err := os.MkdirTemp("", "limit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "benchmarks.test")
	if out, err := exec.Command("go", "test", "-c", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var r results
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		out, err := exec.Command(binary, "-test.run=^$", "-test.bench="+pattern, "-test.benchtime="+lasts, "-test.benchmem").Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		r.read(out)
	}
	r.write()
	return nil
}

// results are benchmarks in the order in which they ran.
type results struct{ all []*result }

// A result is one benchmark; each unit has a value for each round.
type result struct {
	group, name string
	units       map[string][]float64
}

// read adds the lines of one round, such as
//
//	BenchmarkHTTP/Gin/no_limit-2   100   52.1 ns/op   0 B/op   0 allocs/op
func (r *results) read(out []byte) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		path := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(path, '-'); i > 0 {
			path = path[:i] // the number of processors
		}
		found := r.find(path)
		for i := 2; i+1 < len(fields); i += 2 {
			value, _ := strconv.ParseFloat(fields[i], 64)
			found.units[fields[i+1]] = append(found.units[fields[i+1]], value)
		}
	}
}

func (r *results) find(path string) *result {
	path = strings.ReplaceAll(path, "_", " ")
	group, name := "", path
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		group, name = path[:i], path[i+1:]
	}
	for _, one := range r.all {
		if one.group == group && one.name == name {
			return one
		}
	}
	one := &result{group: group, name: name, units: make(map[string][]float64)}
	r.all = append(r.all, one)
	return one
}

func (r *results) write() {
	var first *result
	for _, one := range r.all {
		if first == nil || first.group != one.group {
			first = one
			fmt.Printf("\n%s\n\n", one.group)
			fmt.Println("| | ns | ratio to the first | more than the first, ns | bytes | allocations |")
			fmt.Println("|---|---|---|---|---|---|")
		}
		ns, base := one.units["ns/op"], first.units["ns/op"]
		ratio, more := "1", "0"
		if one != first {
			ratio = stats.Spread("%.2f", stats.Ratios(ns, base))
			more = stats.Spread("%.0f", stats.Differences(ns, base))
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", one.name, stats.Spread("%.0f", ns), ratio, more,
			stats.Median("%.0f", one.units["B/op"]), stats.Median("%.0f", one.units["allocs/op"]))
	}
}
