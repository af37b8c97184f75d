package algorithms

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/routelimit/limit/core"
)

// start is when schedules begin, 2026-01-01: a multiple of the window, and of a day, since
// the epoch.
const start int64 = 1_767_225_600 * second

// A round of a schedule makes a few hundred requests, none before at, and returns when the
// next round begins. Its requests may depend on the decisions.
type round func(r *rand.Rand, at int64, ask func(at int64) core.Decision) (end int64)

// adversarial lists schedules that are each the worst case of some algorithm.
var adversarial = []round{edges, retries, floods, lateBursts, earlyBursts}

// edge returns the start of a clock window after a pause in which every quota becomes
// full.
func edge(at int64) int64 { return (at/window + 4) * window }

// edges sends one request, which begins the window of a key, more than the limit just
// before that window ends, and as many just after.
func edges(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	at = edge(at)
	ask(at)
	early := r.Int64N(1000) + 1
	for range limit * 3 / 2 {
		ask(at + window - early)
	}
	for range limit * 3 / 2 {
		ask(at + window)
	}
	return at + window
}

// retries sends requests until one is refused, and then for a while at the exact
// microsecond of the RetryAfter, and one microsecond early.
func retries(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	at = edge(at) + r.Int64N(window)
	for range 4 * limit {
		d := ask(at)
		after := d.RetryAfter()
		if after > 1 {
			ask(at + after - 1)
		}
		at += after
	}
	return at
}

// floods alternates requests about every millisecond with silence, each for up to one and
// a half windows.
func floods(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	until := at + r.Int64N(window*3/2)
	for ; at < until; at += 1 + r.Int64N(2000) {
		ask(at)
	}
	return at + r.Int64N(window*3/2)
}

// lateBursts uses up the limit at the end of a clock window, and then sends requests all
// through the next one, up to its last microsecond but one.
func lateBursts(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	at = edge(at) + window - 1
	for range limit {
		ask(at)
	}
	last := at + window - 1
	for at += r.Int64N(5000); at < last; at += 5000 {
		ask(at)
	}
	ask(last)
	return last
}

// earlyBursts uses up the limit at the beginning of a clock window, which also begins a
// cell, and again in the first tenth after the units expired. It sends requests all the
// time in between.
func earlyBursts(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	at = edge(at)
	for range limit {
		ask(at)
	}
	next := at + window
	for t := at + r.Int64N(20_000); t < next; t += 20_000 {
		ask(t)
	}
	for at = next; at < next+window/10; at += 1000 {
		ask(at)
	}
	return at
}

// traffic sends a second of independent requests, at a rate that swings between 0.4 and
// 1.4 times the limit within ten minutes: a day, sped up. About every ten seconds a client
// sends 20 to 80 more within a twentieth of a second.
func traffic(r *rand.Rand, at int64, ask func(int64) core.Decision) int64 {
	const day = 600 * second
	rate := limit * (0.9 + 0.5*math.Sin(2*math.Pi*float64((at-start)%day)/day))
	var times []int64
	for t := r.ExpFloat64() / rate; t < 1; t += r.ExpFloat64() / rate {
		times = append(times, at+int64(t*second))
	}
	if r.IntN(10) == 0 {
		from := at + r.Int64N(second*19/20)
		for range 20 + r.IntN(61) {
			times = append(times, from+r.Int64N(second/20))
		}
	}
	slices.Sort(times)
	for _, t := range times {
		ask(t)
	}
	return at + second
}
