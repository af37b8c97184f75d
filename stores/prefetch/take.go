package prefetch

import (
	"context"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
)

// A take is one decision.
type take struct {
	store   *Store
	ctx     context.Context
	policy  string
	charges []core.Charge
	plans   [core.MaxCharges]*plan // of the charges, or nil
	pools   [core.MaxCharges]*pool // of those, or nil
	held    [core.MaxCharges]permits
}

// prefetched finds the plans and pools of the charges, and reports whether any has a
// plan. Where a charge decides alone, has a reserve, or is a ban, which counts each
// refusal, none has a pool: the store decides all of them, once.
func (t *take) prefetched() (found bool) {
	extra := slices.ContainsFunc(t.charges, func(c core.Charge) bool { return c.Alone || c.Reserve > 0 || c.Quota.Bars() })
	for i := range t.charges {
		c := &t.charges[i]
		if r := t.store.rules[Rule{t.policy, c.Rule}]; r != nil {
			t.plans[i] = r.plan(&c.Quota, t.store.hold)
			found = true
			if !extra {
				t.pools[i] = t.store.pool(r, t.plans[i], t.policy, c)
			}
		}
	}
	return found
}

// decide sets permits aside, and lets the store decide the charges that have none.
func (t *take) decide() (core.Decision, error) {
	rest := 0
	for i := range t.charges {
		if p, c := t.pools[i], &t.charges[i]; p != nil && c.Cost > 0 {
			got, refused := p.take(t.ctx, c.Cost, len(t.charges) == 1)
			if refused != nil {
				return *refused, nil
			}
			t.held[i] = got
		}
		if !t.held[i].ok() {
			rest++
		}
	}
	if rest == 0 {
		return t.local(), nil
	}
	d, err := t.ask()
	if err == nil && !d.Allowed && t.drain(&d) {
		d, err = t.ask()
	}
	if err != nil || !d.Allowed {
		t.keep()
	}
	if err != nil {
		return core.Decision{}, err
	}
	return t.merge(d, rest), nil
}

// keep puts back the permits that were set aside.
func (t *take) keep() {
	for i := range t.charges {
		if t.held[i].ok() {
			t.pools[i].put(t.held[i].chunk, t.charges[i].Cost)
		}
	}
}

// local returns the admission of a request for which permits suffice.
func (t *take) local() core.Decision {
	first := &t.held[0].chunk.taken
	d := core.NewDecision(first.At, len(t.charges))
	d.Allowed, d.Tag = true, first.Tag
	for i := range t.charges {
		h := &t.held[i]
		if at := h.chunk.taken.At; at != first.At {
			d.SetTimeOf(i, at)
		}
		d.Outcomes()[i] = h.outcome()
	}
	return d
}

var scratches = sync.Pool{New: func() any { return new([core.MaxCharges]core.Charge) }}

// ask lets the store decide the charges without permits.
func (t *take) ask() (core.Decision, error) {
	scratch := scratches.Get().(*[core.MaxCharges]core.Charge)
	n := 0
	for i, c := range t.charges {
		if t.held[i].ok() {
			continue
		}
		if p := t.plans[i]; p != nil {
			c.Quota = p.charged
		}
		scratch[n] = c
		n++
	}
	d, err := t.store.store.Take(t.ctx, t.policy, scratch[:n])
	clear(scratch[:n])
	scratches.Put(scratch)
	return d, err
}

// drain gives back the permits of rules that the store has refused, and reports
// whether there were any: then the store may admit the request.
func (t *take) drain(d *core.Decision) bool {
	drained, j := false, 0
	for i := range t.charges {
		if t.held[i].ok() {
			continue
		}
		o, p := d.Outcomes()[j], t.pools[i]
		j++
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

// merge returns the decision of the store with the outcomes of permits. After a
// refusal they are kept, and would fit.
func (t *take) merge(d core.Decision, rest int) core.Decision {
	if rest == len(t.charges) {
		t.addHeld(&d)
		return d
	}
	m := core.NewDecision(d.At, len(t.charges))
	m.Allowed, m.Mode, m.Delay, m.Tag = d.Allowed, d.Mode, d.Delay, d.Tag
	j := 0
	for i := range t.charges {
		if h := &t.held[i]; h.ok() {
			m.Outcomes()[i] = h.outcome()
			if !d.Allowed {
				m.Outcomes()[i].Remaining += t.charges[i].Cost
			}
			m.SetTimeOf(i, h.chunk.taken.At)
			continue
		}
		m.Outcomes()[i] = d.Outcomes()[j]
		m.SetOverflow(i, d.Overflow(j))
		if at := d.TimeOf(j); at != m.TimeOf(i) {
			m.SetTimeOf(i, at)
		}
		j++
	}
	t.addHeld(&m)
	return m
}

// addHeld adds to what the store has left what this instance holds.
func (t *take) addHeld(d *core.Decision) {
	for i := range t.charges {
		p := t.pools[i]
		if o := &d.Outcomes()[i]; p != nil && !t.held[i].ok() && o.Fits() {
			o.Remaining = min(o.Remaining+p.free(), p.plan.charged.Capacity())
		}
	}
}
