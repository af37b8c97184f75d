package main

import (
	"fmt"
	"io"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

func (s *series) of(value func(cell) float64) []float64 {
	var out []float64
	for _, c := range s.cells {
		out = append(out, value(c))
	}
	return out
}

func ns(c cell) float64       { return c.ns }
func allocs(c cell) float64   { return c.allocs }
func admitted(c cell) float64 { return 100 * c.admitted }

// write writes what one case measured: times, and ratios of limit to its peers.
func (c benchCase) write(w io.Writer, all []*series) {
	fmt.Fprintf(w, "\n### %s\n\n", c.name)
	fmt.Fprintln(w, "| | rules | ns a decision | allocations | admitted % | bytes a key |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, s := range all {
		bytes := "–"
		if c.keys >= 1_000_000 {
			bytes = fmt.Sprintf("%.0f", s.bytes)
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s |\n", s.contender, s.rules, stats.Spread("%.0f", s.of(ns)),
			stats.Median("%.2f", s.of(allocs)), stats.Median("%.0f", s.of(admitted)), bytes)
	}
	fmt.Fprintln(w, "\n| ratio of times | median (min–max) |")
	fmt.Fprintln(w, "|---|---|")
	for _, ours := range all {
		if ours.contender != nameStore && ours.contender != namePolicy {
			continue
		}
		for _, theirs := range all {
			switch {
			case theirs.contender == ours.contender, theirs.contender == namePolicy:
				continue
			case theirs.contender == nameTime && theirs.rules == 1: // beside one limiter, whatever the rules
			case theirs.rules != ours.rules:
				continue
			}
			fmt.Fprintf(w, "| %s, %s, to %s, %s | %s |\n", ours.contender, ruleCount(ours.rules), theirs.contender, ruleCount(theirs.rules),
				stats.Spread("%.2f", stats.Ratios(ours.of(ns), theirs.of(ns))))
		}
	}
}

func ruleCount(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
