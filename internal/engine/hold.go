package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// Hold has what the run takes held under a name for a time, in µs, which is extended until it is
// settled. A request without a name gets one that no other has. The engine must have a Holder,
// and the charges their keys, which label says what they are of: one name of another policy, or with
// other keys, is another hold, though rules of both may share a key.
func (r *Run) Hold(policy, name string, life int64, label func(rule int) string) {
	if r.unnamed = name == ""; r.unnamed {
		name = rand.Text()
	}
	keys := make([]string, 0, len(r.Charges))
	for i := range r.Charges {
		if key := r.Charges[i].Key; key != "" && !r.unnamed {
			keys = append(keys, label(i)+"\x00"+key)
		}
	}
	slices.Sort(keys) // so that a new rule with a known key changes nothing
	r.plan.holds.Store(true)
	r.held = &core.Hold{ID: core.HoldIDOf(fmt.Sprintf("%q %q %q", policy, name, slices.Compact(keys))), Life: life}
}

// Holds reports whether the store, which must be a Holder, can hold what rules take together.
func (e *Engine) Holds(rules []Rule) bool {
	charges := make([]core.Charge, len(rules))
	for i := range rules {
		charges[i] = rules[i].Charge
	}
	return e.Holder.Holds(charges)
}

// hold has the store decide the first ask, and hold what it takes. What other holds left on its
// keys is given back; where that helps a refused request, it is decided once more.
func (r *Run) hold(asks []core.Ask) error {
	e, h := r.plan.engine, r.held
	if len(r.asks[0].Charges) == 0 { // all rules watch, or exempt the caller
		h.Found = core.HoldRefused
		return e.Store.Take(r.calling, asks)
	}
	h.Kept = 0
	for i, rule := range r.rules {
		if r.plan.rules[rule].Keeps {
			h.Kept |= 1 << i
		}
	}
	for try := 0; ; try++ {
		err := e.Holder.Hold(r.calling, &asks[0], h)
		if err != nil {
			return err
		}
		if r.endHolds(h.Over) == 0 || asks[0].Decision.Allowed || try == 1 || r.bars() {
			break
		}
	}
	if h.Found == core.HoldSettled {
		return errEnded
	}
	for i := range asks[1:] {
		if c := &asks[1+i].Charges[0]; h.Found == core.HoldLives && c.Quota.Holds() { // it has counted the first request
			c.Cost = 0
		}
	}
	if len(asks) > 1 {
		return e.Store.Take(r.calling, asks[1:])
	}
	return nil
}

// lookEvery is how often a plan looks at most for holds that have ended on keys with one hash: each
// look is a call. Many keys have one, so that a flood of keys costs few looks.
const lookEvery = 500 * time.Millisecond

// A looks counts in turns of lookEvery since epoch, and keeps the last turn in which a plan looked,
// by the hash of the keys and the turn: keys that share a hash in one turn do not in the next, so
// none of them can keep another from looking. Clients do not know which keys share one.
type looks [64]atomic.Int64

var lookSeed = maphash.MakeSeed()

// mayLook reports whether to look for holds that have ended on the keys of charges.
func (l *looks) mayLook(charges []core.Charge) bool {
	turn := int64(time.Since(epoch)/lookEvery) + 1
	var h maphash.Hash
	h.SetSeed(lookSeed)
	maphash.WriteComparable(&h, turn)
	for i := range charges {
		_, _ = h.WriteString(charges[i].Key)
	}
	return l[h.Sum64()%uint64(len(l))].Swap(turn) != turn
}

// freed reports whether the store has refused a request whose keys then got back what others had
// held that died. The store looks for that only where something is held, so it is asked to hold
// nothing.
func (r *Run) freed() bool {
	d := &r.asks[0].Decision
	if d.Allowed || d.Mode != core.ModeExact || r.bars() || // or it was refused without the store, or from memory
		slices.ContainsFunc(d.Outcomes(), func(o core.Outcome) bool { return o.RetryAfter == core.Never }) ||
		!r.plan.looks.mayLook(r.asks[0].Charges) {
		return false
	}
	var ask core.Ask
	for i := range r.asks[0].Charges {
		if c := r.asks[0].Charges[i]; c.Quota.Holds() {
			c.Cost = 0
			ask.Charges = append(ask.Charges, c)
		}
	}
	if len(ask.Charges) == 0 {
		return false
	}
	h := core.Hold{Life: core.MinHold}
	return r.plan.engine.Holder.Hold(r.calling, &ask, &h) == nil && r.endHolds(h.Over) > 0
}

// bars reports whether a rule of the request is a ban, which counts each refusal: it must not be
// decided twice.
func (r *Run) bars() bool {
	return slices.ContainsFunc(r.asks[0].Charges, func(c core.Charge) bool { return c.Quota.Bars() })
}

