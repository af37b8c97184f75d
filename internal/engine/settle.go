package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// SettleTimeout bounds what a request waits for after its response, or after its client has
// disconnected. It is a variable for tests on busy machines.
var SettleTimeout = time.Second

// settling returns the context of a call that outlives the request: a memory store, which
// answers at once, needs none.
func (e *Engine) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.InMemory {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), SettleTimeout)
}

// taken is what an admitted request took and may give back. Copies of its decision share
// it.
type taken struct {
	engine   *Engine
	ended    atomic.Bool // settled or given back
	repeats  bool        // whether what is held was taken by another request, which may still use it
	reserved bool        // whether it is counted as a reservation
	slot     time.Time   // when the slot of a queue comes, if the decision has a Delay
	lease    *lease      // which extends the hold, or nil

	mu    sync.Mutex // of units, while they grow: see Use
	units []unit
}

// A unit is what one rule took, other than leases.
type unit struct {
	rule    int
	watches bool // whether the rule decided beside the others
	held    bool // whether it is held under the id of taken.lease
	core.Return

	used  int64         // what the request has said that it used so far
	said  bool          // whether it has said so
	short bool          // whether the rule only watches, and lacks what was used
	later []core.Return // what the rule took beside Return since
	owed  int64         // what it took above the limit since, and does not give back
}

// total returns how many units the rule has taken.
func (u *unit) total() int64 {
	n := u.Cost + u.owed
	for i := range u.later {
		n += u.later[i].Cost
	}
	return n
}

// less adds what gives back so many units to a list, those that were taken last first.
func (u *unit) less(n int64, to *ruled[core.Return]) {
	for i := len(u.later) - 1; i >= -1 && n > 0; i-- {
		r := u.Return
		if i >= 0 {
			r = u.later[i]
		}
		r.Cost = min(r.Cost, n)
		if n -= r.Cost; r.Cost > 0 {
			to.add(u.rule, r)
		}
	}
}

// ruled is a list for the store, with the rule that each is of.
type ruled[T any] struct {
	list  []T
	rules []int
}

func (r *ruled[T]) add(rule int, x T) { r.list, r.rules = append(r.list, x), append(r.rules, rule) }

// keep remembers what an admitted request took, and when its slot comes.
func (r *Run) keep() error {
	if d := &r.result; d.Allowed {
		d.taken = r.newTaken()
		d.taken.slot = time.Now().Add(core.Duration(d.Delay))
	}
	return nil
}

func (r *Run) newTaken() *taken {
	t := &taken{engine: r.plan.engine, repeats: r.repeats(), units: make([]unit, 0, len(r.Charges))}
	for u := range r.took {
		t.units = append(t.units, u)
	}
	if r.held != nil {
		r.extend(t)
	}
	return t
}

// repeats reports whether the store knew what the run is to hold.
func (r *Run) repeats() bool { return r.held != nil && r.held.Found == core.HoldLives }

// took ranges over what the run took.
func (r *Run) took(yield func(unit) bool) {
	for i, c := range r.asks[0].Charges {
		u := unit{rule: int(r.rules[i]), Return: r.asks[0].Decision.Return(i, c)}
		if r.repeats() && c.Quota.Holds() { // the first request took it, at a time that the store knows
			u.Cost, u.At = r.held.Units[i], 0
		}
		if !c.Quota.Leases() && !yield(u) {
			return
		}
	}
	for i := range r.asks[1:] {
		if a := &r.asks[1+i]; a.Decision.Allowed && !yield(unit{rule: int(r.watches[i]), watches: true, Return: a.Decision.Return(0, a.Charges[0])}) {
			return
		}
	}
}

// Keep makes an admitted decision a reservation: it can be settled, and is counted until
// it is.
func (r *Run) Keep(d *Decision) {
	if !d.Allowed {
		return
	}
	if d.taken == nil {
		d.taken = r.newTaken()
	}
	d.taken.reserved = true
	r.plan.engine.reserved.Add(1)
}

