// Package guard is a [core.Store] around another one, for when that fails.
//
// While the store works, the guard counts in memory what the store admits for
// this process. When a call fails with [core.ErrUnavailable], or is not made
// because several have, each charge is decided as its rule wants: by that
// memory, by letting it pass, or by refusing it. So a limit that one process
// has all to itself holds across the death and the return of its store.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
)

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// Instances is how many processes share the store, each behind a guard.
	// While the store is out of reach, each admits at most that part of a
	// limit, rounded up. 0 means 1: the whole limit.
	Instances int

	// Slow is how long a call may take. If half of the last 20 take longer,
	// the store is as good as out of reach. 0 means 250 ms. A call is bounded
	// by the store, and not by the guard.
	Slow time.Duration

	// MaxKeys is how many keys this process keeps in memory, and adds to the
	// store, as [memstore.Options].MaxKeys is; 0 means [memstore.DefaultMaxKeys].
	// What happens beyond is told at [Store].
	MaxKeys int

	// Log gets a line when decisions begin to be made without the store, with the
	// reason, one a minute while that lasts, and one when the store has decided again
	// for 5 s. Nil means [slog.Default]; slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger
}

// A Store guards another one. It is safe for concurrent use, starts no
// goroutine and needs no closing. A decision says in its Mode how it was made.
//
// It promises, with one instance, what the rules promise, as long as a store
// that forgets (killed, and started again without its data) fails a call of
// this process meanwhile, or tells. With M instances a window admits at most
// N + (M-1)·⌈N/M⌉ where the algorithm is a sliding log or sliding cells. Where
// it is another one, twice what the rule promises and what the rounding of shares
// adds, and buckets and queues a burst more each time that the store forgets.
//
// A process of which no call fails while the store forgets, as in a failover between
// two of its requests, knows of that only what the store tells: until then that
// admits once more what it has forgotten, beyond these bounds.
//
// For as long as units that were admitted without the store matter, both the
// store and the memory must admit: for a window, or the time that a bucket takes
// to fill, and in a bucket of a single instance from then on. What one of them admits and the other refuses is given back.
//
// With several instances, one that has decided on a key without the store, be it once,
// admits no more than its share of it for a window afterwards, for a day where the
// window is one; and so of every key, where the store may have forgotten: it has said so by
// [core.ErrForgotten], or does not say such things ([core.ErrOutOfReach]).
//
// A flood of random keys fills neither the memory nor the store. Beyond
// [Options].MaxKeys that are not whole, a new key that the store does not know is
// charged to one of 256 keys of its rule there, and to a cell here; both have the quota of
// one key. Known keys do not notice. Such decisions have the mode
// [core.ModeOverflow], and what they have taken is not given back, but for rules that
// everyone shares. With one instance no key gets more than its limit. With several, a key may get its limit of
// its own key, and what it gets of the shared one, which is at most a limit for
// all keys that share it; a key that is at its limit gets nothing of it. A process that
// starts anew does not know who has taken from shared keys before.
//
// Whether a call that failed has taken its charges is unknown: a store that
// comes back may have counted a request that was refused, or one twice.
//
// What it costs is memory, as that of a [memstore.Store] that sees what this
// process admits, and one decision of it for each request that is admitted.
type Store struct {
	store     core.Store
	own       *memstore.Store // counts what is admitted here
	instances int64
	slow      int64        // µs
	now       func() int64 // µs
	breaker   breaker
	doubt     doubts
	outage    outage
}

var _ core.Store = (*Store)(nil)

const (
	defaultSlow = 250 * time.Millisecond

	// slack covers what lies between two readings of clocks in this process.
	slack = 1_000
)

// New returns a guard around store. A nil options means the zero Options. New
// panics on a nil store and on options that make no sense.
func New(store core.Store, options *Options) *Store {
	base := time.Now()
	micros := base.UnixMicro()
	var keys memstore.Options
	if options != nil {
		keys.MaxKeys = options.MaxKeys
	}
	return newStore(store, options, memstore.New(&keys), func() int64 { return micros + time.Since(base).Microseconds() })
}

