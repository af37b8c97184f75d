package memstore

import (
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// A Place is what a charge is taken from.
type Place uint8

// The places.
const (
	Own  Place = iota // an entry of its key's own
	Both              // such an entry, but what its key may have taken from a cell still counts
	Cell              // a cell that keys share for want of room, or not even that
)

// Crowded reports whether keys share cells, or have so recently that what they
// took there still counts. If not, the place of every known key is [Own], and
// that of a new one too, as far as anybody has found out. It takes no lock.
func (s *Store) Crowded() bool {
	until := s.crowded.Load()
	return until != 0 && until > s.now()
}

// Place returns where Take would take c from if it came now and alone. Others
// that come meanwhile may change that.
func (s *Store) Place(policy string, c *core.Charge) Place {
	hash := s.hash(policy, c)
	keys := []found{{hash: hash, shard: shardOf(hash, c.Key)}}
	now := s.lock(keys)
	defer s.unlock(keys)
	k := &keys[0]
	k.entry = s.shards[k.shard].keys.find(hash, policy, c)
	if k.entry == nil {
		s.place(keys, 0, policy, c, now)
	}
	e := k.entry
	if e == nil {
		return Cell
	}
	if !e.known && !e.debt {
		defer newcomers.Put(e)
	}
	switch {
	case e.cell:
		return Cell
	case e.debt && !e.known || e.shared > now:
		return Both
	}
	return Own
}

// raise makes v at least as late as until.
func raise(v *atomic.Int64, until int64) {
	for {
		last := v.Load()
		if last >= until || v.CompareAndSwap(last, until) {
			return
		}
	}
}
