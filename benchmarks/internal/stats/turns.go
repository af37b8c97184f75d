package stats

import "time"

const (
	slice    = 10 * time.Millisecond // of one function, before it is the turn of the next
	perRound = 5                     // of each function in a round
)

// Turns calls functions in slices of 10 ms in turn, so that a slow phase of the machine
// affects them all, and returns the ns of a call for each function and round. It counts the
// processor time of this process, which other programs on the machine hardly disturb. A nil
// function has no rounds.
func Turns(functions []func(), rounds int) ([][]float64, error) {
	calls := make([]int, len(functions)) // in a slice
	for i, f := range functions {
		if f != nil {
			began := time.Now()
			for ; time.Since(began) < 2*slice; calls[i]++ {
				f()
			}
			calls[i] = max(1, calls[i]/2)
		}
	}
	out := make([][]float64, len(functions))
	for range rounds {
		used := make([]time.Duration, len(functions))
		for range perRound {
			for i, f := range functions {
				before, err := Time()
				if err != nil {
					return nil, err
				}
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
