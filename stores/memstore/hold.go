package memstore

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"github.com/routelimit/limit/core"
)

// held are the holds of a shard.
type held struct {
	keys   map[keyOfRule]*holds
	before int           // how many keys there were when those without holds were last dropped
	n      *atomic.Int64 // holds of all keys of the store; nil until there are some
}

// holdsPerKey is how many holds there may be for each key that has room. Those that are
// remembered after their end count too. One key may have all of them.
const holdsPerKey = 4

// fits reports whether there is room for the holds of so many charges.
func (s *Store) fits(charges int) bool {
	return (s.holding.Load()+int64(charges)-1)/(holdsPerKey*keyShards) < int64(s.room)
}

// makeRoom drops what has long ended everywhere, at most once a second, but for what others use
// now. The shards of keys are locked.
func (s *Store) makeRoom(keys []target, now int64) {
	last := s.swept.Load()
	if now-last < 1_000_000 && now >= last || !s.swept.CompareAndSwap(last, now) {
		return
	}
	for i := range s.shards {
		shard := &s.shards[i]
		mine := slices.ContainsFunc(keys, func(k target) bool { return k.shard == i })
		if mine || shard.mu.TryLock() { // waiting for one could deadlock
			shard.held.sweep(now)
			if !mine {
				shard.mu.Unlock()
			}
		}
	}
}

// sweep drops what has long ended of all keys, and what nobody asked for any more while its units
// counted.
func (all *held) sweep(now int64) {
	for name, h := range all.keys {
		h.forget(now)
		for id, of := range h.byID {
			if of.until+core.HoldMemory <= now && of.taken.At+of.taken.ResetAfter <= now {
				h.drop(id)
			}
		}
		if h.shrink(); len(h.byID) == 0 {
			delete(all.keys, name)
		}
	}
	all.before = len(all.keys)
}

// remove drops all holds of a key.
func (all *held) remove(name keyOfRule) {
	if h := all.keys[name]; h != nil {
		all.n.Add(-int64(len(h.byID)))
		delete(all.keys, name)
	}
}

// holds are those of one key.
type holds struct {
	of   *held
	byID map[core.HoldID]*hold
	ends endings // when each of byID ends, or is forgotten, or did before it changed
}

// A hold is what one charge took, or the memory of it.
type hold struct {
	found core.Found
	until int64 // when it ends; once it has, when it is forgotten
	units int64 // that count for it
	kept  int64 // of them, those that stay when it ends
	taken core.Return
}

type ending struct {
	at int64
	id core.HoldID
}

type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// keyOfRule names the state of a key.
type keyOfRule struct {
	rule unique.Handle[rule]
	key  string
}

// holdsOf returns the holds of a key, under the lock of its shard, without those that are to
// be forgotten. With add, it makes a place for them if there are none.
func (s *Store) holdsOf(k *target, now int64, add bool) *holds {
	all := &s.shards[k.shard].held
	name := keyOfRule{unique.Make(ruleOf(k.charge)), k.charge.Key}
	h := all.keys[name]
	if h == nil {
		if !add {
			return nil
		}
		if all.keys == nil {
			all.keys, all.n = make(map[keyOfRule]*holds), &s.holding
		}
		if len(all.keys) >= 2*all.before+16 {
			all.sweep(now)
		}
		name.key = strings.Clone(name.key)
		h = &holds{of: all, byID: make(map[core.HoldID]*hold)}
		all.keys[name] = h
	}
	h.forget(now)
	return h
}

// forget drops what has long ended.
func (h *holds) forget(now int64) {
	for len(h.ends) > 0 && h.ends[0].at <= now {
		next := h.ends[0]
		of := h.byID[next.id]
		if of != nil && of.until == next.at && of.found == core.HoldLives {
			return // it has ended, and is to be given back first
		}
		heap.Pop(&h.ends)
		if of != nil && of.until == next.at {
			h.drop(next.id)
		}
	}
}

func (h *holds) drop(id core.HoldID) {
	delete(h.byID, id)
	h.of.n.Add(-1)
}

// shrink drops the ends of holds that were forgotten before them, once most are of such.
func (h *holds) shrink() {
	if len(h.ends) <= 2*len(h.byID)+16 {
		return
	}
	h.ends = slices.DeleteFunc(h.ends, func(e ending) bool { of := h.byID[e.id]; return of == nil || of.until != e.at })
	heap.Init(&h.ends)
}

