package prefetch

import (
	"context"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
)

// A take is one call: a few asks, which it decides by permits as far as it can.
type take struct {
	store *Store
	ctx   context.Context
	asks  []core.Ask
	first [core.MaxCharges]uint8 // the slot of the first charge of each ask
	slots [core.MaxCharges]slot  // of the charges of all asks
}

// A slot is what stands behind a charge.
type slot struct {
	plan *plan // or nil
	pool *pool // or nil
	held permits
}

// of returns the slots of the charges of an ask.
func (t *take) of(i int) []slot { return t.slots[t.first[i]:][:len(t.asks[i].Charges)] }

// prefetched finds the plans and pools of the charges, and reports whether any has a
// plan. Where a charge of an ask has a reserve, is a debt, or is a ban, which counts each
// refusal, none of the ask has a pool: the store decides all of them, once.
func (t *take) prefetched() (found bool) {
	at := 0
	for i := range t.asks {
		charges := t.asks[i].Charges
		t.first[i] = uint8(at)
		extra := slices.ContainsFunc(charges, func(c core.Charge) bool { return c.Reserve > 0 || c.Debt || c.Quota.Bars() })
		for j := range charges {
			c, s := &charges[j], &t.slots[at]
			at++
			if r := t.store.rule(c); r != nil {
				s.plan = r.plan(&c.Quota, t.store.hold)
				found = true
				if !extra {
					s.pool = t.store.pool(r, s.plan, c)
				}
			}
		}
	}
	return found
}

// decide decides the asks for which permits suffice, and lets the store decide the
// charges of the others that have none.
func (t *take) decide() error {
	var goes, again [core.MaxCharges]bool // the asks that go to the store, and those that go twice
	for i := range t.asks {
		goes[i] = !t.local(i)
	}
	err := t.send(&goes)
	for i := range t.asks {
		again[i] = err == nil && goes[i] && !t.asks[i].Decision.Allowed && t.drain(i)
	}
	if err == nil {
		if err = t.send(&again); err != nil {
			t.undo(&goes, &again)
		}
	}
	for i := range t.asks {
		if err != nil || !t.asks[i].Decision.Allowed {
			t.keep(i)
		}
		if err == nil && goes[i] {
			t.merge(i)
		}
	}
	return err
}

// local sets permits aside for an ask, and reports whether it could decide it by them.
func (t *take) local(i int) bool {
	ask, slots := &t.asks[i], t.of(i)
	all := true
	for j := range slots {
		s, cost := &slots[j], ask.Charges[j].Cost
		if s.pool != nil && cost > 0 {
			got, refused := s.pool.take(t.ctx, cost, len(slots) == 1)
			if refused != nil {
				ask.Decision = *refused
				return true
			}
			s.held = got
		}
		all = all && s.held.ok()
	}
	if !all {
		return false
	}
	first := &slots[0].held.chunk.taken
	d := &ask.Decision
	*d = core.NewDecision(first.At, len(slots))
	d.Allowed, d.Tag = true, first.Tag
	for j := range slots {
		h := &slots[j].held
		d.SetTimeOf(j, h.chunk.taken.At)
		d.Outcomes()[j] = h.outcome()
	}
	return true
}

// A scratch has the asks of a call of the store.
type scratch struct {
	asks    [core.MaxCharges]core.Ask
	charges [core.MaxCharges]core.Charge
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// send lets the store decide the charges without permits of the asks that go to it, if
// any do. Their decisions have no outcomes of the other charges: see merge.
func (t *take) send(goes *[core.MaxCharges]bool) error {
	if !slices.Contains(goes[:], true) {
		return nil
	}
	s := scratches.Get().(*scratch)
	asks, charges := s.asks[:0], s.charges[:0]
	for i := range t.asks {
		if goes[i] {
			first := len(charges)
			charges = t.rest(charges, i)
			asks = append(asks, core.Ask{Charges: charges[first:]})
		}
	}
	err := t.store.store.Take(t.ctx, asks)
	n := 0
	for i := range t.asks {
		if goes[i] {
			t.asks[i].Decision = asks[n].Decision
			n++
		}
	}
	clear(asks)
	clear(charges)
	scratches.Put(s)
	return err
}

// rest appends the charges of an ask that have no permits, as the store is charged.
func (t *take) rest(charges []core.Charge, i int) []core.Charge {
	slots := t.of(i)
	for j, c := range t.asks[i].Charges {
		if slots[j].held.ok() {
			continue
		}
		if p := slots[j].plan; p != nil {
			c.Quota = p.charged
		}
		charges = append(charges, c)
	}
	return charges
}

// drain gives back the permits of rules that the store has refused, and reports
// whether there were any: then the store may admit the ask.
func (t *take) drain(i int) bool {
	drained, n, slots := false, 0, t.of(i)
	for j := range slots {
		if slots[j].held.ok() {
			continue
		}
		o, p := t.asks[i].Decision.Outcomes()[n], slots[j].pool
		n++
		if p == nil || o.Fits() || o.RetryAfter == core.Never {
			continue
		}
		if back := p.takeAll(); back != nil {
			drained = true
			_ = p.giveBack(t.ctx, back) // otherwise the units expire
		}
	}
	return drained
}

// undo gives back what asks took in the first call, since the second one has failed.
func (t *take) undo(goes, again *[core.MaxCharges]bool) {
	for i := range t.asks {
		if d := &t.asks[i].Decision; goes[i] && !again[i] && d.Allowed {
			_ = core.Undo(t.ctx, t.store.store, t.rest(nil, i), d) // otherwise the units expire
		}
	}
}

// keep puts back the permits that were set aside for an ask.
func (t *take) keep(i int) {
	slots := t.of(i)
	for j := range slots {
		if s := &slots[j]; s.held.ok() {
			s.pool.put(s.held.chunk, t.asks[i].Charges[j].Cost)
		}
	}
}

// merge adds the outcomes of permits to the decision of the store. After a refusal they
// are kept, and would fit. To what the store has left, it adds what this instance holds.
func (t *take) merge(i int) {
	ask, slots := &t.asks[i], t.of(i)
	d, n := ask.Decision, 0
	m := core.NewDecision(d.At, len(slots))
	m.Allowed, m.Mode, m.Delay, m.Tag, m.Forgiven = d.Allowed, d.Mode, d.Delay, d.Tag, d.Forgiven
	for j := range slots {
		s, o := &slots[j], &m.Outcomes()[j]
		if s.held.ok() {
			*o = s.held.outcome()
			if !d.Allowed {
				o.Remaining += ask.Charges[j].Cost
			}
			m.SetTimeOf(j, s.held.chunk.taken.At)
			continue
		}
		if m.Set(j, &d, n); s.pool != nil && o.Fits() {
			s.pool.addFree(o)
		}
		n++
	}
	ask.Decision = m
}
