// Package turns compares what functions cost in turn, by processor time, which other programs on the
// machine hardly disturb.
package turns

import (
	"slices"
	"testing"
	"time"
)

const (
	slice    = 10 * time.Millisecond // of one function, before it is the turn of the next
	perRound = 5                     // of each function in a round
)

// Run calls functions in slices of 10 ms in turn, so that a slow phase of the machine affects
// them all, and returns the ns of a call for each function and round. It counts the processor
// time of this process. A nil function has no rounds.
func Run(functions []func(), rounds int) ([][]float64, error) {
	calls := make([]int, len(functions)) // in a slice
	for i, f := range functions {
		if f == nil {
			continue
		}
		began, err := Time()
		if err != nil {
			return nil, err
		}
		for now := began; now-began < 2*slice; now, _ = Time() {
			for end := calls[i] + calls[i]/4 + 1; calls[i] < end; calls[i]++ { // Time is a system call
				f()
			}
		}
		calls[i] = max(1, calls[i]/2)
	}
	out := make([][]float64, len(functions))
	for range rounds {
		used := make([]time.Duration, len(functions))
		for range perRound {
			for i, f := range functions {
				before, _ := Time()
				for range calls[i] {
					f()
				}
				after, _ := Time()
				used[i] += after - before
			}
		}
		for i, f := range functions {
			if f != nil {
				out[i] = append(out[i], float64(used[i].Nanoseconds())/float64(calls[i]*perRound))
			}
		}
	}
	return out, nil
}

// Report reports the median of what a call of each function costs beyond one of the first.
func Report(b *testing.B, names []string, functions []func()) {
	ns, err := Run(functions, 11)
	if err != nil {
		b.Skip(err)
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		more := slices.Clone(ns[i])
		for round := range more {
			if i > 0 {
				more[round] -= ns[0][round]
			}
		}
		slices.Sort(more)
		b.ReportMetric(more[len(more)/2], "ns-"+name)
	}
}
