package topkeys

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/race"
)

// A sighting is a request of a key in a test.
type sighting struct {
	key     string
	used    int64 // of 100
	refused bool
	after   int64 // seconds since the one before
}

// truth has what sightings really count, without a bound on memory.
type truth struct {
	requests map[string]float64
	counts   [2]map[string]float64 // by Order
	sums     [2]float64
}

// compare runs sightings through a rule that tracks few keys, and checks its counts.
func compare(t *testing.T, most int, stream []sighting) {
	t.Helper()
	c := New(&Options{Keys: most})
	r := c.add("policy", "rule")
	now := int64(1_000_000_000)
	c.now = func() time.Time { return time.Unix(now, 0) }
	exact := truth{requests: make(map[string]float64), counts: [2]map[string]float64{{}, {}}}
	for _, s := range stream {
		now += s.after
		exact.add(&s)
		r.observe(&limit.RuleDecision{Key: s.key, Capacity: 100, Remaining: 100 - s.used, Allowed: !s.refused, ResetAfter: 250 * 365 * 24 * time.Hour}, time.Unix(now, 0), true)
	}
	exact.check(t, r, most)

	listed := make(map[string]bool)
	top := c.Top(ByRefusals, 1<<20)
	for i, key := range top {
		listed[key.Key] = true
		assert.True(t, i == 0 || top[i-1].Refused >= key.Refused, "order")
		assert.InDelta(t, exact.counts[ByRefusals][key.Key]+key.Error/2, key.Refused, key.Error/2+close(exact.sums[ByRefusals]), "refusals of %q", key.Key)
		assert.LessOrEqual(t, key.Error, exact.sums[ByRefusals]/float64(most)*(1+1e-9))
		assert.GreaterOrEqual(t, key.Requests, key.Refused)
	}
	for key, count := range exact.counts[ByRefusals] {
		if count > exact.sums[ByRefusals]/float64(most)*(1+1e-9) && count > least*(1+1e-9) {
			assert.True(t, listed[key], "%q has %v of %v refusals", key, count, exact.sums[ByRefusals])
		}
	}
}

// close is how far floating-point sums may be apart.
func close(sum float64) float64 { return 1e-9 * (1 + sum) }

func (x *truth) add(s *sighting) {
	if s.after > 0 {
		factor := math.Exp(-float64(s.after) / Window.Seconds())
		for order := range x.counts {
			x.sums[order] *= factor
			for key := range x.counts[order] {
				x.counts[order][key] *= factor
			}
		}
		for key := range x.requests {
			x.requests[key] *= factor
		}
	}
	used := float64(s.used) / 100
	x.requests[s.key]++
	x.counts[ByUse][s.key] += used * used
	x.sums[ByUse] += used * used
	if s.refused {
		x.counts[ByRefusals][s.key]++
		x.sums[ByRefusals]++
	}
}

// check compares the counts of a rule, and checks its structure.
func (x *truth) check(t *testing.T, r *rule, most int) {
	t.Helper()
	factor := r.aging.factor(r.aging.now)
	for order := range x.counts {
		bound := x.sums[order] / float64(most)
		h := r.heaps[order]
		require.LessOrEqual(t, len(h), most)
		for i, slot := range h {
			e := slot.entry
			require.True(t, e.in[order])
			require.LessOrEqual(t, slot.count, e.count[order])
			require.True(t, i == 0 || h[(i-1)/2].count <= slot.count, "heap")
			count, err := e.count[order]*factor, e.err[order]*factor
			require.LessOrEqual(t, err, bound*(1+1e-9)+1e-300, "error")
			require.LessOrEqual(t, x.counts[order][e.key], count+close(x.sums[order]), "never too low")
			require.GreaterOrEqual(t, x.counts[order][e.key], count-err-close(x.sums[order]), "never too high by more than the error")
		}
		for key, count := range x.counts[order] {
			if count > bound+close(x.sums[order]) {
				require.True(t, r.entries[key] != nil && r.entries[key].in[order], "%q counts %v of %v in order %d", key, count, x.sums[order], order)
			}
		}
	}
	for _, e := range r.free {
		require.Zero(t, *e)
	}
	for key, e := range r.entries {
		require.Equal(t, key, e.key)
		require.NotZero(t, e.in)
		require.LessOrEqual(t, e.requests*factor, x.requests[e.key]+close(x.requests[e.key]), "requests are never too high")
	}
	require.LessOrEqual(t, len(r.entries)+len(r.free), 2*most+1)
}

