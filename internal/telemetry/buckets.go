package telemetry

import (
	"math"
	"sync"
	"sync/atomic"
)

// Buckets are a histogram of ratios, from 0 to 1. Each rule of each decision adds one, and the
// histograms of Prometheus and OpenTelemetry take longer for that. Make them with [NewBuckets].
// They are safe for concurrent use.
type Buckets struct {
	bounds   []float64
	cells    []cell // one more than bounds
	draining sync.Mutex
}

// A cell has the values above the bound before and up to its own.
type cell struct {
	sum   atomic.Int64 // in units of 1/sumUnit
	count atomic.Int64
}

// sumUnit keeps a sum of 2^43 values of 1 in an int64, and six digits of each.
const sumUnit = 1 << 20

// NewBuckets returns empty buckets with the bounds of a metric.
func NewBuckets(m *Metric) *Buckets {
	return &Buckets{bounds: m.Bounds, cells: make([]cell, len(m.Bounds)+1)}
}

// Observe adds a value.
func (b *Buckets) Observe(value float64) {
	i := 0
	for i < len(b.bounds) && value > b.bounds[i] {
		i++
	}
	c := &b.cells[i]
	c.sum.Add(int64(value * sumUnit)) // first: a count never lacks its value
	c.count.Add(1)
}

// Snapshot returns the number and the sum of all values, and how many were at most each
// bound. No number is smaller than in an earlier snapshot.
func (b *Buckets) Snapshot() (count uint64, sum float64, upTo map[float64]uint64) {
	upTo = make(map[float64]uint64, len(b.bounds))
	for i := range b.cells {
		c := &b.cells[i]
		count += uint64(c.count.Load())
		sum += float64(c.sum.Load()) / sumUnit
		if i < len(b.bounds) {
			upTo[b.bounds[i]] = count
		}
	}
	return count, sum, upTo
}

// Drain calls record as often as Observe was called since the last Drain, with values in the same
// buckets and of the same sum, while more returns true. Values that are left are for the next
// Drain, which waits for this one to end.
func (b *Buckets) Drain(record func(float64), more func() bool) {
	b.draining.Lock()
	defer b.draining.Unlock()
	for i := range b.cells {
		b.drain(i, record, more)
	}
}

// drainAtOnce is how many values are recorded between two calls of more.
const drainAtOnce = 10_000

func (b *Buckets) drain(i int, record func(float64), more func() bool) {
	c := &b.cells[i]
	low, high := 0.0, math.MaxFloat64
	if i > 0 {
		low = math.Nextafter(b.bounds[i-1], math.MaxFloat64)
	}
	if i < len(b.bounds) {
		high = b.bounds[i]
	}
	for more() {
		pending := c.count.Load()
		if pending == 0 {
			return
		}
		// The sum may have values that are not counted yet, so the mean may be too high.
		// What is not recorded of the sum stays for later values.
		value := min(max(float64(c.sum.Load())/sumUnit/float64(pending), low), high)
		now := min(pending, drainAtOnce)
		c.count.Add(-now)
		c.sum.Add(-int64(math.Round(value * float64(now) * sumUnit)))
		for range now {
			record(value)
		}
	}
}
