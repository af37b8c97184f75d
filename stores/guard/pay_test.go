package guard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

const day = 24 * 3600 * sec

// TestBlip has one call of one of three instances fail. The instances then admit all that is
// left, and no more.
func TestBlip(t *testing.T) {
	f := newFleet(3, nil)
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 1_000, Window: day}, Cost: 1}
	f.cut[0].fail(errAway)
	d := storetest.MustTake(t, f.guards[0], c)
	require.Equal(t, core.ModeLocal, d.Mode)
	f.cut[0].fail(nil)
	admitted := 1
	for _, instance := range []int{0, 1, 2, 0} {
		for range 400 {
			d := storetest.MustTake(t, f.guards[instance], c)
			require.Equal(t, core.ModeExact, d.Mode)
			if d.Allowed {
				admitted++
			}
		}
	}
	assert.Equal(t, 1_000, admitted)
	assert.Zero(t, f.guards[0].debts.count.Load())
}

// TestResetAfterBlip resets an exhausted key at the store after a call failed.
func TestResetAfterBlip(t *testing.T) {
	for _, instances := range []int{1, 3} {
		f := newFleet(instances, nil)
		require.Equal(t, 9, f.admits(t, "k", 10))
		f.cut[0].fail(errAway)
		require.Zero(t, f.admits(t, "k", 1))
		f.cut[0].fail(nil)
		c := charge("r", 9, core.Local)
		require.NoError(t, f.store.Store.Reset(t.Context(), storetest.Of("p", c)))
		require.Equal(t, 9, f.admits(t, "k", 10))
	}
}

// TestResetCancels resets a key that owes by the guard that owes. A call that no store takes
// cancels nothing.
func TestResetCancels(t *testing.T) {
	f := newFleet(3, nil)
	f.cut[0].fail(errAway)
	require.Equal(t, 3, f.admits(t, "k", 3))
	f.cut[0].fail(nil)
	reset := storetest.Of("p", charge("r", 9, core.Local))
	require.ErrorIs(t, f.guards[0].Reset(t.Context(), slices.Repeat(reset, core.MaxCharges+1)), core.ErrCharges)
	require.EqualValues(t, 3, f.guards[0].debts.units.Load())
	require.NoError(t, f.guards[0].Reset(t.Context(), reset))
	require.Zero(t, f.guards[0].debts.units.Load())
	require.Equal(t, 9, f.admits(t, "k", 10))
}

// remaining returns what a charge finds left.
func remaining(t *testing.T, s core.Store, c core.Charge) int64 {
	d := storetest.MustTake(t, s, c)
	return d.Outcomes()[0].Remaining
}

// TestReturnLowersDebts gives back a part of what is owed.
func TestReturnLowersDebts(t *testing.T) {
	s, f, _ := guarded(1, 1_000*sec)
	f.fail(errAway)
	c := charge("r", 9, core.Local)
	c.Cost = 5
	d := storetest.MustTake(t, s, c)
	r := core.Return{Charge: c, At: d.At, Mode: d.Mode}
	r.Policy = storetest.Of("p", c)[0].Policy
	r.Cost = 3
	must.Get(s.Return(t.Context(), []core.Return{r}))(t)
	assert.EqualValues(t, 2, s.debts.units.Load())
	f.fail(nil)
	c.Cost = 0
	assert.EqualValues(t, 7, remaining(t, s, c))
}

// TestDebtsExpire drops debts that have left their window while the store was away.
func TestDebtsExpire(t *testing.T) {
	s, f, now := guarded(1, 1_000*sec)
	f.fail(errAway)
	for i := range 2 * failuresToOpen {
		c := charge("r", 9, core.Local)
		c.Key = fmt.Sprint(i)
		storetest.MustTake(t, s, c)
	}
	assert.EqualValues(t, 2*failuresToOpen, s.debts.count.Load())
	s.breaker.until.Store(probing)
	now.Add(10 * sec)
	s.payNext()
	assert.Zero(t, s.debts.count.Load())
	assert.Zero(t, s.debts.units.Load())
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	assert.Empty(t, s.debts.keys)
	assert.Empty(t, s.debts.queue)
}

