package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// payCost is how many µs there are between payments of all instances for each debt that one
// pays: ten times what Redis needs for a debt.
const payCost = 100

// sluggish is how many µs a call takes beside which requests wait for no other call, for a second.
const sluggish = 10_000

// A payment is what one debtor pays in a call. Others do not pay it meanwhile.
type payment struct {
	of     *debt
	at     int64       // when it was claimed
	charge core.Charge // a copy, since other decisions change that of the debt
	owes   core.Quota  // what cells are counted by
	cells  []cell
	raise  bool   // the key is to be raised
	lacks  []cell // what the store lacks instead of cells, if that is more
	counts int64  // what the memory counts of a key to raise
	before int64  // the capacity by which it was raised before, since the loss
	lost   int64  // µs since the store had none of them for certain, or -1
	reset  bool   // it was reset, maybe after its units were taken
	again  bool   // it is to be raised once what it owes is paid
}

func (b *debts) claim(d *debt, now int64) payment {
	n := min(len(d.cells), core.MaxCharges)
	p := payment{of: d, at: now, charge: d.charge, owes: d.charge.Quota, cells: d.cells[:n:n]}
	if p.raise = len(d.raise) > 0; p.raise {
		by := d.raise[0]
		p.charge.Quota, p.before, d.raise, d.raising = by.Quota, by.Cost, d.raise[1:], &by
	}
	d.cells, d.paying = slices.Clone(d.cells[n:]), true
	return p
}

// due reports whether a key owes anything, or is to be raised.
func (d *debt) due() bool { return len(d.cells)+len(d.raise) > 0 }

// size is how many charges of a call are needed to pay at least a part of what a key owes.
func (d *debt) size() int { return max(1, len(d.cells)) }

// claimOf claims what the first of the keys of charges owe that owe anything, as much as one
// call can pay. It reports whether one of the keys is being raised.
func (b *debts) claimOf(charges []core.Charge, now int64) (list []payment, raising bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		if d := b.keys[debtorOf(&charges[i])]; d != nil && d.raising != nil {
			return nil, true
		}
	}
	for i := range charges {
		d := b.keys[debtorOf(&charges[i])]
		if d == nil || d.paying {
			continue
		}
		b.expire(d, now)
		if !d.due() || len(list) > 0 && (d.alone || units(list)+d.size() > core.MaxCharges) {
			continue
		}
		if list = append(list, b.claim(d, now)); d.alone {
			break
		}
	}
	return list, false
}

// claimNext claims for one call what keys of one policy owe, which are on one server unless
// the policy is spread. If the store is not asked, it only drops what has left its window.
func (b *debts) claimNext(now int64, asks bool) (list []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range min(len(b.queue), swept) {
		d := b.queue[0]
		if !d.ended && !d.paying {
			b.expire(d, now)
		}
		ready := asks && !d.ended && !d.paying && d.due()
		if ready && len(list) > 0 && (d.alone || d.policy != list[0].of.policy || units(list)+d.size() > core.MaxCharges) {
			break
		}
		b.queue = b.queue[1:]
		if !d.ended {
			b.queue = append(b.queue, d)
		}
		if ready {
			list = append(list, b.claim(d, now))
		}
		if ready && d.alone {
			break
		}
	}
	return list
}

