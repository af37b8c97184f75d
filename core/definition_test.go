package core

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// A definition is the sliding window as it is defined: a list of the times of
// all units, gone through anew for each question. [Log] must agree with it.
type definition struct {
	units []int64
	kept  Quota // the longest window and the largest limit of those that took units
}

// isNew reports whether the key is new again at a time.
func (d *definition) isNew(at int64) bool {
	return len(d.units) == 0 || at-slices.Max(d.units) >= d.kept.Window
}

// count returns how many units count at a time.
func (d *definition) count(q Quota, at int64) int64 {
	if d.isNew(at) {
		return 0
	}
	var n int64
	for _, t := range d.units {
		if at-t < q.Window {
			n++
		}
	}
	return n
}

// forget drops the units that count for no quota.
func (d *definition) forget(q Quota, now int64) {
	if d.isNew(now) {
		*d = definition{}
	}
	d.kept.Window, d.kept.Limit = max(d.kept.Window, q.Window), max(d.kept.Limit, q.Limit)
	d.units = slices.DeleteFunc(d.units, func(t int64) bool { return now-t >= d.kept.Window })
}

// redate dates units ahead of now now.
func (d *definition) redate(q Quota, now int64) {
	redated := false
	for i, t := range d.units {
		if t > now {
			d.units[i], redated = now, true
		}
	}
	if redated {
		d.forget(q, now)
	}
}

// until returns how long until something holds. Nothing changes but when a unit
// leaves the window.
func (d *definition) until(q Quota, now int64, holds func(at int64) bool) int64 {
	waits := []int64{0}
	if len(d.units) > 0 && !d.isNew(now) {
		waits = append(waits, slices.Max(d.units)+d.kept.Window-now)
	}
	for _, t := range d.units {
		if wait := t + q.Window - now; wait > 0 {
			waits = append(waits, wait)
		}
	}
	slices.Sort(waits)
	for _, wait := range waits {
		if holds(now + wait) {
			return wait
		}
	}
	return Never
}

func (d *definition) decide(q Quota, cost, reserve, now int64) Outcome {
	d.redate(q, now)
	var o Outcome
	o.RetryAfter = d.until(q, now, func(at int64) bool { return cost == 0 || d.count(q, at)+cost+reserve <= q.Limit })
	fits := o.Fits()
	if fits && cost > 0 {
		d.forget(q, now)
		for range cost {
			d.units = append(d.units, now)
		}
		d.units = d.units[max(0, len(d.units)-int(d.kept.Limit)):]
	}
	remaining := func(at int64) int64 { return max(0, q.Limit-d.count(q, at)) }
	whole := func(at int64) bool { return d.count(q, at) == 0 }
	o.Remaining = remaining(now)
	o.ResetAfter = d.until(q, now, whole)
	if fits && !whole(now) {
		o.MoreAfter = d.until(q, now, func(at int64) bool { return remaining(at) > o.Remaining })
	}
	return o
}

// A story is a random life of one key. Its draw returns a number below n, and
// false at the end.
type story struct {
	draw     func(n int64) (int64, bool)
	stepBack bool // whether the clock may step back
	change   bool // whether the quota may change
}

// check compares a log with the definition, decision by decision, and returns
// how many there were.
func (s story) check(t *testing.T) int {
	draw := func(n int64) int64 { v, _ := s.draw(n); return v }
	q := Quota{Limit: 1 + draw(9), Window: MinWindow + draw(4)}
	now := int64(1_000_000)
	state, plain := []State{NewState(SlidingLog)}, &definition{}
	var admitted []int64
	for decisions := 0; ; decisions++ {
		action, more := s.draw(8)
		if !more {
			checkWindows(t, s, q, admitted)
			return decisions
		}
		switch step := draw(600); {
		case action == 0 && s.stepBack:
			now -= 3 * step
		case action == 1 && s.change:
			q.Limit = 1 + draw(9)
		case action == 2 && s.change:
			q.Window = MinWindow + draw(600)
		case action == 3:
			now += 4 * step
		case action == 4:
			now += q.Window - 2 + draw(4)
		case action > 4:
			now += step
		}
		cost := max(0, draw(q.Limit+4)-2)
		if cost > q.Limit+1 || draw(2) == 0 {
			cost = 1
		}
		reserve := max(0, draw(24)-20)
		want := plain.decide(q, cost, reserve, now)
		d := Decide(now, []Charge{{Quota: q, Cost: cost, Reserve: reserve}}, state)
		if got := d.Outcomes()[0]; got != want || d.Allowed != want.Fits() {
			t.Fatalf("decision %d, at %d, cost %d and reserve %d of %+v:\ngot  %+v\nwant %+v\nunits %v",
				decisions, now, cost, reserve, q, got, want, plain.units)
		}
		for range cost {
			if d.Allowed {
				admitted = append(admitted, now)
			}
		}
	}
}

// checkWindows tells that no window has more units than the limit: it is enough
// to look at those that end with a unit.
func checkWindows(t *testing.T, s story, q Quota, admitted []int64) {
	if s.stepBack || s.change {
		return
	}
	for i := range admitted {
		if first := i - int(q.Limit); first >= 0 && admitted[i]-admitted[first] < q.Window {
			t.Fatalf("%d units within %d: %v", q.Limit+1, q.Window, admitted[first:i+1])
		}
	}
}