// Alike reports whether all rules of a request that can be settled took as many units, apart
// from bans, values, and rules that only watch.
func (d *Decision) Alike() bool {
	cost := int64(-1)
	for i := range d.taken.units {
		u := &d.taken.units[i]
		if u.watches || !u.Quota.Spends() {
			continue
		}
		if cost >= 0 && u.Cost != cost {
			return false
		}
		cost = u.Cost
	}
	return true
}

// Settles reports whether the request can still be settled.
func (d *Decision) Settles() bool { return d.taken != nil && !d.taken.ended.Load() }

// begin reports whether the caller is the one that may settle t.
func (t *taken) begin() bool {
	first := t.ended.CompareAndSwap(false, true)
	if first && t.reserved {
		t.engine.settled.Add(1)
	}
	if first && t.lease != nil {
		t.lease.release()
	}
	return first
}

// rest ends t, which has given back its units, but for what is left of them: that may still be
// settled.
func (t *taken) rest() {
	t.ended.Store(false)
	if len(t.units) == 0 {
		t.begin()
	}
}

// Settle corrects what the request took to what cost returns for each rule and its charge. A lower
// cost refunds the rest; a higher one takes what there is room for, or, as far as the rule has
// debts, what it is. It returns how many units of each rule are beyond its debts, if it has them,
// and an error that wraps [ErrSettled] if there is nothing to settle, or it has been. One that wraps
// [ErrUndecided] means that the store failed. If the request ends with that, it is released too, in
// the call that settles a hold.
func (d *Decision) Settle(ctx context.Context, ends bool, cost func(rule int, charged int64) int64) (forgiven [core.MaxCharges]int64, err error) {
	var leases *lease
	if ends {
		if leases = d.lease; d.taken == nil || d.taken.lease == nil {
			d.Release()
		}
		defer d.Release()
	}
	switch {
	case d.taken == nil:
		return forgiven, errNothing
	case !d.taken.begin():
		return forgiven, errEnded
	}
	ctx, cancel := d.taken.engine.settling(ctx) // it is settled once, and a client may have hung up
	defer cancel()
	done, err := d.taken.settle(ctx, leases, d.taken.units, cost)
	return done.forgiven, err
}

// A settled is what came of a settlement.
type settled struct {
	given    [core.MaxCharges]int64 // units that each rule got back
	forgiven [core.MaxCharges]int64 // units of each rule beyond its debts, if it has them
	later    *later                 // what settles those that are held, if the store has not answered
	repeated bool                   // another decision on the request has settled it
}