// TestDistinctOwesValues shows values without the store, which must know them afterwards.
func TestDistinctOwesValues(t *testing.T) {
	f := newFleet(3, nil)
	c := core.Charge{Rule: "r", Quota: core.Quota{Algorithm: core.Distinct, Limit: 9, Window: 10 * sec}, Cost: 1}
	f.cut[0].fail(errAway)
	for id := range uint64(3) {
		c.ID = id + 1
		require.True(t, storetest.MustTake(t, f.guards[0], c, charge("x", 100, core.Local)).Allowed)
	}
	f.cut[0].fail(nil)
	f.guards[0].payNext()
	for id := range uint64(12) {
		c.ID = id + 1
		require.Equal(t, id < 9, storetest.MustTake(t, f.guards[1], c).Allowed, id)
	}
}

// TestAnswerAfterPayment admits a request without the store while the store's answer to
// another request is on its way, and pays for it before that comes. The other request must
// be refused.
func TestAnswerAfterPayment(t *testing.T) {
	for _, instances := range []int{1, 3} {
		s, f, _ := guarded(instances, 1_000*sec)
		fast := f.Store
		slow := &pause{fast, make(chan struct{}), make(chan struct{})}
		f.Store = slow
		c := charge("r", 1, core.Local)
		first := make(chan core.Decision)
		go func() { first <- storetest.MustTake(t, s, c) }()
		<-slow.decided
		f.Store = fast
		f.fail(errAway)
		require.True(t, storetest.MustTake(t, s, c).Allowed)
		f.fail(nil)
		s.payNext()
		require.Zero(t, s.debts.count.Load())
		close(slow.answer)
		assert.False(t, (<-first).Allowed, "one of one is admitted")
	}
}

// TestManyDebtors has more keys owe than there is room for. The store and the memory must then
// admit all keys for a window.
func TestManyDebtors(t *testing.T) {
	s, f, _ := guarded(3, 1_000*sec)
	f.fail(errAway)
	c := charge("r", 9, core.Local)
	s.debts.keys = make(map[debtor]*debt)
	for i := range maxDebtors {
		s.debts.keys[debtor{key: fmt.Sprint(i)}] = &debt{ended: true}
	}
	require.Equal(t, core.ModeLocal, storetest.MustTake(t, s, c).Mode)
	f.fail(nil)
	assert.True(t, s.doubtful([]core.Charge{c}, s.now()).has(0))
	assert.Empty(t, s.debts.queue)
}

// TestBrokenKey cannot charge the store for one of the keys that owe: the others are charged.
func TestBrokenKey(t *testing.T) {
	s, f, _ := guarded(1, 1_000*sec)
	f.fail(errAway)
	c := charge("r", 9, core.Local)
	for _, key := range []string{"a", "broken", "b"} {
		c.Key = key
		storetest.MustTake(t, s, c)
	}
	broken := &picky{f.Store}
	f.Store = broken
	f.fail(nil)
	for range 5 {
		s.payNext()
	}
	assert.Zero(t, s.debts.count.Load())
	for _, key := range []string{"a", "b"} {
		c.Key = key
		assert.EqualValues(t, 7, remaining(t, f.Store, c))
	}
}

// A picky store fails where a key is broken.
type picky struct{ core.Store }

func (p *picky) Take(ctx context.Context, asks []core.Ask) error {
	for i := range asks {
		if asks[i].Charges[0].Key == "broken" {
			return fmt.Errorf("WRONGTYPE as a test wants")
		}
	}
	return p.Store.Take(ctx, asks)
}

// TestSilentStore pays a store that charges and does not answer, at most twice: once before
// and once after it answers again.
func TestSilentStore(t *testing.T) {
	s, f, now := guarded(1, 1_000*sec)
	f.fail(errAway)
	c := charge("r", 100, core.Local)
	storetest.MustTake(t, s, c)
	s.breaker.leave(now.Load(), false, answered) // another call was answered: the store is trusted
	f.lost.Store(true)
	for range 50 {
		s.payNext()
		now.Add(100 * ms)
	}
	f.lost.Store(false)
	f.fail(nil)
	for range 3 {
		now.Add(longestWait)
		s.payNext()
	}
	assert.Zero(t, s.debts.count.Load())
	c.Cost = 0
	assert.EqualValues(t, 98, remaining(t, f.Store, c), "it was charged twice")
	assert.EqualValues(t, 1, s.debts.repeated.Load())
}