// find returns a hold that is not to be forgotten, or nil. There may be no holds.
func (h *holds) find(id core.HoldID, now int64) *hold {
	if h == nil {
		return nil
	}
	of := h.byID[id]
	if of == nil || of.found != core.HoldLives && of.until <= now {
		return nil
	}
	return of
}

// set notes that a hold ends, or is forgotten, at a time.
func (h *holds) set(id core.HoldID, of *hold, until int64) {
	of.until = until
	if h.byID[id] == nil {
		h.of.n.Add(1)
	}
	h.byID[id] = of
	heap.Push(&h.ends, ending{until, id})
}

// over returns some holds that have ended.
func (h *holds) over(c *core.Charge, now int64, list []core.Settlement) []core.Settlement {
	const most = 8
	h.forget(now) // one of them may have been ended since
	for i := 0; i < min(most, len(h.ends)) && h.ends[i].at <= now; i++ {
		if of := h.byID[h.ends[i].id]; of != nil && of.until == h.ends[i].at && of.found == core.HoldLives {
			list = append(list, core.Settlement{Return: core.Return{Charge: *c}, Hold: h.ends[i].id, Ends: true})
		}
	}
	return list
}

// Holds implements [core.Holder].
func (s *Store) Holds([]core.Charge) bool { return true }

// Hold implements [core.Holder].
func (s *Store) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	if err := cmp.Or(h.Validate(ask), ctx.Err()); err != nil {
		return err
	}
	keys, order, now := s.locked(len(ask.Charges), func(i int) *core.Charge { return &ask.Charges[i] })
	defer s.unlock(keys, &order)
	h.Found, h.Over, h.Units = core.HoldUnknown, nil, [core.MaxCharges]int64{}
	for i := range keys {
		of := s.holdsOf(&keys[i], now, false)
		if of == nil {
			continue
		}
		if mine := of.find(h.ID, now); mine != nil && mine.found != core.HoldEnded {
			if mine.found == core.HoldLives && mine.until <= now {
				s.settle(&keys[i], &core.Settlement{Return: core.Return{Charge: ask.Charges[i]}, Hold: h.ID, Ends: true}, now)
			} else {
				h.Found, h.Units[i] = max(h.Found, mine.found), mine.units
			}
		}
		h.Over = of.over(&ask.Charges[i], now, h.Over)
	}
	if h.Found == core.HoldSettled {
		return nil
	}
	s.find(keys) // an ending may have replaced them
	if h.Found == core.HoldLives {
		again := core.Ask{Charges: core.Repeated(ask.Charges)}
		for i := range again.Charges {
			keys[i].charge = &again.Charges[i]
		}
		s.take(&again, keys, now)
		ask.Decision = again.Decision
		return nil
	}
	if s.take(ask, keys, now); ask.Decision.Allowed {
		s.keep(keys, ask, h, now)
	}
	return nil
}

// keep holds what an ask took, if there is room.
func (s *Store) keep(keys []target, ask *core.Ask, h *core.Hold, now int64) {
	if !s.fits(len(keys)) {
		s.makeRoom(keys, now)
	}
	d := &ask.Decision
	for i := range keys {
		if d.Overflow(i) != core.OwnQuota || !s.fits(len(keys)) { // what keys share cannot be told apart later
			h.Found = core.HoldRefused
			return
		}
	}
	for i := range ask.Charges {
		c := &ask.Charges[i]
		if !c.Quota.Holds() || c.Cost == 0 {
			continue
		}
		of := &hold{found: core.HoldLives, units: c.Cost, taken: d.Return(i, *c)}
		if h.Kept>>i&1 != 0 {
			of.kept = c.Cost
		}
		of.taken.Charge = core.Charge{Cost: c.Cost} // the rest would keep the strings of a request
		s.holdsOf(&keys[i], now, true).set(h.ID, of, now+h.Life)
	}
}