func TestBounds(t *testing.T) {
	race.Skip(t)
	const n = 20_000
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.2, 1, 100_000)
	streams := map[string]func(i int) sighting{
		"zipf": func(int) sighting {
			k := zipf.Uint64()
			return sighting{key: fmt.Sprint(k), used: int64(100 / (k + 1)), refused: k < 50 && random.IntN(2) == 0}
		},
		"all different": func(i int) sighting { return sighting{key: fmt.Sprint(i), used: 100, refused: true} },
		"round robin of one more than fit": func(i int) sighting {
			return sighting{key: fmt.Sprint(i % 51), used: 50, refused: true}
		},
		"heavy keys, then a flood": func(i int) sighting {
			if i < n/4 || i%20 == 0 {
				return sighting{key: fmt.Sprint("heavy", i%7), used: 90, refused: i%3 > 0}
			}
			return sighting{key: fmt.Sprint(i), used: 1 + int64(i%100), refused: true}
		},
		"a flood of idle keys": func(i int) sighting {
			if i%100 == 0 {
				return sighting{key: "busy", used: 100, refused: true}
			}
			return sighting{key: fmt.Sprint(i), used: int64(i % 3)}
		},
		"two kinds of keys": func(i int) sighting {
			return sighting{key: fmt.Sprint(i%2, i/2%60), used: int64(i % 2 * 100), refused: i%2 == 0}
		},
	}
	for name, at := range streams {
		t.Run(name, func(t *testing.T) {
			for _, second := range []int{0, 10, 5000} { // how many requests a second has
				stream := make([]sighting, n)
				for i := range stream {
					stream[i] = at(i)
					if second > 0 && i%second == 0 {
						stream[i].after = int64(random.IntN(3))
					}
				}
				compare(t, 50, stream)
			}
		})
	}
}

