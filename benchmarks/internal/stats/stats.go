// Package stats summarizes measurements of several rounds.
package stats

import (
	"fmt"
	"slices"
)

// Median formats the median of values.
func Median(format string, values []float64) string {
	return fmt.Sprintf(format, median(values))
}

// Spread formats the median of values, with the smallest and the largest.
func Spread(format string, values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(values), slices.Min(values), slices.Max(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Ratios returns a[i]/b[i] for each round i.
func Ratios(a, b []float64) []float64 {
	return pairs(a, b, func(x, y float64) float64 { return x / y })
}

// Differences returns a[i]-b[i] for each round i.
func Differences(a, b []float64) []float64 {
	return pairs(a, b, func(x, y float64) float64 { return x - y })
}

func pairs(a, b []float64, f func(x, y float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = f(a[i], b[i])
	}
	return out
}
