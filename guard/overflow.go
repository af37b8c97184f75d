package guard

import (
	"context"
	"hash/fnv"
	"strconv"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
)

// A flood of random keys must not fill the store, any more than the memory. So
// a key for which the memory has no room is charged in the store to one that it
// shares with others of its rule, unless the store knows it already. And as in
// the memory (memstore/overflow.go), what such a key may have taken from a
// shared one must count when it gets one of its own: as long as it does, the
// memory, which counts all that this process admits, must admit too.

const (
	// overflowSuffix is added to the name of a rule for its shared keys. No rule
	// of package limit can have it in its name, and no key is a part of one.
	overflowSuffix = "~overflow"

	// overflowKeys is how many keys those of one rule share in the store. All
	// instances mean the same ones, so that one key has one of them.
	overflowKeys = 256
)

// A crowd says of which charges the memory says that they have, or may have, to
// do with a cell. The nil crowd is that of none.
type crowd [core.MaxCharges]memstore.Place

// crowd returns that of charges. Rules that everyone shares are few, and are
// always charged by themselves.
func (s *Store) crowd(policy string, charges []core.Charge) *crowd {
	if !s.own.Crowded() {
		return nil
	}
	var found *crowd
	c := s.copies(charges)
	defer c.free()
	c.widen(nil)
	for i := range c.charges {
		if c.charges[i].Key == "" {
			continue
		}
		if place := s.own.Place(policy, &c.charges[i]); place != memstore.Own {
			if found == nil {
				found = new(crowd)
			}
			found[i] = place
		}
	}
	return found
}

// has reports whether the memory must admit the i-th charge.
func (w *crowd) has(i int) bool { return w != nil && w[i] != memstore.Own }

// mode is the mode of a decision that the store has made.
func (w *crowd) mode(m core.Mode) core.Mode {
	if w != nil {
		return max(m, core.ModeOverflow)
	}
	return m
}

// moved reports whether the memory has charged a key by itself meanwhile whose
// shared key the store was charged to: room has come in between. The next
// decision on it would find nothing in the store.
func (s *Store) moved(policy string, charges, asked []core.Charge) bool {
	for i := range charges {
		if asked[i].Rule != charges[i].Rule && charges[i].Cost > 0 && s.own.Place(policy, &charges[i]) == memstore.Own {
			return true
		}
	}
	return false
}

// rename returns charges as the store is to be asked for them. Whom it knows by
// an earlier admission, maybe of another instance, keeps its own key there: so
// nobody who is at a limit comes to a shared one.
func (s *Store) rename(
	ctx context.Context, policy string, charges []core.Charge, w *crowd, now int64, probe bool,
) ([]core.Charge, error) {
	var looks, renamed []core.Charge
	for i := range charges {
		if w.has(i) && w[i] == memstore.Cell {
			look := charges[i]
			look.Cost = 0
			looks = append(looks, look)
		}
	}
	if looks == nil {
		return charges, nil
	}
	d, err := s.ask(ctx, policy, looks, now, probe)
	if err != nil {
		return nil, err
	}
	renamed = append(renamed, charges...)
	at := 0
	for i := range charges {
		if !w.has(i) || w[i] != memstore.Cell {
			continue
		}
		// A bucket that begins without its tokens never looks new.
		if known := d.Outcomes()[at].ResetAfter > 0 && charges[i].Quota.Missing == 0; !known {
			renamed[i] = shared(charges[i])
		}
		at++
	}
	return renamed, nil
}

// shared returns c as a charge on the key that its key shares in the store.
// Rules have their own, and so have keys of one rule whose quotas differ in more
// than a limit: see memstore.
func shared(c core.Charge) core.Charge {
	q := c.Quota
	if !rate(q) {
		q.Limit = 0
	}
	hash := fnv.New32a()
	hash.Write([]byte(c.Key))
	b := strconv.AppendUint(nil, uint64(hash.Sum32()%overflowKeys), 10)
	for _, n := range []int64{int64(q.Algorithm), q.Limit, q.Window, q.Burst, q.Cells, q.Missing, q.MaxWait} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	if q.Aligned {
		b = append(b, ",="...)
	}
	if q.Calendar.Unit != 0 {
		b = strconv.AppendInt(append(b, ','), int64(q.Calendar.Unit), 10)
		b = append(append(b, ','), q.Calendar.Zone.String()...)
	}
	c.Rule += overflowSuffix
	c.Key = string(b)
	return c
}

// allShared returns the charges on shared keys of those that have any.
func allShared(charges []core.Charge) []core.Charge {
	list := make([]core.Charge, len(charges))
	for i, c := range charges {
		list[i] = shared(c)
	}
	return list
}
