package topkeys

import "math"

// aging makes counts age without touching them: what comes later weighs more. Times are
// in seconds.
type aging struct {
	base, now int64   // weight is 1 at base
	weight    float64 // of a request now; 0 before the first
}

const (
	window   = int64(Window / 1e9)
	rescaled = 500 * window // exp(500) times 10^90 requests fits a float64
)

// advance sets the clock. It returns what to multiply the counts by: mostly 1.
//
// A clock that steps back by less than Window stands still, since the decisions of
// several goroutines and Redis nodes are not in order. If it steps back further, time
// goes on from there, and what was counted keeps its age.
func (a *aging) advance(now int64) (factor float64) {
	switch {
	case a.weight == 0:
		a.base, a.now, a.weight = now, now, 1
		return 1
	case now <= a.now-window:
		a.base += now - a.now
		a.now = now
		return 1
	case now <= a.now:
		return 1
	}
	a.now = now
	if age := now - a.base; age > rescaled {
		a.base, a.weight = now, 1
		return math.Exp(-float64(age) / float64(window))
	}
	a.weight = math.Exp(float64(now-a.base) / float64(window))
	return 1
}

// factor returns what to multiply counts by at a time, at the clock's or later.
func (a *aging) factor(at int64) float64 {
	return math.Exp(-float64(max(at, a.now)-a.base) / float64(window))
}
