package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// cellOf returns the index of the bucket of a value.
func cellOf(value float64) int {
	i, _ := slices.BinarySearch(Used.Bounds, value)
	return i
}

func always() bool { return true }

// TestSnapshot adds values on the bounds, between them and beyond.
func TestSnapshot(t *testing.T) {
	b := NewBuckets(Used)
	for _, value := range []float64{0, 0.1, 0.10001, 0.5, 0.8, 0.81, 0.999, 1} {
		b.Observe(value)
	}
	count, sum, upTo := b.Snapshot()
	assert.EqualValues(t, 8, count)
	assert.InDelta(t, 4.30901, sum, 1e-5)
	assert.Equal(t, map[float64]uint64{0.1: 2, 0.25: 3, 0.5: 4, 0.75: 4, 0.8: 5, 0.9: 6, 0.95: 6, 0.999: 7}, upTo)
}

// TestSnapshotOfMany adds more values to a bucket than it has room for beside their sum, from
// several goroutines, and values that are no ratios.
func TestSnapshotOfMany(t *testing.T) {
	b := NewBuckets(Used)
	var adding sync.WaitGroup
	const goroutines, each = 4, full >> sumBits
	for range goroutines {
		adding.Go(func() {
			for range each {
				b.Observe(1)
			}
		})
	}
	adding.Wait()
	for _, value := range []float64{-1, 2} {
		b.Observe(value)
	}
	for range 2 {
		count, sum, upTo := b.Snapshot()
		assert.EqualValues(t, goroutines*each+2, count)
		assert.InDelta(t, goroutines*each+1, sum, 1e-5)
		assert.EqualValues(t, 1, upTo[0.999])
	}
}

// TestDrain compares what is recorded with what was observed: the number in each bucket,
// and the sum.
func TestDrain(t *testing.T) {
	b := NewBuckets(Used)
	r := rand.New(rand.NewPCG(1, 2))
	var want, got [9]int
	var wantSum, gotSum float64
	n := 0
	for range 5 {
		for range 10_000 {
			value := float64(r.IntN(101)) / 100
			b.Observe(value)
			want[cellOf(value)]++
			wantSum += value
			n++
		}
		b.Drain(func(value float64) {
			got[cellOf(value)]++
			gotSum += value
		}, always)
		assert.Equal(t, want, got)
		assert.InDelta(t, wantSum, gotSum, 1e-5*float64(n))
	}
	b.Drain(func(float64) { t.Error("recorded twice") }, always)
}

// TestDrainAboveBound drains a value whose six digits are those of a bound, though it is above it.
// The next value is not changed by that.
func TestDrainAboveBound(t *testing.T) {
	b := NewBuckets(Used)
	for _, value := range []float64{math.Nextafter(0.1, 1), 0.2} {
		b.Observe(value)
		b.Drain(func(got float64) {
			assert.InDelta(t, value, got, 1e-5)
			assert.Equal(t, cellOf(value), cellOf(got))
		}, always)
	}
}

// TestDrainStops leaves values for the next Drain.
func TestDrainStops(t *testing.T) {
	b := NewBuckets(Used)
	for range 3 * drainAtOnce {
		b.Observe(0.3)
	}
	recorded, asked := 0, 0
	record := func(value float64) {
		assert.InDelta(t, 0.3, value, 1e-5)
		recorded++
	}
	b.Drain(record, func() bool { asked++; return asked <= 3 }) // two buckets are below
	assert.Equal(t, drainAtOnce, recorded)
	b.Drain(record, always)
	assert.Equal(t, 3*drainAtOnce, recorded)
}

// TestDrainTogether drains from several goroutines while values arrive.
func TestDrainTogether(t *testing.T) {
	const writers, each = 4, 50_000
	b := NewBuckets(Used)
	var recorded [9]atomic.Int64
	var sums [3]float64
	var stop atomic.Bool
	var writing, draining sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range each {
				b.Observe(float64(i%101) / 100)
			}
		})
	}
	drain := func(sum *float64) {
		b.Drain(func(value float64) {
			recorded[cellOf(value)].Add(1)
			*sum += value
		}, always)
	}
	for i := range 2 {
		draining.Go(func() {
			for !stop.Load() {
				drain(&sums[i])
			}
		})
	}
	writing.Wait()
	stop.Store(true)
	draining.Wait()
	drain(&sums[2])

	var want [9]int64
	wantSum := 0.0
	for i := range each {
		value := float64(i%101) / 100
		want[cellOf(value)] += writers
		wantSum += writers * value
	}
	for i := range want {
		assert.Equal(t, want[i], recorded[i].Load(), i)
	}
	assert.InEpsilon(t, wantSum, sums[0]+sums[1]+sums[2], 1e-3)
}