func newStore(store core.Store, options *Options, own *memstore.Store, now func() int64) *Store {
	if store == nil {
		panic("guard: the store is nil: write guard.New(redisstore.New(client, nil), nil)")
	}
	s := &Store{store: store, own: own, instances: 1, slow: defaultSlow.Microseconds(), now: now}
	if options != nil {
		if options.Instances < 0 || options.Slow < 0 {
			panic(fmt.Sprintf("guard: %d instances, slow %v: write at least 1 and 1µs, or 0 for the usual",
				options.Instances, options.Slow))
		}
		s.instances = max(1, int64(options.Instances))
		if options.Slow > 0 {
			s.slow = options.Slow.Microseconds()
		}
		s.outage.log = options.Log
	}
	s.doubt.seed = maphash.MakeSeed()
	return s
}

// Take implements [core.Store]. It returns the errors of the store that do not
// wrap [core.ErrUnavailable], and that of a ctx that is done; neither admits.
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := core.ValidateCharges(charges); err != nil {
		return core.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	now := s.now()
	may, probe := s.breaker.enter(now)
	if !may {
		return s.alone(policy, charges, now, errSlow)
	}
	crowd := s.crowd(policy, charges)
	doubtful := s.doubtful(policy, charges, now)
	if crowd == nil && !doubtful {
		d, err := s.ask(ctx, policy, charges, now, probe)
		if err == nil && d.Allowed {
			return s.count(ctx, policy, charges, d)
		}
		return s.settle(ctx, policy, charges, d, err)
	}
	counted := false
	left, room := s.room(policy, charges, now, crowd)
	if !room {
		own, failure := s.also(policy, charges, now, crowd)
		if failure != nil || !own.Allowed {
			if doubtful || probe {
				// Asked all the same: nobody else may notice that it fails, and
				// forgets, before it is trusted again.
				failure = cmp.Or(failure, s.look(ctx, policy, charges, now, probe))
			}
			return s.settle(ctx, policy, charges, own, failure)
		}
		counted = true // room has come meanwhile
	}
	asked, err := s.rename(ctx, policy, charges, crowd, now, probe)
	if err != nil {
		return s.settle(ctx, policy, charges, core.Decision{}, err)
	}
	d, err := s.ask(ctx, policy, asked, now, probe)
	switch {
	case err == nil && !d.Allowed:
		s.merge(policy, charges, now, &d, &left, crowd)
	case err == nil && !counted:
		own, err := s.also(policy, charges, now, crowd)
		if err != nil || !own.Allowed {
			undo(ctx, s.store, policy, asked, &d)
			return own, err // others have come meanwhile
		}
		if s.moved(policy, charges, asked) {
			undo(ctx, s.store, policy, asked, &d)
			undo(ctx, s.own, policy, charges, &own)
			return s.Take(ctx, policy, charges)
		}
		s.merge(policy, charges, now, &d, &own, crowd)
	}
	d.Mode = crowd.mode(d.Mode)
	return s.settle(ctx, policy, charges, d, err)
}

// settle returns the decision of the store, or decides without it if it is out
// of reach.
func (s *Store) settle(
	ctx context.Context, policy string, charges []core.Charge, d core.Decision, err error,
) (core.Decision, error) {
	if err == nil || ctx.Err() != nil || !errors.Is(err, core.ErrUnavailable) {
		return d, err
	}
	return s.alone(policy, charges, s.now(), err)
}

// ask asks the store, and tells the breaker how it went.
func (s *Store) ask(
	ctx context.Context, policy string, charges []core.Charge, start int64, probe bool,
) (d core.Decision, err error) {
	result := silent // also should the store panic
	defer func() { s.breaker.leave(s.now(), probe, result) }()
	d, err = s.store.Take(ctx, policy, charges)
	s.learn(err)
	result = s.judge(ctx, start, err)
	if err == nil {
		s.outage.answered(s.now)
	}
	return d, err
}

// judge returns what a call that began at start tells of the store.
func (s *Store) judge(ctx context.Context, start int64, err error) result {
	switch {
	case errors.Is(err, core.ErrForgotten):
		return silent // it is back: the next one may ask at once
	case ctx.Err() == nil && errors.Is(err, core.ErrUnavailable):
		return failed
	case err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return silent
	case s.now()-start > s.slow:
		return slow // or nobody had the time to see
	case err != nil:
		return silent
	}
	return answered
}

// look asks the store, and takes nothing.
func (s *Store) look(ctx context.Context, policy string, charges []core.Charge, now int64, probe bool) error {
	c := s.copies(charges)
	defer c.free()
	c.look()
	for i := range charges {
		c.charges[i].Quota = charges[i].Quota
	}
	_, err := s.ask(ctx, policy, c.charges, now, probe)
	return err
}
