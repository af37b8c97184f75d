package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

// results are the cells of all rounds, by contender.
type results map[string][]cell

func (r results) of(contender string, value func(cell) float64) []float64 {
	var out []float64
	for _, c := range r[contender] {
		out = append(out, value(c))
	}
	return out
}

// ratios returns the ratios of a value of two contenders in each round.
func (r results) ratios(one, other string, value func(cell) float64) []float64 {
	return stats.Ratios(r.of(one, value), r.of(other, value))
}

// A column of a table has a value, or the ratio of it to that of another contender. The
// format is for one number.
type column struct {
	title, format string
	value         func(cell) float64
	to            string // the other contender
}

// The values of several tables.
func perSecond(c cell) float64     { return c.perSecond / 1000 }
func redisCPU(c cell) float64      { return c.redis }
func clientCPU(c cell) float64     { return c.client }
func calls(c cell) float64         { return c.calls }
func allocs(c cell) float64        { return c.allocs }
func pause(c cell) float64         { return c.pause }
func admittedShare(c cell) float64 { return 100 * c.admitted / c.perSecond }

func writeHead(w io.Writer, titles ...string) {
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
}

// write writes a table in Markdown with a row for each contender.
func (r results) write(w io.Writer, contenders []contender, columns ...column) {
	titles := []string{""}
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	writeHead(w, titles...)
	for _, row := range contenders {
		fmt.Fprintf(w, "| %s |", row.name)
		for _, c := range columns {
			values := r.of(row.name, c.value)
			if c.to != "" {
				values = r.ratios(row.name, c.to, c.value)
			}
			fmt.Fprintf(w, " %s |", stats.Spread(c.format, values))
		}
		fmt.Fprintln(w)
	}
}
