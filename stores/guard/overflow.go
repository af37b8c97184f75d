package guard

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/routelimit/limit/core"
)

// A key for which the memory has no room is charged in the store to an overflow quota that it
// shares with other keys of its rule, unless the store knows it: see docs/design/memory-store.md.
// Units that it may have taken there must count when it gets a quota of its own. So as long as they
// do, the memory must admit too.

const (
	// overflowVariant marks the overflow quotas of a rule. The variants of package limit cannot
	// have it.
	overflowVariant = "~overflow"

	// overflowQuotas is how many of them a rule has in the store.
	overflowQuotas = 256
)

// overflows reports whether the memory may decide a key by an overflow quota.
func (s *Store) overflows(now int64) bool { return now < s.overflow.time() }

// renew renews leases on the keys' own quotas, and on overflow quotas: also if the
// store could not renew some of the first.
func (s *Store) renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	held, err := s.store.Renew(ctx, charges)
	if err != nil && len(held) != len(charges) || !s.overflows(s.now()) || !slices.Contains(held, false) {
		return held, err
	}
	shared, other := s.store.Renew(ctx, allShared(charges))
	for i := range shared {
		held[i] = held[i] || shared[i]
	}
	return held, cmp.Or(err, other)
}

// release releases leases on the keys' own quotas, and on overflow quotas.
func (s *Store) release(ctx context.Context, charges []core.Charge) error {
	err := s.store.Release(ctx, charges)
	if err != nil || !s.overflows(s.now()) {
		return err
	}
	return s.store.Release(ctx, allShared(charges))
}

// noticed notes a decision of the memory by overflow quotas. What was taken there
// counts for at most twice the span of the quota. A ban takes nothing there.
func (c *call) noticed(charges []core.Charge, d *core.Decision) {
	if d.Mode != core.ModeOverflow {
		return
	}
	for i := range charges {
		if d.Overflow(i) == core.OwnQuota {
			continue
		}
		span := charges[i].Quota.Span()
		if charges[i].Quota.Bars() {
			span = charges[i].Quota.Window
		}
		c.guard.overflow.advance(c.now + 2*span)
	}
}

// findOverflow finds the charges that the memory would decide by an overflow
// quota. Rules that all requests share are few, and always have their own.
func (c *call) findOverflow() {
	m := c.shares()
	defer m.free()
	m.look()
	for i := range m.charges {
		if !c.doubtful.has(i) {
			m.charges[i].Quota = c.full(i)
		}
	}
	d, err := c.takeOwn(m)
	for i := range m.charges {
		if err != nil || c.charges[i].Key == "" {
			continue
		}
		switch d.Overflow(i) {
		case core.SharedQuota:
			c.shared.add(i)
			c.overflow.add(i)
		case core.BothQuotas:
			c.overflow.add(i)
		}
	}
}

// askShared asks the store, and returns the charges as it was asked for them: keys without a quota
// in memory on overflow quotas. Keys that the store knows from an earlier admission, perhaps by
// another instance, keep their own quota. So a key that is over its limit gets nothing from an
// overflow quota.
func (c *call) askShared(d *core.Decision) (asked []core.Charge, err error) {
	if c.shared == 0 {
		return c.charges, c.ask(c.charges, d)
	}
	var looks []core.Charge
	for i, look := range c.charges {
		if c.shared.has(i) {
			look.Cost = 0
			looks = append(looks, look)
		}
	}
	if err := c.ask(looks, d); err != nil {
		return nil, err
	}
	asked = slices.Clone(c.charges)
	found := d.Outcomes()
	for i := range asked {
		if !c.shared.has(i) {
			continue
		}
		// A bucket that begins with tokens missing never looks new.
		if known := found[0].ResetAfter > 0 && asked[i].Quota.Missing == 0; !known {
			asked[i] = shared(asked[i])
		}
		found = found[1:]
	}
	return asked, c.ask(asked, d)
}

// moved reports whether the memory, which decided own, charged a key's own quota although the store
// charged an overflow quota. The next decision on the key would not find in the store what it took.
func (c *call) moved(asked []core.Charge, own *core.Decision) bool {
	for i := range c.charges {
		if asked[i].Variant != c.charges[i].Variant && c.charges[i].Cost > 0 && own.Overflow(i) != core.SharedQuota {
			return true
		}
	}
	return false
}

// shared returns c as a charge on the overflow quota of its key in the store.
// All instances choose the same one. A ban has none, since clients would be barred
// for the strikes of others: it becomes a look at a quota that no charge takes from.
func shared(c core.Charge) core.Charge {
	if c.Quota.Bars() {
		c.Quota, c.Cost = core.Quota{Limit: c.Quota.Limit, Window: c.Quota.Window}, 0
	}
	key, quota := fnv.New32a(), fnv.New64a()
	key.Write([]byte(c.Key))
	q := c.Quota.OverflowQuota()
	quota.Write(q.Append(nil))
	c.Variant += overflowVariant
	c.Key = fmt.Sprintf("%d:%x", key.Sum32()%overflowQuotas, quota.Sum64())
	return c
}

// allShared returns the charges on overflow quotas.
func allShared(charges []core.Charge) []core.Charge {
	list := make([]core.Charge, len(charges))
	for i, c := range charges {
		list[i] = shared(c)
	}
	return list
}
