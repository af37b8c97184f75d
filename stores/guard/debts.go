package guard

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

const (
	maxDebtors = 65_536 // keys that owe; beyond it, all keys are doubtful for a window, as after a loss
	maxCells   = 4      // for each key; beyond it, units move to the next later cell
	maxShown   = 64     // values for each key of a rule with core.Distinct; beyond it, as above
	maxPaid    = 4096   // keys whose payments are known; beyond it, all are forgotten

	paidFor = 15 * 60_000_000 // µs for which payments are known after the last
	swept   = 512             // keys that one step of the timer looks at, at most
)

// Debts are the units that this process has admitted without the store, until it is charged for
// them: see [Store]. Until its key has paid, the memory must admit too. Leases and strikes are no
// debts: see [doubts].
type debts struct {
	count    atomic.Int64 // keys that owe
	units    atomic.Int64 // that they owe
	paid     atomic.Int64 // units that the store has been charged for
	repeated atomic.Int64 // of them, those that a payment without an answer may have charged before

	mu    sync.Mutex
	keys  map[debtor]*debt
	queue []*debt // in the order of payment
	armed bool    // the timer is set, or works

	receipts map[debtor][]receipt
	received int64 // when the last receipt was

	raised map[scaled]int64 // the capacities by which keys were raised before the others of their rules, since the last loss

	waited   moment                           // when a call last took long
	payers   atomic.Int32                     // requests that pay: see maxPayers
	payments sync.RWMutex                     // a reset waits for those in flight
	after    func(in time.Duration, f func()) // time.AfterFunc, but in tests
}

// A debtor is a key that owes.
type debtor struct{ policy, rule, variant, key string }

// A debt is what one debtor owes.
type debt struct {
	debtor
	charge  core.Charge // of the last request
	cells   []cell      // oldest first
	pending int         // decisions that are being made without the store
	paying  bool
	back    []core.Return // given back while it pays
	unsure  bool          // a payment was not answered
	alone   bool          // a payment failed for another reason
	raise   []core.Charge // by these quotas the store may count less than the memory: see raises
	raising *core.Charge  // by this one, that is being paid
	ended   bool          // not in keys any more
}

// A cell is units that were taken by a time, but not long before, or a value that was shown.
// Of a quota that refills, it is all that is owed: see flow.
type cell struct {
	at, units int64
	id        uint64 // of the value
	flow      flow
}

// owes reports whether a request that is admitted without the store owes a charge.
func owes(c *core.Charge) bool {
	return c.OnError != core.Allow && c.Cost > 0 && !c.Quota.Leases() && !c.Quota.Bars() &&
		(c.Quota.Algorithm != core.Distinct || c.ID != 0)
}

func debtorOf(c *core.Charge) debtor { return debtor{c.Policy, c.Rule, c.Variant, c.Key} }

// owing returns the charges on keys that owe.
func (b *debts) owing(charges []core.Charge) (owing set) {
	if b.count.Load() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		if b.keys[debtorOf(&charges[i])] != nil {
			owing.add(i)
		}
	}
	return owing
}

// begin notes that a decision is made without the store, and reports whether there is room
// for what it may owe.
func (b *debts) begin(charges []core.Charge, now int64) (fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fits = true
	for i := range charges {
		c := &charges[i]
		if !owes(c) {
			continue
		}
		d := b.debt(c)
		if d == nil {
			fits = false
			continue
		}
		if len(d.cells) > 0 {
			d.cells[0] = d.cells[0].refilled(&d.charge.Quota, &c.Quota, now)
		}
		d.charge, d.pending = *c, d.pending+1
		d.charge.Key = d.key
	}
	return fits
}

// debt returns what the key of c owes, or nil if there is no room.
func (b *debts) debt(c *core.Charge) *debt {
	who := debtorOf(c)
	d := b.keys[who]
	if d != nil || len(b.keys) >= maxDebtors {
		return d
	}
	who.key = strings.Clone(who.key) // it may be a part of a long header
	d = &debt{debtor: who, charge: *c}
	b.keys[who] = d
	b.queue = append(b.queue, d)
	b.count.Add(1)
	return d
}

// end ends a decision that began, and notes what it owes. It reports whether all of it is noted.
func (b *debts) end(charges []core.Charge, admitted bool, now int64) (noted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted = true
	for i := range charges {
		c := &charges[i]
		if !owes(c) {
			continue
		}
		d := b.keys[debtorOf(c)]
		if d == nil || d.pending == 0 { // there was no room when it began
			noted = noted && !admitted
			continue
		}
		d.pending--
		if admitted && c.Quota.Algorithm != core.Distinct {
			b.add(d, newCell(&c.Quota, c.Cost, now-c.Age))
		} else if admitted {
			noted = b.show(d, cell{at: now - c.Age, units: 1, id: c.ID}) && noted
		}
		b.drop(d)
	}
	return noted
}

