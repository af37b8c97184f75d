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
	mu       sync.Mutex
	draining sync.Mutex
}

// A cell has the values above the bound before and up to its own.
type cell struct {
	fresh      atomic.Uint64 // the latest values: their number, above their sum in the lower sumBits
	count, sum uint64        // of the others, under mu
}

const (
	sumUnit = 1 << 20 // of a sum, which keeps six digits of each value
	sumBits = 44
	full    = 1 << 63 // or more is in a cell that half a million values were added to
)

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
	if b.cells[i].fresh.Add(1<<sumBits+uint64(min(max(int64(value*sumUnit), 0), sumUnit))) >= full {
		b.mu.Lock()
		b.cells[i].settle()
		b.mu.Unlock()
	}
}

// settle adds the latest values to the others.
func (c *cell) settle() {
	fresh := c.fresh.Swap(0)
	c.count += fresh >> sumBits
	c.sum += fresh & (1<<sumBits - 1)
}

// Snapshot returns the number and the sum of all values, and how many were at most each
// bound. No number is smaller than in an earlier snapshot.
func (b *Buckets) Snapshot() (count uint64, sum float64, upTo map[float64]uint64) {
	upTo = make(map[float64]uint64, len(b.bounds))
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.cells {
		c := &b.cells[i]
		c.settle()
		count += c.count
		sum += float64(c.sum) / sumUnit
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
		for more() {
			value, n := b.take(i)
			if n == 0 {
				break
			}
			for range n {
				record(value)
			}
		}
	}
}

// drainAtOnce is how many values are recorded between two calls of more.
const drainAtOnce = 10_000

// take removes values from a cell. What their mean does not say of the sum stays for later values.
func (b *Buckets) take(i int) (value float64, n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.cells[i]
	if c.settle(); c.count == 0 {
		return 0, 0
	}
	value = float64(c.sum) / sumUnit / float64(c.count)
	if i > 0 {
		value = max(value, math.Nextafter(b.bounds[i-1], math.MaxFloat64))
	}
	if i < len(b.bounds) {
		value = min(value, b.bounds[i])
	}
	n = min(c.count, drainAtOnce)
	c.count -= n
	c.sum -= min(c.sum, uint64(math.Round(value*float64(n)*sumUnit)))
	return value, n
}