func TestLogAgainstDefinition(t *testing.T) {
	n, decisions := stories(10_000), 0
	for i := range n {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		left := 300
		s := story{stepBack: i&1 != 0, change: i&2 != 0}
		s.draw = func(n int64) (int64, bool) { left--; return random.Int64N(n), left > 0 }
		decisions += s.check(t)
		if t.Failed() {
			t.Fatalf("story %d", i)
		}
	}
	t.Logf("%d stories, %d decisions", n, decisions)
}

func FuzzLog(f *testing.F) {
	f.Add([]byte{2, 0, 7, 0, 0, 0, 1, 0, 200, 0, 3, 0, 4, 0, 1, 2})
	f.Add([]byte("a clock that steps back never admits more"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := story{stepBack: true, change: true}
		if len(data) > 0 {
			s.stepBack, s.change = data[0]&1 != 0, data[0]&2 != 0
		}
		s.draw = func(n int64) (int64, bool) {
			if len(data) < 2 {
				return 0, false
			}
			v := int64(data[0])<<8 | int64(data[1])
			data = data[2:]
			return v % n, true
		}
		s.check(t)
	})
}

func TestLogExpires(t *testing.T) {
	q := Quota{Limit: 3, Window: 1_000}
	l := &Log{}
	if got := l.Expires(); got > 0 {
		t.Errorf("a new log expires at %d, want in the past", got)
	}
	l.Advance(&q, 5_000)
	l.Take(1, 0)
	l.Advance(&q, 5_400)
	l.Take(1, 0)
	if got := l.Expires(); got != 6_400 {
		t.Errorf("expires at %d, want 6400", got)
	}
	l.Advance(&q, 5_100) // the clock steps back
	if got := l.Expires(); got != 6_100 {
		t.Errorf("expires at %d after the clock stepped back, want 6100", got)
	}
}

// TestLogGrowth tests that a log takes the memory of what it holds, and never
// that of more than its limit.
func TestLogGrowth(t *testing.T) {
	q := Quota{Limit: 100, Window: 1_000}
	l := &Log{}
	for now := range int64(10_000) {
		if l.Advance(&q, now) >= 1 {
			l.Take(1, 0)
		}
		if held, room := int(l.size), int(max(1, l.room)); room > 2*held || room > 100 {
			t.Fatalf("room for %d times, of which there are %d", room, held)
		}
	}
	l.Advance(&q, 20_000)
	l.Take(q.Limit, 0)
	if room := l.room; room != 100 {
		t.Errorf("room for %d times, want 100", room)
	}
}

// TestDecideLeavesNoTrace tests that a decision that takes nothing can be left
// out, wherever the clock goes afterwards.
func TestDecideLeavesNoTrace(t *testing.T) {
	q := Quota{Limit: 3, Window: 1_000}
	history := func(between ...int64) []Decision {
		state := []State{NewState(SlidingLog)}
		var after []Decision
		for _, at := range []int64{10_000, 10_400, 10_800} {
			Decide(at, []Charge{{Quota: q, Cost: 1}}, state)
		}
		for _, at := range between {
			Decide(at, []Charge{{Quota: q, Cost: 0}}, state)
			Decide(at, []Charge{{Quota: q, Cost: 4}}, state)
		}
		for _, at := range []int64{10_900, 11_100, 11_500} {
			after = append(after, Decide(at, []Charge{{Quota: q, Cost: 1}}, state))
		}
		return after
	}
	want := history()
	if got := history(11_000, 11_399, 11_400, 11_799, 11_800, 99_999); !slices.EqualFunc(got, want, sameDecision) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func sameDecision(a, b Decision) bool {
	return a.Allowed == b.Allowed && a.At == b.At && slices.Equal(a.Outcomes(), b.Outcomes())
}

// TestDecideLogsAgain tests that a decision that was used before is as a new one, and that copies
// of it stay as they are.
func TestDecideLogsAgain(t *testing.T) {
	for _, n := range []int{1, 4, 5, MaxCharges} {
		charges, logs := make([]Charge, n), make([]*Log, n)
		for i := range charges {
			charges[i], logs[i] = Charge{Quota: Quota{Limit: 2, Window: 1_000}, Cost: 1}, new(Log)
		}
		used := NewDecision(7, n)
		used.SetTimeOf(n-1, 8)
		for now := range int64(3) {
			used.Delay, used.Forgiven, used.Tag = 1, 2, 3
			for i := range n {
				used.Outcomes()[i] = Outcome{Remaining: 4, RetryAfter: 5, MoreAfter: 6, ResetAfter: 7}
				used.SetOverflow(i, SharedQuota)
			}
			copied := used
			before := copied.Clone()
			var fresh Decision
			states := make([]State, n)
			for i := range logs {
				states[i] = logs[i].Clone()
			}
			fresh.Decide(10+now, charges, states)
			used.DecideLogs(10+now, charges, logs)
			if !reflect.DeepEqual(used, fresh) {
				t.Errorf("%d charges at %d: decided %+v, want %+v", n, now, used, fresh)
			}
			if !slices.Equal(copied.Outcomes(), before.Outcomes()) {
				t.Errorf("%d charges at %d: a copy has changed to %+v", n, now, copied.Outcomes())
			}
		}
	}
}
