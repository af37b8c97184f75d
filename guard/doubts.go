package guard

import (
	"errors"
	"hash/maphash"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// doubts are when this process last decided without the store, which does not
// know what it admitted then. Where the store may have forgotten, that is the same
// as for all keys: what this process knows of them, the store may not know either.
type doubts struct {
	tells  atomic.Bool  // whether the store says if it has forgotten
	all    moment       // for all keys
	leased moment       // when this process last renewed a lease that the store does not know
	any    atomic.Bool  // whether there is a time for a key
	seed   maphash.Seed // of the hashes of keys
	of     [4096]moment // for those with a hash
}

// A moment is a time in µs. The zero moment is as long ago as can be.
type moment struct{ sinceNever atomic.Int64 }

const never = -1 << 62

func (m *moment) time() int64 { return m.sinceNever.Load() + never }

// advance makes the moment no earlier than now.
func (m *moment) advance(now int64) {
	for {
		last := m.sinceNever.Load()
		if last >= now-never || m.sinceNever.CompareAndSwap(last, now-never) {
			return
		}
	}
}

func (d *doubts) key(policy string, c *core.Charge) *moment {
	var h maphash.Hash
	h.SetSeed(d.seed)
	for _, s := range []string{policy, c.Rule, c.Key} {
		h.WriteString(s)
		h.WriteByte(0) // two that meet are in doubt together, and no more
	}
	return &d.of[h.Sum64()%uint64(len(d.of))]
}

// doubts reports whether the store may not know what this process has admitted
// for c: it has decided alone too recently, or holds leases of its own. Who wants
// to let everything pass does not want to pay for it later.
func (s *Store) doubts(policy string, c *core.Charge, now int64) bool {
	last := s.doubt.all.time()
	if s.doubt.any.Load() {
		last = max(last, s.doubt.key(policy, c).time())
	}
	if c.Quota.Algorithm == core.Concurrency {
		last = max(last, s.doubt.leased.time())
	}
	if last == never || c.OnError == core.Allow {
		return false
	}
	// A bucket that is never full never forgets. For a single instance the memory
	// is as good as the store, and has its say from then on.
	return now-last < span(c.Quota)+slack || s.instances == 1 && rate(c.Quota)
}

// doubtful reports whether s doubts one of the charges.
func (s *Store) doubtful(policy string, charges []core.Charge, now int64) bool {
	if s.doubt.all.time() == never && s.doubt.leased.time() == never && !s.doubt.any.Load() {
		return false
	}
	for i := range charges {
		if s.doubts(policy, &charges[i], now) {
			return true
		}
	}
	return false
}

// mark remembers that this process decides alone on charges. A single instance
// knows as much as the store, so that it costs nothing to doubt all.
func (s *Store) mark(policy string, charges []core.Charge, now int64) {
	if s.instances == 1 || !s.doubt.tells.Load() {
		s.doubt.all.advance(now)
		return
	}
	for i := range charges {
		s.doubt.key(policy, &charges[i]).advance(now)
		s.doubt.any.Store(true)
	}
}

// learn learns from an error of the store what is in doubt.
func (s *Store) learn(err error) {
	if !errors.Is(err, core.ErrUnavailable) {
		return
	}
	forgotten := errors.Is(err, core.ErrForgotten)
	s.doubt.tells.Store(forgotten || errors.Is(err, core.ErrOutOfReach))
	if forgotten {
		s.doubt.all.advance(s.now())
	}
}
