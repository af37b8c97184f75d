package guard

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// settle makes the payments that are due, and lets what follows a raise pass.
func (f *fleet) settle() {
	for range 10 {
		for _, g := range f.guards {
			g.payNext()
		}
		f.now.Add(settling / 5)
	}
}

// algorithms are quotas of each algorithm whose units are spent.
var algorithms = []core.Quota{
	{Limit: 90, Window: day},
	{Algorithm: core.SlidingCells, Limit: 90, Window: day, Cells: 24},
	{Algorithm: core.SlidingCounter, Limit: 90, Window: day},
	{Algorithm: core.FixedWindow, Limit: 90, Window: day, Aligned: true},
	{Algorithm: core.FixedWindow, Limit: 90, Window: day},
	{Algorithm: core.TokenBucket, Limit: 90, Window: day, Burst: 90},
	{Algorithm: core.LeakyBucket, Limit: 90, Window: day, Burst: 90},
	{Algorithm: core.Queue, Limit: 90, Window: day, Burst: 89},
}

// TestRaiseMakesOneFailedCall has a store fail that has lost data: a request that is to raise its
// key first finds that out once, and is not looked up as well.
func TestRaiseMakesOneFailedCall(t *testing.T) {
	s, f, _ := guarded(1, sec)
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 9, Window: day}, Cost: 1}
	storetest.MustTake(t, s, c)
	f.gone.Store(true)
	require.Equal(t, core.ModeLocal, storetest.MustTake(t, s, c).Mode)
	f.fail(errAway)
	asked, sought := f.asked.Load(), f.sought.Load()
	require.Equal(t, core.ModeLocal, storetest.MustTake(t, s, c).Mode)
	require.Equal(t, sought+1, f.sought.Load())
	require.Equal(t, asked, f.asked.Load(), "it asked what is lost, and that failed")
}

// TestRestartWithData restarts a store that keeps its data: a second later, the store alone
// decides, and has been charged for nothing again.
func TestRestartWithData(t *testing.T) {
	for _, instances := range []int{1, 3} {
		for _, q := range algorithms {
			f := newFleet(instances, nil)
			f.detects = true
			c := core.Charge{Rule: "r", Key: "k", Quota: q, Cost: 1}
			take := func(n int) (admitted int) {
				for i := range n {
					if storetest.MustTake(t, f.guards[i%instances], c).Allowed {
						admitted++
					}
				}
				return admitted
			}
			require.Equal(t, 60, take(60))
			for _, cut := range f.cut {
				cut.gone.Store(true)
			}
			admitted := 60 + take(instances)
			f.settle()
			look := c
			look.Cost = 0
			assert.EqualValues(t, 90-admitted, remaining(t, f.store.Store, look), "%v, %d instances", q.Algorithm, instances)
			admitted += take(60)
			assert.Equal(t, 90, admitted, "%v, %d instances", q.Algorithm, instances)
			assert.Equal(t, core.ModeExact, storetest.MustTake(t, f.guards[0], c).Mode)
		}
	}
}

// TestRestartWithoutData restarts a store without its data, of keys that are asked for and
// others.
func TestRestartWithoutData(t *testing.T) {
	for _, instances := range []int{1, 3} {
		for _, q := range algorithms {
			f := newFleet(instances, nil)
			f.detects = true
			c := core.Charge{Rule: "r", Quota: q, Cost: 1}
			admitted := make(map[string]int)
			take := func(key string, n int) {
				c.Key = key
				for range n {
					if storetest.MustTake(t, f.guards[0], c).Allowed {
						admitted[key]++
					}
				}
			}
			take("a", 60)
			take("b", 60)
			f.lose()
			take("a", 1)
			f.settle()
			for _, key := range []string{"a", "b"} {
				take(key, 100)
				most := 90
				if instances > 1 && q.Refills() {
					most = 150 // a burst more
				}
				assert.LessOrEqual(t, admitted[key], most, "%v, %d instances, key %s", q.Algorithm, instances, key)
				assert.GreaterOrEqual(t, admitted[key], 89, "%v, %d instances, key %s", q.Algorithm, instances, key)
			}
		}
	}
}

// TestLossIsLearnedOnce has many calls find the same loss. What was known of keys when the
// first one did would count as an earlier loss if another one learned of it again.
func TestLossIsLearnedOnce(t *testing.T) {
	s, _, now := guarded(3, sec)
	var losses, asked atomic.Int64
	s.doubts.losses = func() int64 { asked.Add(1); return losses.Load() }
	for range 100 {
		before := now.Add(sec)
		s.raises.last.advance(before)
		losses.Add(1)
		asked.Store(0)
		var done sync.WaitGroup
		s.debts.mu.Lock() // so that all find the loss before one has learned of it
		for range 8 {
			done.Go(func() { s.learn(nil, now.Add(1)) })
		}
		for asked.Load() < 8 {
			runtime.Gosched()
		}
		s.debts.mu.Unlock()
		done.Wait()
		require.Equal(t, before, s.raises.old.time())
	}
	s.lose(losses.Load()-1, now.Add(1)) // by a call that read the number before the last loss
	require.Equal(t, losses.Load(), s.doubts.known.Load())
}