// units returns how many charges payments need.
func units(list []payment) (n int) {
	for _, p := range list {
		n += max(1, len(p.cells))
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

// settle ends payments. What a store cannot be charged for, such as a key of another type, is tried
// alone once, and then dropped. Settle returns what was given back meanwhile, less what it took off
// the debts.
func (b *debts) settle(list []payment, how settled) (back []core.Return) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range list {
		d, ends := p.of, how == paid || how == broken && len(list) == 1
		switch by := d.raising; {
		case by == nil:
		case p.again || !ends:
			d.raiseBy(*by)
		case b.raised != nil && len(d.raise) == 0:
			b.raised[scaled{scaleOf(by), by.Key}] = by.Quota.Capacity()
		}
		d.raising = nil
		for _, c := range p.cells {
			b.units.Add(-c.units)
			if !ends {
				b.add(d, c.refilled(&p.owes, &d.charge.Quota, p.at)) // a request with another limit may have come meanwhile
			}
			if how == paid {
				b.paid.Add(c.units)
			}
			if how == paid && d.unsure {
				b.repeated.Add(c.units)
			}
		}
		d.paying, d.alone, d.unsure = false, how == broken, how == unsure || d.unsure && !ends
		for _, r := range d.back {
			if !ends {
				b.lower(d, &r)
			}
			if r.Cost > 0 {
				back = append(back, r)
			}
		}
		d.back = nil
		b.drop(d)
	}
	return back
}

// pay makes payments by one call. If the store has not answered lately, it is asked about
// the keys first: otherwise each payment without an answer would be made again.
func (a *attempt) pay(list []payment) (err error) {
	how, b := unsure, &a.guard.debts
	defer func() { // also if the store panics
		for _, r := range b.settle(list, how) {
			if back := b.forgive(r); back != nil {
				_, err := a.guard.store.Return(a.ctx, back) // otherwise it stays taken, which is safe
				a.ended(err)
			}
		}
	}()
	wary := a.probe || a.guard.breaker.trouble.Load()
	for i := range list {
		p := &list[i]
		wary = wary || p.raise || p.of.unsure
		if p.raise {
			p.counts, p.lost = a.guard.countsAfter(p.charge, settling), -1
		}
	}
	if wary {
		if err = a.findLost(list); err == nil {
			err = a.look(list)
		}
	}
	asks, n := make([]core.Ask, 0, core.MaxCharges), 0
	for i := range list {
		mine := list[i].asks(a.now)
		if len(asks)+len(mine) > core.MaxCharges {
			break
		}
		asks, n = append(asks, mine...), i+1
	}
	b.settle(list[n:], unpaid)
	list = list[:n]
	if how = unpaid; err == nil && len(asks) > 0 && a.guard.overtaken(list) {
		err = errRaising
	}
	if err == nil && len(asks) > 0 {
		how, err = unsure, a.ask(asks)
	}
	switch {
	case err == nil:
		how = paid
		b.receive(asks, a.now)
		if slices.ContainsFunc(list, func(p payment) bool { return p.raise }) {
			a.guard.raises.last.advance(a.now)
		}
	case errors.Is(err, core.ErrForgotten):
		how = unpaid
	case !errors.Is(err, core.ErrUnavailable) && a.ctx.Err() == nil:
		how = broken
	}
	return err
}

// asks returns what the store is to be charged for.
func (p *payment) asks(now int64) (asks []core.Ask) {
	cells := p.cells
	if p.lacks != nil {
		cells = p.lacks
	}
	for _, c := range cells {
		owed := p.charge
		owed.Cost, owed.Reserve, owed.Debt, owed.MaxDebt, owed.ID = c.units, 0, true, 0, c.id
		if p.lacks == nil {
			owed.Cost = c.owed(&p.owes, now)
		}
		owed.Since = max(1, min(now-cmp.Or(c.flow.last, c.at), core.MaxTime))
		if owed.Age = 0; !owed.Quota.Refills() {
			owed.Age = max(0, min(now-c.at, core.MaxTime))
		}
		asks = append(asks, core.Ask{Charges: []core.Charge{owed}})
	}
	return asks
}

// look asks the store about keys, and takes nothing. Of keys to raise, it finds what the store
// lacks.
func (a *attempt) look(list []payment) error {
	looks := make([]core.Ask, len(list))
	for i, p := range list {
		c := p.charge
		c.Cost, c.Reserve, c.Debt, c.Age = 0, 0, false, 0
		looks[i].Charges = []core.Charge{c}
	}
	if err := a.ask(looks); err != nil {
		return err
	}
	for i := range list {
		if p := &list[i]; p.raise {
			p.lacks = a.guard.lacks(p, looks[i].Decision.Outcomes()[0], a.now)
		}
	}
	return nil
}

// overtaken reports whether the store was found to have lost data since payments were claimed:
// then they are to be raised first.
func (s *Store) overtaken(list []payment) bool {
	s.learn(nil, s.now())
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	return slices.ContainsFunc(list, func(p payment) bool { return len(p.of.raise) > 0 && !p.raise })
}

// first reports whether keys must pay before the store decides about them: those to be raised,
// and buckets, since what a bucket owes depends on what it was charged meanwhile.
func (b *debts) first(charges []core.Charge) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(charges, func(c core.Charge) bool {
		d := b.keys[debtorOf(&c)]
		return d != nil && (d.toRaise() || c.Quota.Refills())
	})
}