// TestIdlePays checks that an instance without requests pays within a second of the store's
// answer, and that its timer ends.
func TestIdlePays(t *testing.T) {
	f := &frail{Store: memstore.New(nil)}
	s := New(f, &Options{Instances: 3, Log: nowhere})
	f.fail(errAway)
	c := charge("r", 1_000, core.Local)
	const keys = 1_000
	for i := range keys {
		c.Key = fmt.Sprint(i)
		storetest.MustTake(t, s, c)
	}
	f.fail(nil)
	began := time.Now()
	require.Eventually(t, func() bool { return s.debts.count.Load() == 0 }, 10*time.Second, time.Millisecond)
	t.Logf("%d keys are paid after %v", keys, time.Since(began))
	for i := range keys {
		c.Key, c.Cost = fmt.Sprint(i), 0
		require.EqualValues(t, 999, remaining(t, f.Store, c))
	}
	require.Eventually(t, func() bool {
		s.debts.mu.Lock()
		defer s.debts.mu.Unlock()
		return !s.debts.armed
	}, time.Second, time.Millisecond)
}

// TestDebtsFit gives what one instance admits, through failures, lost answers and resets, to
// a store of its own that never fails: all of it fits there, under every algorithm. What three
// instances admit fits under the bound of docs/guarantees.md.
func TestDebtsFit(t *testing.T) {
	race.Skip(t)
	stories, cycles := 10, 100
	if testing.Short() {
		stories = 2
	}
	for _, q := range []core.Quota{
		{Limit: 9, Window: sec},
		{Algorithm: core.SlidingCells, Limit: 9, Window: sec, Cells: 5},
		{Algorithm: core.SlidingCounter, Limit: 9, Window: sec},
		{Algorithm: core.FixedWindow, Limit: 9, Window: sec, Aligned: true},
		{Algorithm: core.FixedWindow, Limit: 9, Window: 1234 * ms, Aligned: true},
		{Algorithm: core.TokenBucket, Limit: 9, Window: sec, Burst: 6},
		{Algorithm: core.TokenBucket, Limit: 3, Window: sec, Burst: 30},
		{Algorithm: core.LeakyBucket, Limit: 9, Window: sec, Burst: 6},
		{Algorithm: core.Queue, Limit: 9, Window: sec, Burst: 5},
	} {
		for _, instances := range []int{1, 3} {
			admitted, refused := 0, 0
			for story := range stories {
				random := rand.New(rand.NewPCG(77, uint64(story)))
				f := newFleet(instances, random)
				f.detects = true
				oracle, wide := memstore.New(&memstore.Options{Now: f.now.Load}), q
				if instances > 1 && (q.Algorithm == core.SlidingLog || q.Algorithm == core.SlidingCells) {
					wide.Limit += 2 * ((q.Limit + 2) / 3)
				} else if instances > 1 {
					wide.Limit *= 2
				}
				if instances > 1 && q.Refills() {
					wide.Burst += q.Capacity() + 2
				}
				c := core.Charge{Rule: "r", Quota: q}
				for range cycles {
					f.cycleOf(q.Window, false, func(instance int) {
						c.Quota, c.Cost = q, 1+random.Int64N(2)
						d := storetest.MustTake(t, f.guards[instance], c)
						if c.Quota = wide; d.Allowed {
							admitted++
							require.True(t, storetest.MustTake(t, oracle, c).Allowed, "%v, %d instances, story %d, %v", q.Algorithm, instances, story, d.Mode)
						} else if refused++; random.IntN(50) == 0 {
							_ = f.guards[instance].Reset(t.Context(), storetest.Of("p", c)) // in the memory, if the store is away
							require.NoError(t, oracle.Reset(t.Context(), storetest.Of("p", c)))
						}
					})
				}
			}
			require.Positive(t, refused)
			t.Logf("%v, %d instances: %d admitted, %d refused", q.Algorithm, instances, admitted, refused)
		}
	}
}

