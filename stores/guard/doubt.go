package guard

import (
	"errors"
	"hash/maphash"
	"sync/atomic"

	"github.com/routelimit/limit/core"
)

// doubts are the times at which this process last decided without the store. The
// store does not know what was admitted then, so for a while the memory must
// admit too. If the store may have lost its data, all keys are doubtful: the
// store may not know anything that this process remembers.
type doubts struct {
	single  bool         // no other instance shares the store
	detects atomic.Bool  // the store reports lost data
	all     moment       // for all keys
	leased  moment       // when this process last renewed a lease that the store does not know
	any     atomic.Bool  // a key has a time of its own
	seed    maphash.Seed // of the hashes of keys
	keys    [4096]moment // for the keys with a hash
}

// slack covers the time between two readings of clocks in this process.
const slack = 1_000

func (d *doubts) begin(single bool) {
	d.single, d.seed = single, maphash.MakeSeed()
}

// of returns the charges for which the store may not know what this process
// admitted.
func (d *doubts) of(charges []core.Charge, now int64) (doubtful set) {
	if d.all.time() == never && d.leased.time() == never && !d.any.Load() {
		return 0
	}
	for i := range charges {
		if d.doubt(&charges[i], now) {
			doubtful.add(i)
		}
	}
	return doubtful
}

// doubt reports whether c is doubtful: this process decided it without the store
// too recently, or holds leases that the store does not know. A rule with
// [core.Allow] is not charged for requests admitted during an outage.
func (d *doubts) doubt(c *core.Charge, now int64) bool {
	last := d.last(c)
	if last == never || c.OnError == core.Allow {
		return false
	}
	// A bucket that is never full never forgets. The memory of a single instance
	// knows as much as the store, so it must admit from then on.
	return now-last < c.Quota.Span()+slack || d.single && c.Quota.Refills()
}

// last returns when c was last decided without the store.
func (d *doubts) last(c *core.Charge) int64 {
	last := d.all.time()
	if d.any.Load() {
		last = max(last, d.key(c).time())
	}
	if c.Quota.Leases() {
		last = max(last, d.leased.time())
	}
	return last
}

// remaining returns how long the doubt about c lasts, with several instances.
func (d *doubts) remaining(c *core.Charge, now int64) int64 {
	return d.last(c) + c.Quota.Span() + slack - now
}

// decided notes that this process decides charges without the store. A single
// instance knows as much as the store, so it can doubt all keys at no cost.
func (d *doubts) decided(charges []core.Charge, now int64) {
	if d.single || !d.detects.Load() {
		d.all.advance(now)
		return
	}
	for i := range charges {
		d.key(&charges[i]).advance(now)
	}
	d.any.Store(true)
}

// failed notes that a call has failed. The store may then lose its data, which
// matters unless it reports that.
func (d *doubts) failed(now int64) {
	if d.single || !d.detects.Load() {
		d.all.advance(now)
	}
}

// learn notes what an error of the store says about its data.
func (d *doubts) learn(err error, now int64) {
	if err == nil || !errors.Is(err, core.ErrUnavailable) {
		return
	}
	lost := errors.Is(err, core.ErrForgotten)
	d.detects.Store(lost || errors.Is(err, core.ErrOutOfReach))
	if lost {
		d.all.advance(now)
	}
}

// key returns the time for the key of c. Keys with the same hash are doubtful
// together, which is safe.
func (d *doubts) key(c *core.Charge) *moment {
	var h maphash.Hash
	h.SetSeed(d.seed)
	for _, s := range [...]string{c.Policy, c.Rule, c.Variant, c.Key} {
		h.WriteString(s)
		h.WriteByte(0)
	}
	return &d.keys[h.Sum64()%uint64(len(d.keys))]
}

// A moment is a time in µs. The zero moment is never.
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