// endHolds gives back what holds took that have ended, and returns how many did. Others end what
// it cannot.
func (r *Run) endHolds(over []core.Settlement) int {
	e := r.plan.engine
	ids := make(map[core.HoldID]bool)
	for some := range slices.Chunk(over, core.MaxCharges) {
		done, err := e.Holder.Settle(r.calling, some)
		if err != nil {
			break
		}
		for i := range done {
			if done[i].Found == core.HoldLives {
				ids[some[i].Hold] = true
				e.Refilled(&some[i].Charge)
			}
		}
	}
	e.Ended.Add(int64(len(ids)))
	r.Ended += len(ids)
	return len(ids)
}

// extend has the hold of an admitted request extended until t is settled. What the store could not
// hold is a reservation without a hold.
func (r *Run) extend(t *taken) {
	h := r.held
	kept := h.Found == core.HoldLives || h.Found == core.HoldUnknown && r.asks[0].Decision.Mode == core.ModeExact
	l := &lease{engine: t.engine, renewals: &r.plan.renewals, window: core.Duration(h.Life), hold: &h.ID, unnamed: r.unnamed,
		renewed: time.Now(), lost: make(chan struct{})}
	for i := range t.units {
		u := &t.units[i]
		if !u.watches && u.Cost > 0 && u.Quota.Holds() {
			u.held = kept
			l.charges = append(l.charges, u.Charge)
		}
	}
	switch {
	case len(l.charges) == 0:
	case kept:
		t.lease = l
		l.renewals.add(l)
	default:
		r.Unheld = true
		t.engine.Unheld.Add(1)
	}
}

// settleHeld settles what is held, and adds what came of it to sum. The error wraps [ErrSettled] if
// another process has settled it. What the store does not answer is repeated, at last in the
// background: the call before may have done it. Leases, which may be nil, are released with it, or
// apart from it if it fails.
func (t *taken) settleHeld(ctx context.Context, leases *lease, held *ruled[core.Settlement], sum *settled) error {
	list := held.list
	released := false
	if charges, first := leases.stop(); first {
		list[0].Leases = charges
		defer func() { leases.finish(charges, released) }()
	}
	done, err := t.engine.Holder.Settle(ctx, list)
	if err != nil {
		for i := range list {
			list[i].Tag = 0 // it is repeated, and a guard has counted it
		}
	}
	again := errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil
	if again {
		done, err = t.engine.Holder.Settle(ctx, list)
	}
	list[0].Leases, released = nil, err == nil
	if !again && err == nil && !slices.ContainsFunc(done, func(s core.Settled) bool { return s.Found == core.HoldLives || s.Found == core.HoldEnded }) {
		sum.repeated = slices.ContainsFunc(done, func(s core.Settled) bool { return s.Found == core.HoldSettled })
		return errEnded
	}
	if err != nil {
		sum.later = &later{list: list, until: time.Now().Add(t.lease.window + core.Duration(core.HoldMemory))}
		t.engine.settleLater(sum.later, time.Second)
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	for i := range done {
		if list[i].MaxDebt > 0 {
			sum.forgiven[held.rules[i]] += done[i].Forgiven
		}
		back := done[i].Given
		if again && done[i].Found != core.HoldLives && done[i].Found != core.HoldEnded {
			back = max(0, list[i].Cost-list[i].Used)
		}
		sum.given[held.rules[i]] += back
		if back > 0 {
			t.engine.Refilled(&list[i].Charge)
		}
	}
	return nil
}

// A later is a settlement that is repeated until the store answers, or has forgotten the hold.
type later struct {
	list  []core.Settlement
	until time.Time

	mu    sync.Mutex
	ended bool
	debts []core.Charge // to take then: before, the store would count them beside what is held
}

// owe has l take debts at its end. It reports whether that has been.
func (l *later) owe(debts []core.Charge) (ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debts = debts
	return l.ended
}

func (l *later) end() (debts []core.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	return l.debts
}

func (e *Engine) settleLater(l *later, wait time.Duration) {
	time.AfterFunc(wait, func() {
		defer func() { _ = recover() }() // of a store: here it would end the program
		ctx, cancel := e.settling(context.Background())
		defer cancel()
		if _, err := e.Holder.Settle(ctx, l.list); err != nil && time.Now().Before(l.until) {
			e.settleLater(l, min(2*wait, time.Minute))
		} else if debts := l.end(); len(debts) > 0 {
			ctx, cancel := e.settling(context.Background())
			defer cancel()
			_, _ = core.Take(ctx, e.Store, debts) // a guard takes them also while the store is unavailable
		}
	})
}
