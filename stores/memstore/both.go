package memstore

import "github.com/routelimit/limit/core"

// both is the state of a charge that takes from its key's entry and from an overflow
// quota: it has the lesser room, and the longer times. For the other methods there
// is no call.
type both struct {
	core.State // none
	own        core.State
	shared     *entry

	room, ownRoom, sharedRoom int64
}

func (b *both) Advance(q *core.Quota, now int64) int64 {
	return b.rooms(b.own.Advance(q, now), b.shared.state().Advance(q, now))
}

func (b *both) rooms(own, shared int64) int64 {
	b.ownRoom, b.sharedRoom, b.room = own, shared, min(own, shared)
	return b.room
}

// Needs implements [core.State]. A value that only one of the two knows needs a unit
// of both.
func (b *both) Needs(c *core.Charge) int64 { return max(b.own.Needs(c), b.shared.state().Needs(c)) }

func (b *both) Take(n int64, lease uint64) (room, delay int64) {
	own, ownDelay := b.own.Take(n, lease)
	shared, sharedDelay := b.shared.state().Take(n, lease)
	return b.rooms(own, shared), max(ownDelay, sharedDelay)
}

func (b *both) Refuse(barred bool) bool {
	own, shared := b.own.Refuse(barred), b.shared.state().Refuse(barred)
	return own || shared
}

func (b *both) Owe(q *core.Quota, n, at int64, id uint64, repaid bool) {
	b.own.Owe(q, n, at, id, repaid)
	b.shared.state().Owe(q, n, at, id, repaid)
}

func (b *both) Used() int64 { return max(b.own.Used(), b.shared.state().Used()) }

// After implements [core.State]: both must have room for n units more than the
// lesser room.
func (b *both) After(n int64) int64 {
	return max(after(b.own, b.room+n-b.ownRoom), after(b.shared.state(), b.room+n-b.sharedRoom))
}

// after returns how long until there is room for n units more, if that takes any time.
func after(s core.State, n int64) int64 {
	if n <= 0 {
		return 0
	}
	return s.After(n)
}
