package main

import "github.com/routelimit/limit/core"

// All algorithms have the same limit.
const (
	limit  = 100
	second = 1_000_000 // µs
	window = second
)

// An algorithm is a row of the table.
type algorithm struct {
	Name  string
	quota core.Quota
}

func algorithms() []algorithm {
	of := func(a core.Algorithm) core.Quota { return core.Quota{Algorithm: a, Limit: limit, Window: window} }
	cells := func(n int64) core.Quota {
		q := of(core.SlidingCells)
		q.Cells = n
		return q
	}
	burst := func(a core.Algorithm, n int64) core.Quota {
		q := of(a)
		q.Burst = n
		return q
	}
	aligned := of(core.FixedWindow)
	aligned.Aligned = true
	return []algorithm{
		{"sliding-log", of(core.SlidingLog)},
		{"fixed-window", of(core.FixedWindow)},
		{"fixed-window, aligned", aligned},
		{"sliding-cells, 10 cells", cells(10)},
		{"sliding-cells, 60 cells", cells(60)},
		{"sliding-counter", of(core.SlidingCounter)},
		{"token-bucket, burst 100", burst(core.TokenBucket, limit)},
		{"token-bucket, burst 10", burst(core.TokenBucket, limit/10)},
		{"leaky-bucket, burst 100", burst(core.LeakyBucket, limit)},
		{"queue of 100", burst(core.Queue, limit)},
	}
}

// A key is one key under an algorithm, decided at explicit times.
type key struct {
	charges [1]core.Charge
	states  [1]core.State
}

func newKey(q core.Quota) *key {
	return &key{
		charges: [1]core.Charge{{Rule: "rule", Quota: q, Cost: 1}},
		states:  [1]core.State{core.NewState(q.Algorithm)},
	}
}

func (k *key) ask(at int64) core.Decision {
	return core.Decide(at, k.charges[:], k.states[:])
}
