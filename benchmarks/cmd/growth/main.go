// Command growth measures how the time and the memory of a decision grow with the
// number of rules, the limit, the number of keys and the number of processes, in memory
// and on a redis-server of its own:
//
//	cd benchmarks && go run ./cmd/growth -svg ../docs/growth.svg
//
// It prints a table in Markdown, and draws the same numbers. Each number is the median
// of the rounds, in which all cases run in turn. Rules are sliding logs that are full
// to half of their limit, and requests are admitted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/routelimit/limit/benchmarks/internal/plot"
	"github.com/routelimit/limit/benchmarks/internal/redisserver"
)

// A growth is one quantity that grows, and what is measured over it.
type growth struct {
	title, x string
	values   []int64
	cases    []*measured
}

// A measured is one line of a chart.
type measured struct {
	name, unit string
	run        func(ctx context.Context, value int64) (float64, error)
	rounds     [][]float64 // for each value
}

func main() {
	rounds := flag.Int("rounds", 5, "how often each case runs")
	lasts := flag.Duration("time", 200*time.Millisecond, "how long each runs")
	svg := flag.String("svg", "", "the file to draw to")
	work := flag.String("worker", "", "for this command's own use: the address of a Redis to decide on")
	flag.Parse()
	if *work != "" {
		if err := worker(*work, *lasts); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(*rounds, *lasts, *svg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds int, lasts time.Duration, svg string) error {
	ctx := context.Background()
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	all := growths(&redisCases{client: server.Client, lasts: lasts}, lasts)
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, g := range all {
			for _, c := range g.cases {
				if c.rounds == nil {
					c.rounds = make([][]float64, len(g.values))
				}
				for i, value := range g.values {
					v, err := c.run(ctx, value)
					if err != nil {
						return fmt.Errorf("%s, %s, %d: %w", g.title, c.name, value, err)
					}
					c.rounds[i] = append(c.rounds[i], v)
				}
			}
		}
	}
	page := plot.Page{Title: "How a decision grows"}
	for _, g := range all {
		g.print()
		page.Charts = append(page.Charts, g.charts()...)
	}
	if svg == "" {
		return nil
	}
	return os.WriteFile(svg, []byte(page.SVG()), 0o644)
}

// print writes a table with a column for each value.
func (g growth) print() {
	fmt.Printf("\n| %s |", g.title)
	for _, v := range g.values {
		fmt.Printf(" %d |", v)
	}
	fmt.Print("\n|---|")
	for range g.values {
		fmt.Print("---|")
	}
	for _, c := range g.cases {
		fmt.Printf("\n| %s, %s |", c.name, c.unit)
		for i := range g.values {
			fmt.Printf(" %s |", plot.Number(c.median(i)))
		}
	}
	fmt.Println()
}

// charts returns a chart for each unit.
func (g growth) charts() (charts []plot.Chart) {
	for _, c := range g.cases {
		line := plot.Line{Name: c.name}
		for i, v := range g.values {
			line.Points = append(line.Points, plot.Point{X: float64(v), Y: c.median(i)})
		}
		if n := len(charts); n > 0 && charts[n-1].Y == c.unit {
			charts[n-1].Lines = append(charts[n-1].Lines, line)
		} else {
			charts = append(charts, plot.Chart{Title: g.title, X: g.x, Y: c.unit, Lines: []plot.Line{line}})
		}
	}
	return charts
}

func (c *measured) median(i int) float64 {
	sorted := slices.Sorted(slices.Values(c.rounds[i]))
	return sorted[len(sorted)/2]
}
