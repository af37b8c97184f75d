package memstore

import "github.com/routelimit/limit/core"

// Owe implements [core.State]: a ban that cannot strike has no debts.
func (*noStrikes) Owe(*core.Quota, int64, int64, uint64) {}

// Owe implements [core.State]. Nothing is remembered of the key, which has no room.
func (noRoom) Owe(*core.Quota, int64, int64, uint64) {}

// Owe implements [core.State]: the units count in both quotas.
func (b *both) Owe(q *core.Quota, n, at int64, id uint64) {
	b.own.Owe(q, n, at, id)
	b.shared.state().Owe(q, n, at, id)
}
