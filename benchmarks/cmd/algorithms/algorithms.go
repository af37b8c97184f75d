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
	all := []algorithm{
		{"sliding-log", core.Quota{Algorithm: core.SlidingLog}},
		{"fixed-window", core.Quota{Algorithm: core.FixedWindow}},
		{"fixed-window, aligned", core.Quota{Algorithm: core.FixedWindow, Aligned: true}},
		{"sliding-cells, 10 cells", core.Quota{Algorithm: core.SlidingCells, Cells: 10}},
		{"sliding-cells, 60 cells", core.Quota{Algorithm: core.SlidingCells, Cells: 60}},
		{"sliding-counter", core.Quota{Algorithm: core.SlidingCounter}},
		{"token-bucket, burst 100", core.Quota{Algorithm: core.TokenBucket, Burst: 100}},
		{"token-bucket, burst 10", core.Quota{Algorithm: core.TokenBucket, Burst: 10}},
		{"leaky-bucket, burst 100", core.Quota{Algorithm: core.LeakyBucket, Burst: 100}},
		{"queue of 100", core.Quota{Algorithm: core.Queue, Burst: 100}},
	}
	for i := range all {
		all[i].quota.Limit, all[i].quota.Window = limit, window
	}
	return all
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