// add adds units. If there are too many cells, the two that are closest become one.
func (b *debts) add(d *debt, c cell) {
	b.units.Add(c.units)
	if d.charge.Quota.Refills() && len(d.cells) > 0 {
		d.cells[0] = d.cells[0].with(c)
		return
	}
	i := len(d.cells)
	for i > 0 && d.cells[i-1].at > c.at {
		i--
	}
	d.cells = slices.Insert(d.cells, i, c)
	if len(d.cells) <= maxCells || c.id != 0 {
		return
	}
	closest := 1
	for i := 2; i < len(d.cells); i++ {
		if d.cells[i].at-d.cells[i-1].at < d.cells[closest].at-d.cells[closest-1].at {
			closest = i
		}
	}
	d.cells[closest].units += d.cells[closest-1].units
	d.cells = slices.Delete(d.cells, closest-1, closest)
}

// show adds a value that was shown, unless there are too many.
func (b *debts) show(d *debt, value cell) bool {
	for i, c := range d.cells {
		if c.id == value.id {
			b.units.Add(-c.units)
			d.cells = slices.Delete(d.cells, i, i+1)
			break
		}
	}
	if len(d.cells) >= maxShown {
		return false
	}
	b.add(d, value)
	return true
}

// drop forgets a key that owes nothing any more.
func (b *debts) drop(d *debt) {
	if len(d.cells) == 0 && d.pending == 0 && !d.paying && len(d.raise) == 0 && !d.ended {
		d.ended = true
		delete(b.keys, d.debtor)
		b.count.Add(-1)
	}
}

// expire drops what has left the window.
func (b *debts) expire(d *debt, now int64) {
	for len(d.cells) > 0 && d.cells[0].owed(&d.charge.Quota, now) == 0 {
		b.units.Add(-d.cells[0].units)
		d.cells = d.cells[1:]
	}
	b.drop(d)
}

// A receipt gives back units that were admitted without the store, once it has been charged for
// them.
type receipt struct {
	core.Return
	paid int64 // when that was
}

// receive keeps the receipts of a payment.
func (b *debts) receive(asks []core.Ask, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.received = now; len(b.receipts) >= maxPaid || b.receipts == nil {
		b.receipts = make(map[debtor][]receipt)
	}
	for i := range asks {
		c, who := asks[i].Charges[0], debtorOf(&asks[i].Charges[0])
		r := receipt{asks[i].Decision.Return(0, c), now}
		r.At, r.ResetAfter = max(0, r.At-c.Age), min(r.ResetAfter, 2*core.MaxFill)
		r.Age, r.Since, r.Debt = 0, 0, false
		if list := append(b.receipts[who], r); c.Cost > 0 {
			b.receipts[who] = list[max(0, len(list)-2*maxCells):]
		}
	}
}

// forget drops the receipts of payments that are long over.
func (b *debts) forget(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now-b.received > paidFor {
		b.receipts = nil
	}
}

// forgive lowers what a key owes by units that were given back, the latest first. It returns what
// gives back those that the store has been charged for.
func (b *debts) forgive(r core.Return) (paid []core.Return) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who := debtorOf(&r.Charge)
	if d := b.keys[who]; d != nil {
		b.lower(d, &r)
		b.drop(d)
		if d.paying && r.Cost > 0 {
			d.back = append(d.back, r)
			return nil
		}
	}
	list := b.receipts[who]
	for i := len(list) - 1; i >= 0 && r.Cost > 0; i-- {
		if of := &list[i]; of.ID == r.ID && r.At <= of.paid {
			back := of.Return
			back.Cost = min(r.Cost, of.Cost)
			of.Cost, r.Cost = of.Cost-back.Cost, r.Cost-back.Cost
			paid = append(paid, back)
		}
	}
	if list = slices.DeleteFunc(list, func(of receipt) bool { return of.Cost == 0 }); len(list) == 0 {
		delete(b.receipts, who)
	} else {
		b.receipts[who] = list
	}
	return paid
}

// lower takes the units of r off the cells, and off r.
func (b *debts) lower(d *debt, r *core.Return) {
	for i := len(d.cells) - 1; i >= 0 && r.Cost > 0; i-- {
		if d.cells[i].id != r.ID {
			continue
		}
		n := min(r.Cost, d.cells[i].units)
		d.cells[i].lower(&d.charge.Quota, n)
		r.Cost -= n
		b.units.Add(-n)
	}
	d.cells = slices.DeleteFunc(d.cells, func(c cell) bool { return c.units == 0 })
}

// cancel drops what keys owe. No payment is in flight.
func (b *debts) cancel(charges []core.Charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		delete(b.receipts, debtorOf(&charges[i]))
		if d := b.keys[debtorOf(&charges[i])]; d != nil {
			d.raise = nil
			b.expire(d, 1<<62)
		}
	}
}
