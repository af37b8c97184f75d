package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Holds implements [core.Holder]. A hold is in the slot of its policy: on a Cluster, charges of
// several policies cannot be held together, and a store with [Options].Spread holds nothing.
func (s *Store) Holds(charges []core.Charge) bool {
	return s.parts == nil && !slices.ContainsFunc(charges, func(c core.Charge) bool { return !s.sameSlot(&charges[0], &c) })
}

// Hold implements [core.Holder]. It is a call of its own, not part of a batch.
func (s *Store) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	if err := cmp.Or(h.Validate(ask), ctx.Err()); err != nil {
		return err
	}
	asks := []core.Ask{{Charges: slices.Clone(ask.Charges)}}
	p := s.single(asks)
	if s.reported.Load() != s.restarts.Load() || p == nil || s.parts != nil {
		return s.takeUnheld(ctx, ask, h)
	}
	b := p.batcher(asks)
	s.hasher.replace(asks[0].Charges)
	err := s.hold(ctx, b, &asks[0], h)
	if err == nil && h.Found == core.HoldEnded { // one of that ID, which is to be given back first
		var own []core.Settlement
		for _, c := range asks[0].Charges {
			if c.Quota.Holds() {
				own = append(own, core.Settlement{Return: core.Return{Charge: c}, Hold: h.ID, Ends: true})
			}
		}
		if _, err = p.settle(ctx, own); err == nil {
			err = s.hold(ctx, b, &asks[0], h)
		}
	}
	if errors.Is(err, lua.ErrValue) || err == nil && h.Found == core.HoldEnded {
		return s.takeUnheld(ctx, ask, h)
	}
	for i := range h.Over { // the caller knows no hashed keys
		of := &h.Over[i]
		at := slices.IndexFunc(asks[0].Charges, func(c core.Charge) bool { return c.SameState(&of.Charge) })
		of.Charge = ask.Charges[at]
	}
	ask.Decision = asks[0].Decision
	return s.report(err)
}

func (s *Store) takeUnheld(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	h.Found, h.Over = core.HoldRefused, nil
	list := []core.Ask{*ask}
	err := s.Take(ctx, list)
	ask.Decision = list[0].Decision
	return err
}

// hold makes the call, and once more if several algorithms may charge the keys. The charges are
// copies, with hashed keys.
func (s *Store) hold(ctx context.Context, b *batcher, ask *core.Ask, h *core.Hold) error {
	for tallied := b.talliedScript(); ; {
		call := b.rules.Held(b.part.prefix, s.now(), s.grace, ask, h, tallied)
		reply, err := s.numbered(ctx, &invocation{script: call.Script, keys: call.Keys, args: call.Args}, []core.Ask{*ask})
		if err != nil {
			return err
		}
		err = call.Decode(reply, ask, h)
		next := b.nextTallied(err, tallied)
		if next == nil {
			return err
		}
		tallied = next
		b.tallied.Store(ticks() + int64(talliedFor))
	}
}

// Settle implements [core.Holder]. It is one call.
func (s *Store) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	if err := core.ValidateSettlements(list); err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	for i := range list {
		s.hasher.replaceOne(&list[i].Charge)
		list[i].Leases = slices.Clone(list[i].Leases)
		s.hasher.replace(list[i].Leases)
	}
	done, err := s.part.settle(ctx, list)
	return done, s.report(err)
}

// settle settles holds with hashed keys. It changes the list.
func (p *part) settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	owes := slices.ContainsFunc(list, func(s core.Settlement) bool { return s.Used > s.Cost && !s.Ends })
	done, err := p.settleAll(ctx, list, owes, false)
	for i := range list {
		list[i].Leases = nil // released, or the caller has an error about Redis
	}
	if errors.Is(err, lua.ErrOwes) { // the hold has ended, maybe
		done, err = p.settleAll(ctx, list, true, false)
	}
	if errors.Is(err, lua.ErrValue) { // keys that several algorithms charge, maybe
		done, err = p.settleAll(ctx, list, true, true)
	}
	return done, err
}

func (p *part) settleAll(ctx context.Context, list []core.Settlement, owes, tallied bool) ([]core.Settled, error) {
	call := lua.NewSettlements(p.prefix, p.store.now(), p.store.grace, list, owes, tallied)
	reply, err := p.store.run(ctx, &invocation{script: call.Script, keys: call.Keys, args: call.Args})
	if err != nil {
		return nil, err
	}
	done, err := call.Decode(reply, list)
	if call.Unreleased { // keys that several algorithms charge, maybe
		if _, problem := p.leases(ctx, core.Leased(list), false); errors.Is(problem, core.ErrUnavailable) {
			return nil, problem
		}
	}
	return done, err
}

// Extend implements [core.Holder].
func (s *Store) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	if err := core.ValidateExtensions(list); err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	for i := range list {
		s.hasher.replaceOne(&list[i].Charge)
	}
	script, keys, args := lua.NewExtensions(s.part.prefix, s.now(), s.grace, list)
	reply, err := s.run(ctx, &invocation{script: script, keys: keys, args: args})
	if err == nil && len(reply) != len(list) {
		err = errWrongReply
	}
	if err != nil {
		return nil, s.report(err)
	}
	lived := make([]bool, len(list))
	for i, n := range reply {
		lived[i] = n == 1
	}
	return lived, nil
}

// Account returns what the key of a charge owes and holds: see [core.AccountOf]. It calls Redis
// once for each 1,000 holds or so. A key that several algorithms charge shows no debt.
func (s *Store) Account(ctx context.Context, c core.Charge) (a core.Account, err error) {
	if err := core.ValidateCharges([]core.Charge{c}); err != nil {
		return a, err
	}
	p := s.partOf(c.Key)
	s.hasher.replaceOne(&c)
	script, keys, args := lua.NewAccount(p.prefix, s.now(), &c)
	for {
		reply, err := s.run(ctx, &invocation{script: script, keys: keys, args: args})
		if err == nil {
			err = lua.AddAccount(reply, &a)
		}
		if err != nil || reply[0] == 0 {
			return a, s.report(err)
		}
		args[len(args)-1] = reply[0]
	}
}