// TestBusyKey has a key meet an outage, after which the store may have lost its data, with
// requests all the time: whenever the store is asked, another one comes. A request ends after a
// few calls, and once what was owed is paid the store decides.
func TestBusyKey(t *testing.T) {
	type outage struct{ loses, opens bool } // the breaker
	for _, o := range []outage{{}, {opens: true}, {loses: true}, {loses: true, opens: true}} {
		for _, instances := range []int{1, 3} {
			for _, q := range algorithms {
				name := fmt.Sprintf("%+v, %v, %d instances", o, q.Algorithm, instances)
				f := newFleet(instances, nil)
				f.detects = true
				c := core.Charge{Rule: "r", Key: "k", Quota: q, Cost: 1}
				admitted, asked, busy := 0, 0, false
				take := func() core.Mode {
					d := storetest.MustTake(t, f.guards[0], c)
					if d.Allowed {
						admitted++
					}
					return d.Mode
				}
				for range 5 {
					take()
				}
				f.cut[0].fail(errAway)
				for range 2 {
					take()
				}
				for o.opens && !f.guards[0].unavailable() {
					take()
				}
				f.now.Add(firstWait)
				f.cut[0].fail(nil)
				if o.loses {
					f.lose()
				}
				f.cut[0].first = func() {
					asked++
					require.LessOrEqual(t, asked, 50, name)
					if !busy {
						busy = true
						take()
						busy = false
					}
				}
				for range 3 {
					before := asked
					take()
					assert.LessOrEqual(t, asked-before, 20, name)
					f.now.Add(slack)
				}
				asked = 0
				f.settle()
				asked = 0
				assert.Equal(t, core.ModeExact, take(), name)
				f.cut[0].first = nil
				for range 100 {
					take()
				}
				most := 90
				if o.loses && instances > 1 && q.Refills() {
					most = 150 // a burst more
				}
				assert.LessOrEqual(t, admitted, most, name)
				assert.GreaterOrEqual(t, admitted, 89, name)
			}
		}
	}
}

// TestPartialLoss loses the last units of a key, as a failover does. They are charged again,
// at their age, and nothing else is.
func TestPartialLoss(t *testing.T) {
	f := newFleet(3, nil)
	f.detects = true
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 100, Window: day}, Cost: 1}
	kept := memstore.New(&memstore.Options{Now: f.now.Load})
	for i := range 80 {
		if i == 50 {
			f.now.Add(day / 2)
		}
		require.True(t, storetest.MustTake(t, f.guards[0], c).Allowed)
		if i < 60 {
			storetest.MustTake(t, kept, c)
		}
	}
	f.lose()
	f.store.Store = kept
	for i := range 3 {
		storetest.MustTake(t, f.guards[i], core.Charge{Rule: "r", Key: "k", Quota: c.Quota})
	}
	f.settle()
	c.Cost = 0
	assert.EqualValues(t, 20, remaining(t, kept, c))
	f.now.Add(day / 2)
	assert.EqualValues(t, 70, remaining(t, kept, c))
}

// TestLossesFit is [TestDebtsFit] with a store that loses its data, and says so. Parts of a
// unit may be lost where an algorithm counts them.
func TestLossesFit(t *testing.T) {
	race.Skip(t)
	stories, cycles := 8, 100
	if testing.Short() {
		stories = 2
	}
	for _, q := range []core.Quota{
		{Limit: 9, Window: sec},
		{Limit: 40, Window: 10 * sec},
		{Algorithm: core.SlidingCells, Limit: 9, Window: sec, Cells: 5},
		{Algorithm: core.SlidingCounter, Limit: 9, Window: 5 * sec},
		{Algorithm: core.FixedWindow, Limit: 9, Window: 5 * sec, Aligned: true},
		{Algorithm: core.TokenBucket, Limit: 9, Window: 5 * sec, Burst: 6},
		{Algorithm: core.LeakyBucket, Limit: 9, Window: sec, Burst: 6},
	} {
		worst, wide, busy := 0, q, false
		if q.Refills() {
			wide.Burst++
		} else if q.Algorithm == core.SlidingCounter {
			wide.Limit++
		}
		for story := range stories {
			random := rand.New(rand.NewPCG(91, uint64(story)))
			f := newFleet(1, random)
			f.detects = true
			oracle := memstore.New(&memstore.Options{Now: f.now.Load})
			refused, n := 0, 0
			take := func(instance int) {
				c := core.Charge{Rule: "r", Quota: q, Cost: 1 + random.Int64N(2), Key: fmt.Sprint(random.IntN(2))}
				d := storetest.MustTake(t, f.guards[instance], c)
				switch c.Quota = wide; {
				case d.Allowed:
					require.True(t, storetest.MustTake(t, oracle, c).Allowed, "%v, story %d, %v", q.Algorithm, story, d.Mode)
					n++
				default:
					refused++
				}
			}
			f.cut[0].first = func() { // some requests come while the store is asked
				if !busy && random.IntN(8) == 0 {
					busy = true
					take(0)
					busy = false
				}
			}
			for range cycles {
				f.cycle(q.Window, take)
			}
			require.Positive(t, refused)
			worst = max(worst, n)
		}
		t.Logf("%v of %d: up to %d admitted in a story, none that a store that never fails refuses", q.Algorithm, q.Limit, worst)
	}
}

// TestCountsOfLargeLimits finds what the memory counts of limits that an int of 32 bits does not
// hold.
func TestCountsOfLargeLimits(t *testing.T) {
	for _, limit := range []int64{1 << 31, 3_000_000_000, 1_000_000_000_000} {
		var now atomic.Int64
		now.Store(1_750_000_000 * sec)
		s := newStore(at(&now), &Options{Log: nowhere}, at(&now), now.Load)
		c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: limit / 2, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: limit, Window: hour}}
		require.True(t, storetest.MustTake(t, s.own, c).Allowed)
		require.Equal(t, limit/2, s.countsAfter(c, settling))
	}
}
