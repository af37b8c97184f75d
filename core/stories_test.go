package core

import (
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// The kinds of a life: on a clock that goes forward, on one that also steps
// back, and of a quota that is changed.
const (
	forward = iota
	stepsBack
	changes
	kinds
)

// A life is a random story of one key of any algorithm but the log's.
type life struct {
	*testing.T
	random *rand.Rand
	kind   int
	q      Quota
	now    int64
	state  State
	last   Decision // the decision before

	plain   plain // for lives of kind forward
	quiet   State // met only what took something
	took    []taken
	turns   []int64 // in a queue
	ones    bool    // whether all costs are 0 or 1
	moved   int64   // how far the clock went forward since the first unit
	before  int64   // Used, at the decision before
	changed bool
	ever    int64 // the longest that a queue of any of its quotas may be
}

var zones = []string{"UTC", "Europe/Berlin", "Asia/Kathmandu"}

// someQuota returns a quota at the edges of what an algorithm may have.
func someQuota(t *testing.T, random *rand.Rand, a Algorithm) Quota {
	pick := func(numbers ...int64) int64 { return numbers[random.IntN(len(numbers))] }
	const second, month = 1_000_000, 30 * 24 * 3600 * 1_000_000
	q := Quota{Algorithm: a, Limit: 1 + random.Int64N(9), Window: pick(MinWindow, 1_009, 10_000, second, 86_399_999_981)}
	switch random.IntN(6) {
	case 0:
		q.Limit = pick(1, 7, 100, 999_999_937, MaxLimit)
		q.Window = pick(MinWindow, second, month, MaxWindow)
	case 1:
		q.Limit, q.Window = 1, month
	case 2: // one a nanosecond, and a thousand
		q.Limit, q.Window = 1_000_000_000, pick(second, MinWindow)
	}
	q.Limit = min(q.Limit, a.row().maxLimit)
	most := int64(MaxLimit)
	if fills := new(big.Rat).Mul(big.NewRat(MaxFill, q.Window), big.NewRat(q.Limit, 1)); fills.Cmp(big.NewRat(most, 1)) < 0 {
		most = floor(fills)
	}
	fields := a.Fields()
	switch choice := random.IntN(3); {
	case choice == 0 && fields.Has(FieldAligned):
		q.Aligned = true
	case choice == 1 && fields.Has(FieldCalendar):
		q.Calendar = Calendar{CalendarUnit(1 + random.IntN(4)), zone(t, zones[random.IntN(len(zones))])}
	}
	if fields.Has(FieldCells) {
		q.Cells = pick(2, 3, 10, 59, MaxCells)
	}
	if fields.Has(FieldBurst) {
		q.Burst = max(a.row().minBurst, min(most, pick(0, 1, 2, 5, 10, q.Limit, 1_000_000_000, MaxLimit)))
	}
	if fields.Has(FieldMissing) && random.IntN(2) == 0 {
		q.Missing = pick(1, q.Burst, (q.Burst+1)/2)
	}
	if fields.Has(FieldMaxWait) {
		q.MaxWait = min(MaxWindow, pick(0, 0, 1, q.Window, 3*q.Window))
	}
	if fields.Has(FieldBar) {
		q.Bar = pick(MinWindow, 1_009, second, month, MaxWindow)
		q.MaxBar = pick(0, q.Bar, min(MaxWindow, 5*q.Bar), MaxWindow)
	}
	if err := q.Validate(); err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return q
}

func (l *life) step() int64 {
	each, _ := MulDiv(1, l.q.Window, l.q.Limit)
	o := Outcome{}
	if l.last.n > 0 {
		o = l.last.Outcomes()[0]
	}
	back := int64(0)
	if l.kind == stepsBack {
		back = 1 + l.random.Int64N(3*l.q.Window)
	}
	steps := []int64{0, 0, 1, each, each + 1, l.q.Window - 1, l.q.Window, max(0, o.RetryAfter), max(1, o.RetryAfter) - 1,
		o.MoreAfter, o.ResetAfter, max(1, o.ResetAfter) - 1, l.random.Int64N(1 + each), l.random.Int64N(l.q.Window),
		l.random.Int64N(3 * l.q.Window), -back, -back / 20}
	if l.random.IntN(100) == 0 {
		return 10 * 366 * 24 * 3600 * 1_000_000 // ten years of nobody
	}
	return steps[l.random.IntN(len(steps))]
}

func (l *life) cost() int64 {
	capacity := l.q.Capacity()
	costs := []int64{1, 1, 1, 1, 0}
	if !l.ones {
		costs = append(costs, capacity, capacity+1, 1+l.random.Int64N(capacity), max(0, l.state.Clone().Advance(&l.q, l.now)))
	}
	return costs[l.random.IntN(len(costs))]
}

// decide makes a decision and tells whether it is right.
func (l *life) decide(cost int64) {
	roomBefore := l.roomAt(l.now)
	c := Charge{Quota: l.q, Cost: cost}
	if cost > 0 && l.random.IntN(6) == 0 {
		c.Reserve = 1 + l.random.Int64N(min(4, l.q.Capacity()))
	}
	needs := cost + c.Reserve
	charges := []Charge{c}
	d := Decide(l.now, charges, []State{l.state})
	l.last = d
	o := d.Outcomes()[0]
	fits := cost == 0 || needs <= roomBefore
	if d.Allowed != fits || o.Fits() != fits {
		l.fail("%d and a reserve of %d of a room of %d: allowed is %v, and the outcome %+v", cost, c.Reserve, roomBefore, d.Allowed, o)
	}
	if l.quiet != nil {
		l.compareQuiet(charges, d)
	}
	if l.plain != nil {
		l.comparePlain(cost, needs, d)
	}
	l.truthful("the state itself", needs, o, l.roomAt)
	if fits && cost > 0 {
		l.took = append(l.took, taken{l.now, cost})
		l.turns = append(l.turns, l.now+d.Delay)
	}
	l.before = l.state.Used()
}

// roomAt probes a copy of the state.
func (l *life) roomAt(at int64) int64 { return l.state.Clone().Advance(&l.q, at) }

// compareQuiet tells that what takes nothing leaves no trace: a state without it
// decides alike. (A bucket that begins with tokens missing is begun by a refusal.)
func (l *life) compareQuiet(charges []Charge, got Decision) {
	alike := l.quiet.Clone()
	if want := Decide(l.now, charges, []State{alike}); !sameDecision(got, want) || got.Delay != want.Delay {
		l.fail("with what took nothing:\n%+v\nand without:\n%+v", got, want)
	}
	if got.Allowed && charges[0].Cost > 0 || l.q.Missing > 0 {
		l.quiet = alike
	}
}

func (l *life) comparePlain(cost, needs int64, d Decision) {
	room := l.plain.room(l.now)
	o := d.Outcomes()[0]
	if want := cost == 0 || room >= needs; d.Allowed != want {
		l.fail("by definition taken is %v: %d of %d", want, needs, room)
	}
	if cells, ok := l.plain.(*plainCells); ok && o.RetryAfter > 0 {
		exact := cells.exactRetry(l.now, needs)
		if longer := o.RetryAfter - exact; longer < 0 || longer > cells.length()+l.q.Cells {
			l.fail("waits %d, and for the exact window %d", o.RetryAfter, exact)
		}
	}
	if line, ok := l.plain.(*plainLine); ok && d.Allowed && cost > 0 && d.Delay != line.delay(l.now) {
		l.fail("the turn comes after %d, by definition after %d", d.Delay, line.delay(l.now))
	}
	if bucket, ok := l.plain.(*plainBucket); ok && cost > 0 && !d.Allowed {
		bucket.refuse(l.now)
	}
	if d.Allowed && cost > 0 {
		l.plain.take(l.now, cost)
	}
	if left := max(0, l.plain.room(l.now)); o.Remaining != left {
		l.fail("by definition %d remain, not %d", left, o.Remaining)
	}
	l.truthful("the definition", needs, o, l.plain.room)
}

// truthful tells that what an outcome promises for later holds then, and not a
// microsecond before.
func (l *life) truthful(source string, needs int64, o Outcome, room func(at int64) int64) {
	capacity := l.q.Capacity()
	first := func(what string, after int64, holds func(at int64) bool) {
		if after < 0 || !holds(l.now+after) || after > 0 && holds(l.now+after-1) {
			l.fail("%s: %s is not true after %d: %+v", source, what, after, o)
		}
	}
	if needs > capacity {
		if o.RetryAfter != Never {
			l.fail("can never fit: %+v", o)
		}
	} else {
		first("retry", o.RetryAfter, func(at int64) bool { return o.Fits() || room(at) >= needs })
	}
	if bucket, ok := l.state.(*bucketState); ok && bucket.isNew && needs == 0 {
		return // it does not refill before it is charged
	}
	whole := func(at int64) bool { return room(at) >= capacity }
	first("reset", o.ResetAfter, whole)
	if o.Fits() && !whole(l.now) {
		first("more", o.MoreAfter, func(at int64) bool { return room(at) > o.Remaining })
	} else if o.MoreAfter != 0 {
		l.fail("more after %d", o.MoreAfter)
	}
}

func (l *life) fail(format string, args ...any) {
	l.Helper()
	l.Fatalf("at %d, %+v\ntaken %v\n"+format, append([]any{l.now, l.q, l.took}, args...)...)
}

// stories is how many lives each algorithm has.
func stories(otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_SCHEDULES")); err == nil {
		return n
	}
	switch {
	case race.Enabled:
		return otherwise / 10
	case testing.Short():
		return otherwise / 4
	}
	return otherwise
}

