package guard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// payCost is how many µs there are between payments of all instances for each debt that one
// pays: ten times what Redis needs for a debt.
const payCost = 40

// A payment is what one debtor pays in a call. Others do not pay it meanwhile.
type payment struct {
	of     *debt
	charge core.Charge // a copy, since other decisions change that of the debt
	cells  []cell
}

func (b *debts) claim(d *debt) payment {
	n := min(len(d.cells), core.MaxCharges)
	p := payment{d, d.charge, d.cells[:n:n]}
	d.cells, d.paying = slices.Clone(d.cells[n:]), true
	return p
}

// claimOf claims what the first of the keys of charges owe that owe anything, as much as one
// call can pay.
func (b *debts) claimOf(charges []core.Charge, now int64) (list []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		d := b.keys[debtorOf(&charges[i])]
		if d == nil || d.paying {
			continue
		}
		b.expire(d, now)
		if len(d.cells) == 0 || len(list) > 0 && (d.alone || units(list)+len(d.cells) > core.MaxCharges) {
			continue
		}
		if list = append(list, b.claim(d)); d.alone {
			break
		}
	}
	return list
}

// claimNext claims for one call what keys of one policy owe, which are on one server unless
// the policy is spread.
func (b *debts) claimNext(now int64) (list []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := min(len(b.queue), swept); n > 0; n-- {
		d := b.queue[0]
		if !d.ended && !d.paying {
			b.expire(d, now)
		}
		ready := !d.ended && !d.paying && len(d.cells) > 0
		if ready && len(list) > 0 && (d.alone || d.policy != list[0].of.policy || units(list)+len(d.cells) > core.MaxCharges) {
			break
		}
		b.queue = b.queue[1:]
		if !d.ended {
			b.queue = append(b.queue, d)
		}
		if ready {
			list = append(list, b.claim(d))
		}
		if ready && d.alone {
			break
		}
	}
	return list
}

// sweep drops what has left its window, for a part of the keys.
func (b *debts) sweep(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range min(len(b.queue), swept) {
		d := b.queue[0]
		b.queue = b.queue[1:]
		if !d.ended && !d.paying {
			b.expire(d, now)
		}
		if !d.ended {
			b.queue = append(b.queue, d)
		}
	}
}

// units returns how many charges payments need.
func units(list []payment) (n int) {
	for _, p := range list {
		n += len(p.cells)
	}
	return n
}

// How a payment went.
type settled uint8

const (
	paid   settled = iota
	unpaid         // the store was not charged
	unsure         // nobody knows
	broken         // the store cannot be charged for one of the keys
)

// settle ends payments. What a store cannot be charged for, such as a key of another type, is
// tried alone once, and then dropped.
func (b *debts) settle(list []payment, how settled) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range list {
		d, ends := p.of, how == paid || how == broken && len(list) == 1
		for _, c := range p.cells {
			b.units.Add(-c.units)
			if !ends {
				b.add(d, c)
			}
			if how == paid {
				b.paid.Add(c.units)
			}
			if how == paid && d.unsure {
				b.repeated.Add(c.units)
			}
		}
		d.paying, d.alone, d.unsure = false, how == broken, how == unsure || d.unsure && !ends
		b.drop(d)
	}
}

// pay makes payments by one call. If the store has not answered lately, it is asked about
// the keys first: otherwise each payment without an answer would be made again.
func (a *attempt) pay(list []payment) (err error) {
	how, b := unsure, &a.guard.debts
	defer func() { b.settle(list, how) }() // also if the store panics
	asks, wary := make([]core.Ask, 0, core.MaxCharges), a.probe || a.guard.breaker.trouble.Load()
	for _, p := range list {
		wary = wary || p.of.unsure
		for _, c := range p.cells {
			owed := p.charge
			owed.Cost, owed.Reserve, owed.Debt, owed.ID = c.owed(&owed.Quota, a.now), 0, true, c.id
			if owed.Age = 0; !owed.Quota.Refills() {
				owed.Age = max(0, min(a.now-c.at, core.MaxTime))
			}
			asks = append(asks, core.Ask{Charges: []core.Charge{owed}})
		}
	}
	if wary {
		err = a.look(list)
	}
	if how = unpaid; err == nil {
		how, err = unsure, a.ask(asks)
	}
	switch {
	case err == nil:
		how = paid
	case errors.Is(err, core.ErrForgotten):
		how = unpaid
	case !errors.Is(err, core.ErrUnavailable) && a.ctx.Err() == nil:
		how = broken
	}
	return err
}

// look asks the store about keys, and takes nothing.
func (a *attempt) look(list []payment) error {
	looks := make([]core.Ask, len(list))
	for i, p := range list {
		c := p.charge
		c.Cost, c.Reserve, c.Debt, c.Age = 0, 0, false, 0
		looks[i].Charges = []core.Charge{c}
	}
	return a.ask(looks)
}

// payFirst pays what the keys of a call owe, before the store decides about them.
func (c *call) payFirst() error {
	b := &c.guard.debts
	b.payments.RLock()
	defer b.payments.RUnlock()
	for list := b.claimOf(c.charges, c.now); list != nil; list = b.claimOf(c.charges, c.now) {
		if err := c.pay(list); err != nil && (c.ctx.Err() != nil || errors.Is(err, core.ErrUnavailable)) {
			return err
		}
	}
	return nil
}

// startPayments sets the timer if there are debts and it is not set.
func (s *Store) startPayments() {
	b := &s.debts
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed {
		s.armPayments(releaseEvery + rand.Int64N(releaseEvery))
	}
}

// armPayments sets the timer if there are debts. The caller has locked them.
func (s *Store) armPayments(in int64) {
	b := &s.debts
	if b.armed = len(b.keys) > 0; b.armed {
		b.after(time.Duration(in)*time.Microsecond, s.payDue)
	}
}

// payDue pays and sets the timer again.
func (s *Store) payDue() {
	in := s.payNext()
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	s.armPayments(in)
}

// payNext makes payments by one call, and returns after how many µs to go on.
func (s *Store) payNext() (next int64) {
	a, b := attempt{guard: s, ctx: context.Background()}, &s.debts
	next = releaseEvery + rand.Int64N(releaseEvery)
	defer func() {
		_ = recover() // the store: a panic in this goroutine would end the program
		if s.unavailable() {
			next = max(next, s.breaker.probeIn(a.now))
		}
	}()
	if !a.enter() {
		b.sweep(a.now)
		return next
	}
	defer a.leave()
	b.payments.RLock()
	defer b.payments.RUnlock()
	list := b.claimNext(a.now)
	if list == nil || a.pay(list) != nil {
		return next
	}
	pause := payCost * s.instances * int64(units(list))
	return pause/2 + rand.Int64N(pause)
}