// TestReturnOfPaid gives back a part of what was admitted without the store, before the store is
// charged for it, meanwhile and afterwards. It counts what is left.
func TestReturnOfPaid(t *testing.T) {
	for _, q := range append(algorithms, core.Quota{Algorithm: core.Distinct, Limit: 90, Window: day}) {
		for _, when := range []string{"owed", "paying", "unanswered", "paid"} {
			s, f, now := guarded(1, 1_750_000_000*sec)
			var taken []core.Return
			take := func(n int64) {
				c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: n}
				if q.Algorithm == core.Distinct {
					c.Cost, c.ID = 1, uint64(n)
				}
				d := storetest.MustTake(t, s, c)
				require.Equal(t, core.ModeLocal, d.Mode)
				taken = append(taken, d.Return(0, c))
				now.Add(sec)
			}
			giveBack := func() {
				for _, r := range taken {
					r.Cost = (r.Cost + 1) / 2
					must.Get(s.Return(t.Context(), []core.Return{r}))(t)
				}
			}
			f.fail(errAway)
			take(6)
			take(4)
			f.fail(nil)
			switch when {
			case "owed":
				giveBack()
			case "paying", "unanswered":
				f.first = func() {
					f.first = nil
					giveBack()
					if when == "unanswered" {
						f.fail(errAway)
					}
				}
				s.payNext()
				f.fail(nil)
			}
			for range 3 {
				s.payNext()
			}
			if when == "paid" {
				giveBack()
			}
			require.Zero(t, s.debts.count.Load())
			require.Zero(t, s.debts.units.Load())
			left := 5
			switch {
			case q.Algorithm == core.Distinct:
				left = 0
			case q.Algorithm == core.Queue && (when == "paying" || when == "paid"):
				left = 7 // of what was paid together, it gives back once
			}
			look := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, ID: 1}
			assert.EqualValues(t, q.Capacity()-int64(left), remaining(t, f.Store, look), "%v, %s", q.Algorithm, when)
			assert.EqualValues(t, q.Capacity()-int64(left), remaining(t, s, look), "%v, %s", q.Algorithm, when)
		}
	}
}

// TestReturnOfExpired gives back what has left its window by the time that the store is charged for
// what another request took: that stays.
func TestReturnOfExpired(t *testing.T) {
	for _, q := range append(algorithms, core.Quota{Algorithm: core.Distinct, Limit: 90, Window: day}) {
		for _, when := range []string{"owed", "paid"} {
			s, f, now := guarded(1, 1_750_000_000*sec)
			take := func(id uint64) core.Return {
				c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, Cost: 5}
				if q.Algorithm == core.Distinct {
					c.Cost, c.ID = 1, id
				}
				d := storetest.MustTake(t, s, c)
				require.True(t, d.Allowed)
				return d.Return(0, c)
			}
			f.fail(errAway)
			old := take(1)
			if q.Algorithm != core.Distinct { // whose value is shown again
				now.Add(2 * day)
			}
			other := take(1)
			f.fail(nil)
			if when == "paid" {
				s.payNext()
			}
			must.Get(s.Return(t.Context(), []core.Return{old}))(t)
			for range 3 {
				s.payNext()
			}
			look := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: q, ID: 1}
			assert.LessOrEqual(t, remaining(t, f.Store, look), q.Capacity()-other.Cost, "%v, %s", q.Algorithm, when)
		}
	}
}

// TestReceiptsEnd forgets the receipts of payments once they are long over.
func TestReceiptsEnd(t *testing.T) {
	s, f, now := guarded(1, 1_750_000_000*sec)
	f.fail(errAway)
	header := strings.Repeat("x", 1000)
	storetest.MustTake(t, s, core.Charge{Policy: "p", Rule: "r", Key: header[:10], Quota: core.Quota{Limit: 9, Window: day}, Cost: 1})
	f.fail(nil)
	s.payNext()
	require.Len(t, s.debts.receipts, 1)
	for who, list := range s.debts.receipts {
		assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(who.key))
		assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(list[0].Key))
	}
	now.Add(paidFor + sec)
	s.debts.forget(now.Load())
	assert.Empty(t, s.debts.receipts)
}