// settle settles units. Leases, which may be nil, end in the call that settles what is held.
func (t *taken) settle(ctx context.Context, leases *lease, units []unit, cost func(rule int, charged int64) int64) (done settled, err error) {
	t.mu.Lock() // a Use may still be asking
	defer t.mu.Unlock()
	var heldErr error // ErrSettled, if what is held has been settled, or why the store did not answer
	var held ruled[core.Settlement]
	var less ruled[core.Return]
	var more []growth
	var owed []debt
	for i := range units {
		u := &units[i]
		charged := u.total()
		switch n := cost(u.rule, charged); {
		case u.held:
			extra := charged - u.Cost
			back := min(max(0, charged-n), extra)
			u.less(back, &less) // what it took later is not held
			held.add(u.rule, core.Settlement{Return: u.Return, Hold: *t.lease.hold, Used: min(max(0, n-extra+back), core.MaxCost), Forget: t.lease.unnamed})
		case n < charged:
			u.less(charged-n, &less)
		case n > charged && u.MaxDebt == 0:
			more = append(more, growth{unit: u, units: n - charged})
		case n > charged:
			owed = append(owed, debt{unit: u, units: n - charged})
		}
	}
	if held.list != nil {
		heldErr = t.settleHeld(ctx, leases, &held, &done)
	}
	if done.repeated { // also what is not held: what this decision took of that counts twice
		less, more, owed = ruled[core.Return]{}, nil, nil
		for i := range units {
			if u := &units[i]; u.Quota.Holds() {
				held := int64(0)
				if u.held {
					held = u.Cost
				}
				u.less(u.total()-u.owed-held, &less)
			}
		}
	}
	err = t.owe(ctx, owed)
	for _, d := range owed {
		if !d.watches {
			done.forgiven[d.rule] += d.forgiven
		}
	}
	for _, n := range done.forgiven {
		if n > 0 {
			t.engine.Forgiven.Add(n)
		}
	}
	err = errors.Join(t.takeMore(ctx, more), err)
	for some := range slices.Chunk(less.list, core.MaxCharges) {
		back, problem := t.engine.Store.Return(ctx, some)
		for i := range back {
			done.given[less.rules[i]] += back[i].Units
			t.engine.Refilled(&some[i].Charge)
		}
		less.rules = less.rules[len(some):]
		err = errors.Join(err, problem)
	}
	if err != nil {
		return done, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	return done, heldErr
}

// A debt is units that a rule takes above its limit, as far as its MaxDebt allows.
type debt struct {
	*unit
	units    int64
	forgiven int64 // what it does not allow
}

// owe takes debts.
func (t *taken) owe(ctx context.Context, debts []debt) error {
	if len(debts) == 0 {
		return nil
	}
	asks := make([]core.Ask, len(debts))
	for i := range debts {
		c := debts[i].Charge
		c.Cost, c.Reserve, c.Debt = debts[i].units, 0, true
		asks[i].Charges = []core.Charge{c}
	}
	if err := t.engine.Store.Take(ctx, asks); err != nil {
		return err
	}
	for i := range debts {
		d := &debts[i]
		d.forgiven = asks[i].Decision.Forgiven
		d.owed += d.units - d.forgiven
	}
	return nil
}

// A growth is more units of a rule.
type growth struct {
	*unit
	units   int64
	outcome core.Outcome // of the last ask, if the rule did not have them
}

// takeMore takes as much of each growth as there is room for. It asks for all at once, and
// again, for less, for those that did not fit.
func (t *taken) takeMore(ctx context.Context, list []growth) error {
	for try := 0; try < mostTries && len(list) > 0; try++ {
		short, err := t.grow(ctx, list)
		if err != nil {
			return err
		}
		list = list[:0:0]
		for _, g := range short {
			if g.units = min(g.units-1, g.outcome.Remaining-g.Reserve); g.units > 0 {
				list = append(list, g)
			}
		}
	}
	return nil
}

// grow takes all units of each growth, or none of it, and returns those without room.
func (t *taken) grow(ctx context.Context, list []growth) (short []growth, err error) {
	asks := make([]core.Ask, len(list))
	for i, g := range list {
		c := g.Charge
		c.Cost = g.units
		asks[i].Charges = []core.Charge{c}
	}
	if err := t.engine.Store.Take(ctx, asks); err != nil {
		return nil, err
	}
	for i, g := range list {
		if d := &asks[i].Decision; d.Allowed {
			g.later = append(g.later, d.Return(0, asks[i].Charges[0]))
		} else {
			g.outcome = d.Outcomes()[0]
			short = append(short, g)
		}
	}
	return short, nil
}

// giveBack gives back what was taken, whatever context has ended, and returns how much
// that is for each rule. The request is refused after all, so what rules took that
// watched stays taken.
func (t *taken) giveBack() (given [core.MaxCharges]int64) {
	if t == nil || !t.begin() {
		return given
	}
	ctx, cancel := t.engine.settling(context.Background())
	defer cancel()
	units := slices.DeleteFunc(slices.Clone(t.units), func(u unit) bool { return u.watches || u.held && t.repeats })
	done, _ := t.settle(ctx, nil, units, func(int, int64) int64 { return 0 }) // otherwise it stays taken
	return done.given
}
