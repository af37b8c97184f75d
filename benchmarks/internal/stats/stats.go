// Package stats measures in several rounds, and summarizes what was measured.
package stats

import (
	"fmt"
	"runtime"
	"slices"
)

// Addresses returns n different client addresses.
func Addresses(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("198.%d.%d.%d", 51+i/62_500, i/250%250, i%250)
	}
	return list
}

// Spread formats the median of values and, if there are several, the smallest and the
// largest.
func Spread(format string, values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(values))
	median := fmt.Sprintf(format, sorted[len(sorted)/2])
	if len(sorted) == 1 {
		return median
	}
	return fmt.Sprintf("%s ("+format+"–"+format+")", median, sorted[0], sorted[len(sorted)-1])
}

// Ratios returns a[i]/b[i] for each round i.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// Heap returns how many bytes of the heap are in use.
func Heap() float64 {
	runtime.GC()
	runtime.GC() // frees what the first has only found
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