// Settle implements [core.Holder].
func (s *Store) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	if err := cmp.Or(core.ValidateSettlements(list), ctx.Err()); err != nil {
		return nil, err
	}
	leases := core.Leased(list)
	keys, order, now := s.locked(len(list)+len(leases), func(i int) *core.Charge {
		if i < len(list) {
			return &list[i].Charge
		}
		return &leases[i-len(list)]
	})
	defer s.unlock(keys, &order)
	for i := range leases {
		s.find(keys[len(list)+i:][:1]) // one before it on that key may have replaced the entry
		s.leasesAt(&keys[len(list)+i], now, func(held core.State) bool {
			held.Release(&leases[i].Quota, now, leases[i].ID)
			return false
		})
	}
	done := make([]core.Settled, len(list))
	for i := range list {
		s.find(keys[i : i+1])
		done[i] = s.settle(&keys[i], &list[i], now)
	}
	return done, nil
}

// settle settles what one charge took, under the lock of its shard.
func (s *Store) settle(k *target, of *core.Settlement, now int64) (done core.Settled) {
	h := s.holdsOf(k, now, false)
	held := h.find(of.Hold, now)
	if held == nil {
		return done
	}
	if held.found != core.HoldSettled && of.Used == 0 && !of.Ends && of.At != 0 && of.At != held.taken.At {
		return done
	}
	done.Found = held.found
	cost, then := of.Used, core.HoldSettled
	if of.Ends {
		if held.found != core.HoldLives || held.until > now {
			done.Found = core.HoldSettled
			return done
		}
		cost, then = held.kept, core.HoldEnded
	}
	if held.found == core.HoldSettled {
		return done
	}
	switch {
	case cost < held.units:
		r := held.taken
		r.Charge = of.Charge
		r.Cost = held.units - cost
		done.Given = s.giveBack(k, &r, now)
	case cost > held.units:
		done.Taken = s.grow(k, of, cost-held.units, now)
		done.Forgiven = cost - held.units - done.Taken
	}
	if !of.Ends && (cost == 0 || of.Forget) {
		h.drop(of.Hold)
		h.shrink()
		return done
	}
	held.found, held.units = then, cost
	h.set(of.Hold, held, now+core.HoldMemory)
	return done
}

// grow takes what a settlement costs in addition, and returns how much that was.
func (s *Store) grow(k *target, of *core.Settlement, units, now int64) int64 {
	c := of.Grow(units, s.look(k, now).Remaining)
	if c.Cost == 0 {
		return 0
	}
	ask, keys := core.Ask{Charges: []core.Charge{c}}, []target{*k}
	keys[0].charge = &ask.Charges[0]
	s.find(keys)
	s.take(&ask, keys, now)
	return c.Cost - ask.Decision.Forgiven
}

// Extend implements [core.Holder].
func (s *Store) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	if err := cmp.Or(core.ValidateExtensions(list), ctx.Err()); err != nil {
		return nil, err
	}
	lived := make([]bool, len(list))
	for i := range list {
		lived[i] = s.extend(&list[i])
	}
	return lived, nil
}

func (s *Store) extend(of *core.Extension) bool {
	keys, order, now := s.locked(1, func(int) *core.Charge { return &of.Charge })
	defer s.unlock(keys, &order)
	h := s.holdsOf(&keys[0], now, false)
	held := h.find(of.Hold, now)
	if held == nil || held.found != core.HoldLives || held.until <= now {
		return false
	}
	h.set(of.Hold, held, now+of.Life)
	return true
}

// Account returns what the key of a charge owes and holds: see [core.AccountOf].
func (s *Store) Account(ctx context.Context, c core.Charge) (a core.Account, err error) {
	if err := core.ValidateCharges([]core.Charge{c}); err != nil {
		return a, err
	}
	keys, order, now := s.locked(1, func(int) *core.Charge { return &c })
	defer s.unlock(keys, &order)
	if keys[0].entry != nil && c.Quota.Algorithm.Owes() {
		a.Owed = max(0, -s.turned(&keys[0]).state().Clone().Advance(&c.Quota, now))
	}
	h := s.holdsOf(&keys[0], now, false)
	if h == nil {
		return a, nil
	}
	for _, of := range h.byID {
		switch left := of.until - now; {
		case of.found != core.HoldLives:
		case left <= 0:
			a.Ended++
		default:
			if a.Next == 0 || left < a.Next {
				a.Next = left
			}
			a.Holds, a.Held = a.Holds+1, a.Held+of.units
		}
	}
	return a, nil
}