// TestBoundsRandom compares short random streams, in which times jump too.
func TestBoundsRandom(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		most, keys := 1+random.IntN(6), 1+random.IntN(20)
		stream := make([]sighting, random.IntN(300))
		for i := range stream {
			stream[i] = sighting{key: fmt.Sprint(random.IntN(keys)), used: random.Int64N(101), refused: random.IntN(3) == 0}
			switch random.IntN(100) {
			case 0:
				stream[i].after = random.Int64N(1000)
			case 1:
				stream[i].after = random.Int64N(2 * rescaled)
			}
		}
		compare(t, most, stream)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzBounds compares streams that the fuzzer writes: two bytes a request.
func FuzzBounds(f *testing.F) {
	f.Add(uint8(2), []byte("\x00\x10\x00\x31\x08\x31\x10\x31\x18\x31\x20\x31\x10\x31\x18\x33\x20\x39\x28\x3d\x30\x3f"))
	f.Add(uint8(2), []byte("\x01\xf0\x02\x10\x03\xff\x81\x03\x01\x04"))
	f.Fuzz(func(t *testing.T, most uint8, text []byte) {
		stream := make([]sighting, 0, len(text)/2)
		for ; len(text) >= 2 && len(stream) < 2000; text = text[2:] {
			n := binary.BigEndian.Uint16(text)
			stream = append(stream, sighting{key: fmt.Sprint(n >> 11), used: int64(n>>4&7) * 14, refused: n&1 == 1,
				after: []int64{0, 0, 0, 1, 60, 1000, 100_000, rescaled + 1}[n>>1&7]})
		}
		compare(t, 1+int(most%40), stream)
	})
}

func TestAging(t *testing.T) {
	c := New(nil)
	r := c.add("policy", "rule")
	start := time.Unix(2_000_000_000, 0)
	now := start
	c.now = func() time.Time { return now }
	refuse := func(key string) {
		r.observe(&limit.RuleDecision{Key: key, Limit: 5, Capacity: 5, ResetAfter: time.Minute}, now, true)
	}
	refusals := func(key string) float64 {
		for _, k := range c.TopOf("policy", ByRefusals, 10) {
			if k.Key == key {
				return k.Refused
			}
		}
		return 0
	}
	for range 300 * 20 { // twenty minutes at one a second
		for range 2 {
			refuse("steady")
		}
		now = now.Add(200 * time.Millisecond)
	}
	assert.InDelta(t, 10*Window.Seconds(), refusals("steady"), 70, "a steady rate counts what it sends in a Window")
	last := refusals("steady")
	now = now.Add(208 * time.Second)
	assert.InDelta(t, last/2, refusals("steady"), 1, "the half of 3 min 28 s ago")
	refuse("new")
	now = now.Add(Window)
	assert.InDelta(t, 1/math.E, refusals("new"), 1e-9)
	assert.Len(t, c.Top(ByRefusals, 10), 2)
	now = now.Add(time.Hour)
	assert.Empty(t, c.Top(ByRefusals, 10), "less than 0.05")
	assert.Empty(t, c.TopOf("other", ByRefusals, 10))

	// A clock that steps back neither ages counts nor lets new ones weigh nothing.
	now = now.Add(24 * time.Hour)
	refuse("before")
	now = now.Add(-2 * time.Second)
	refuse("before")
	assert.InDelta(t, 2, refusals("before"), 1e-9)
	now = now.Add(-12 * time.Hour)
	refuse("before")
	assert.InDelta(t, 3, refusals("before"), 1e-9)
	now = now.Add(Window)
	refuse("after")
	assert.InDelta(t, 3/math.E, refusals("before"), 1e-9)
	assert.InDelta(t, 1, refusals("after"), 1e-9)
	now = now.Add(250 * 365 * 24 * time.Hour)
	refuse("much later")
	assert.InDelta(t, 1, refusals("much later"), 1e-9)
	assert.Zero(t, refusals("before"))
}

// TestMemory floods rules with different keys of the longest length, and finds at most the
// memory that the documentation names.
func TestMemory(t *testing.T) {
	race.Skip(t)
	keys := 250_000
	if testing.Short() {
		keys = 20_000
	}
	c := New(nil)
	before := heapBytes()
	for _, name := range []string{"a", "b", "c", "d"} {
		r := c.add("policy", name)
		for i := range keys {
			r.observe(&limit.RuleDecision{Key: fmt.Sprintf("%0128d", i*7919), Capacity: 100, Remaining: 10, Allowed: i%2 == 0, ResetAfter: time.Hour}, time.Unix(int64(i/1000), 0), true)
		}
	}
	bytes := heapBytes() - before
	runtime.KeepAlive(c)
	t.Logf("%d bytes for each of 4 rules, %d for each key that it tracks in one order", bytes/4, bytes/4/512)
	assert.LessOrEqual(t, bytes, int64(4*2*256*350))
	assert.Greater(t, bytes, int64(4*2*256*128))
}

// TestLongKey checks that a short key does not keep the long text alive that it is a part of.
func TestLongKey(t *testing.T) {
	c := New(nil)
	r := c.add("policy", "rule")
	before := heapBytes()
	for i := range 200 {
		text := fmt.Sprintf("%d%s", i+1_000_000, strings.Repeat("x", 1<<16))
		r.observe(&limit.RuleDecision{Key: text[:7], ResetAfter: time.Hour}, time.Unix(1, 0), true)
	}
	assert.Less(t, heapBytes()-before, int64(1<<20))
	runtime.KeepAlive(c)
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