// TestPayersAreFew has many requests come at once after an outage, each on a bucket that owes. Few
// pay, the store decides all the same, and what it must compare with the memory first is local.
func TestPayersAreFew(t *testing.T) {
	s, f, now := guarded(1, sec)
	take := func(i int) core.Mode {
		d := storetest.MustTake(t, s, core.Charge{Rule: "r", Key: fmt.Sprint(i), Cost: 1,
			Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 10, Window: sec, Burst: 10}})
		require.True(t, d.Allowed)
		return d.Mode
	}
	const keys, raised = 3 * maxPayers, 3*maxPayers - 1
	f.fail(errAway)
	for i := range keys {
		require.Equal(t, core.ModeLocal, take(i))
	}
	f.fail(nil)
	now.Add(firstWait)
	require.Equal(t, core.ModeExact, take(keys))
	s.debts.mu.Lock()
	for _, d := range s.debts.keys {
		if d.key == fmt.Sprint(raised) {
			d.raiseBy(d.charge)
		}
	}
	s.debts.mu.Unlock()

	var modes []core.Mode
	next, most := 0, 0
	f.first = func() { // the next request comes while the store is asked for this one
		paying := 0
		for _, d := range s.debts.keys {
			if d.paying {
				paying++
			}
		}
		most = max(most, paying)
		if next++; next < keys {
			modes = append(modes, take(next))
		}
	}
	require.Equal(t, core.ModeExact, take(0))
	f.first = nil
	require.Equal(t, maxPayers, most)
	for i, mode := range modes { // the last comes first
		require.Equal(t, i == 0, mode == core.ModeLocal, i)
	}
	for range keys {
		s.payNext()
		now.Add(sec / 100)
	}
	require.Zero(t, s.debts.count.Load())
}

// TestChargedBeforePaying has a bucket that owes charged for longer than it takes to fill, since too
// many others pay. Then it still owes all that it has not refilled.
func TestChargedBeforePaying(t *testing.T) {
	for _, q := range []core.Quota{
		{Algorithm: core.TokenBucket, Limit: 10, Window: sec, Burst: 10}, {Algorithm: core.TokenBucket, Limit: 9, Window: sec, Burst: 6},
		{Algorithm: core.LeakyBucket, Limit: 10, Window: sec, Burst: 10}, {Algorithm: core.Queue, Limit: 10, Window: sec, Burst: 10},
	} {
		s, f, now := guarded(1, 1000*sec)
		var times []int64
		take := func() (allowed bool) {
			d := storetest.MustTake(t, s, core.Charge{Rule: "r", Key: "k", Quota: q, Cost: 1})
			if d.Allowed {
				times = append(times, now.Load())
			}
			return d.Allowed
		}
		f.fail(errAway)
		for take() {
		}
		f.fail(nil)
		now.Add(firstWait)
		storetest.MustTake(t, s, core.Charge{Rule: "r", Key: "other", Quota: q, Cost: 1})
		s.debts.payers.Add(maxPayers)
		for range 300 {
			now.Add(sec / 100)
			take()
		}
		s.debts.payers.Add(-maxPayers)
		for _, d := range s.debts.keys {
			owed := (&payment{charge: d.charge, owes: q, cells: d.cells}).asks(now.Load())[0].Charges[0]
			assert.LessOrEqual(t, owed.Cost, q.Burst+1, "it does not grow")
			assert.EqualValues(t, now.Load()-1000*sec, owed.Since, "a reset since then cancels it")
		}
		for range 2 * q.Burst {
			take()
		}
		assert.LessOrEqual(t, excess(q, times, 1), 0.0, q.Algorithm)
		assert.Zero(t, s.debts.count.Load())
	}
}