// toRaise reports whether a key is to be raised, or is being raised.
func (d *debt) toRaise() bool { return len(d.raise) > 0 || d.raising != nil }

// putOff lets the store decide about keys before they pay, but not about those to be raised. What
// buckets owe does not refill before this charge then, which is safe.
func (b *debts) putOff(charges []core.Charge, now int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		d := b.keys[debtorOf(&charges[i])]
		if d == nil {
			continue
		}
		if q := &d.charge.Quota; q.Refills() && len(d.cells) > 0 {
			d.cells[0].charged(q, now)
		}
		if d.toRaise() {
			return errOwing
		}
	}
	return nil
}

// errRaising means that another request is about to find out what the store has lost of a key.
// Units that it admits before would look like some that it has kept.
var errRaising = fmt.Errorf("%w: it may have lost data", core.ErrUnavailable)

// errOwing means that keys owe again whenever a request has paid: others are admitted without the
// store until the request ends and shows that the store answers. Or too many others pay.
var errOwing = fmt.Errorf("%w: requests are still admitted without it", core.ErrUnavailable)

// maxPasses is how often a request pays what its keys owe before the store decides about them.
const maxPasses = 8

// maxPayers is how many requests pay at the same time before the store decides about them. Payments
// of all that come at once after an outage would take all connections to a distant store.
const maxPayers = 4

// payFirst pays what the keys of a call owe, before the store decides about them.
func (c *call) payFirst() error {
	b := &c.guard.debts
	if b.count.Load() == 0 {
		return nil
	}
	defer b.payers.Add(-1)
	if b.payers.Add(1) > maxPayers {
		return b.putOff(c.charges, c.now)
	}
	if (c.probe || c.guard.breaker.trouble.Load() || c.now-b.waited.time() < 1_000_000) && !b.first(c.charges) {
		return nil // a request makes one call to a store in trouble; the timer pays, and until then the memory must admit too
	}
	b.payments.RLock()
	defer b.payments.RUnlock()
	for pass := 0; ; pass++ {
		list, raising := b.claimOf(c.charges, c.now)
		switch {
		case raising:
			return errRaising
		case list == nil:
			return nil
		case pass == maxPasses:
			b.settle(list, unpaid)
			return errOwing
		}
		if err := c.pay(list); err != nil && (c.ctx.Err() != nil || errors.Is(err, core.ErrUnavailable)) {
			return err
		}
	}
}

// workEvery is the least time in µs from one run of a timer, of payments or of releases, to the
// next. Up to as much is added at random.
const workEvery = 25_000

// startTimer sets the timer if it is not set. The caller has locked the debts.
func (s *Store) startTimer() {
	if !s.debts.armed {
		s.setTimer(workEvery + rand.Int64N(workEvery))
	}
}

// setTimer sets the timer if there is something to pay or to raise. The caller has locked the
// debts.
func (s *Store) setTimer(in int64) {
	b := &s.debts
	if b.armed = len(b.keys)+len(s.raises.next) > 0; b.armed {
		b.after(time.Duration(in)*time.Microsecond, s.work)
	}
}

// work makes payments, and sets the timer again.
func (s *Store) work() {
	in := s.payNext()
	s.debts.mu.Lock()
	defer s.debts.mu.Unlock()
	s.setTimer(in)
}

// payNext makes payments by one call, and returns after how many µs to go on.
func (s *Store) payNext() (next int64) {
	a, b := attempt{guard: s, ctx: context.Background()}, &s.debts
	next = workEvery + rand.Int64N(workEvery)
	defer func() {
		_ = recover() // the store: a panic in this goroutine would end the program
		if s.unavailable() {
			next = max(next, s.breaker.probeIn(a.now))
		}
	}()
	for s.raiseNext() {
	}
	if !a.enter() {
		b.claimNext(a.now, false)
		return next
	}
	defer a.leave()
	b.payments.RLock()
	defer b.payments.RUnlock()
	list := b.claimNext(a.now, true)
	if list == nil || a.pay(list) != nil {
		return next
	}
	pause := payCost * s.instances * int64(units(list))
	return pause/2 + rand.Int64N(pause)
}