// algorithmsBut returns the algorithms whose decisions do not depend on ids or on
// other charges, without those that a test leaves out.
func algorithmsBut(except ...Algorithm) (list []Algorithm) {
	for _, a := range Algorithms() {
		if !a.row().identified && !a.row().bars && !slices.Contains(except, a) {
			list = append(list, a)
		}
	}
	return list
}

// TestAlgorithmsAgainstDefinitions lives random lives of every algorithm. One
// without a definition in newPlain is held to what all of them promise.
func TestAlgorithmsAgainstDefinitions(t *testing.T) {
	race.Skip(t)
	for _, a := range algorithmsBut(SlidingLog) {
		t.Run(a.String(), func(t *testing.T) {
			n, decisions := stories(1_000), 0
			for i := range n {
				random := rand.New(rand.NewPCG(uint64(a), uint64(i)))
				l := &life{T: t, random: random, kind: i % kinds, q: someQuota(t, random, a), state: NewState(a)}
				l.now = time.Date(2025, 3, 30, 0, 58, 0, 0, time.UTC).UnixMicro() + random.Int64N(3_600_000_000)
				l.ones = random.IntN(3) == 0
				l.run(40)
				decisions += 40
			}
			t.Logf("%d lives, %d decisions", n, decisions)
		})
	}
}
