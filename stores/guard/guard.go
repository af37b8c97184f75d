// Package guard keeps a service deciding while its shared store is unavailable.
//
// A guard is a [core.Store] that wraps another one. While the store works, the guard counts in
// memory what the store admits for this process. When a call fails with [core.ErrUnavailable], each
// rule is decided as its OnError says: by that memory, by admitting the request, or by refusing it.
// A limit that one process has to itself therefore holds while its store fails and recovers.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// Instances is how many processes share the store, each behind a guard. While the store is
	// unavailable, each admits at most this part of a limit, rounded up. 0 means 1: the full limit.
	Instances int

	// Slow is the time above which a call is slow. If half of the last 20 calls are slow, the
	// guard treats the store as unavailable. 0 means 250 ms. The store bounds calls itself.
	Slow time.Duration

	// MaxKeys bounds the keys that this process keeps in memory and adds to the store, as
	// [memstore.Options].MaxKeys does. 0 means [memstore.DefaultMaxKeys]. Beyond it, new keys
	// share overflow quotas: see [Store].
	MaxKeys int

	// Log receives a line when the store becomes unavailable, with the reason,
	// one a minute while that lasts, and one when the store has decided again
	// for 5 s. Nil means [slog.Default]; slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger
}

// A Store guards another one. It is safe for concurrent use and needs no closing. It runs a
// goroutine only while there is something to release or to pay, or an outage lasts. The Mode of a
// decision says how it was made.
//
// # Outages
//
// A breaker stops calls to a store that fails: after five failures in a row, or when half of the
// last 20 calls were slow, one call at a time probes the store until it answers. The other requests
// are decided at once, by OnError of each rule:
//
//   - [core.Local]: by what this process remembers.
//   - [core.Allow]: the rule admits every request. It reports its full capacity as remaining.
//   - [core.Refuse]: the rule refuses every request until the next probe.
//
// A charge of cost 0 reports what the next request would meet. A call that fails with
// [core.ErrBlocked] is decided in the same way. It says nothing about the store, so it neither
// opens the breaker nor keeps it open.
//
// It is unknown whether a call that failed has taken its charges. After an outage, the store may
// have counted a request that was refused, or one request twice. Leases of [core.Concurrency] are
// released once the store answers: those that a failed Release has left, and those of a refused
// request after a Take without an answer, if the store says until when it may take them (see
// [core.Store]). So each Take needs new ids.
//
// # Debts
//
// What a process admits without the store is a debt. It is charged as soon as the store answers,
// as of the time at which it was used: before the next decision on its key, and the rest by a
// timer, at 10,000 a second over all processes. From then on the store alone decides. A payment
// without an answer is made again: nothing is admitted twice, but units in flight when the store
// falls silent once more may count twice. Rules with Allow, and refusals, owe nothing. A reset
// cancels older debts, in a redisstore also those of other processes. A process that dies loses
// its debts: it has admitted at most its share of each limit, again at each crash.
//
// A store that may have lost data ([core.ErrForgotten]) is compared with the memory, key by key,
// and charged for what it lacks. Until that is done, usually for less than a second, the memory
// must admit too. Leases, strikes and values of [core.Distinct] cannot be compared: for a window,
// the memory must admit those too. It must admit everything for a window after an outage in which
// more than 65,536 keys owe, and after each failed call whose error does not wrap
// [core.ErrOutOfReach], since such a store may lose data and not say so.
//
// # Guarantees
//
// With one instance, an outage never admits more than the rules promise, whether data is lost or
// not. With M instances, a window of a limit N admits at most N + (M-1)·⌈N/M⌉ under a sliding log
// or sliding cells. Other algorithms admit at most twice what the rule promises, plus the rounding
// of shares; queues admit one more burst each time the store loses its data. If an instance makes
// no request for a second after a loss, what it has admitted is missing there: then all algorithms
// admit at most twice what they promise.
//
// A loss that no failed call shows, as by FLUSHALL, goes unnoticed until the store reports it, as
// a redisstore does within a second, or at once if it counts less than half of what this process
// has taken. Until then the lost units are admitted again, beyond these bounds.
//
// The store alone knows the bars of a [core.Ban]: during an outage, each process counts the strikes
// of the requests that it refuses itself, up to the full Limit.
//
// # Overflow
//
// A flood of random keys fills neither the memory nor the store. Once this process tracks
// [Options].MaxKeys partly used keys, a new key that the store does not know is charged to one of
// 256 overflow quotas of its rule in the store, and to one in memory, each as large as that of one
// key. Such decisions have the mode [core.ModeOverflow]. Their units are not refundable, except for
// rules that all requests share. A [core.Ban] counts no strikes of such a key, and does not bar it.
//
// With one instance, no key gets more than its limit. With several, a key may use its own limit
// and a part of the overflow quota that it shares with other keys. Known keys are not affected,
// and a key over its limit gets nothing from an overflow quota. A process that restarts does not
// remember which keys used overflow quotas.
//
// # Cost
//
// The guard needs the memory of a [memstore.Store] that sees what this process admits, and makes
// one decision in it for every admitted request.
type Store struct {
	store     core.Store      // that is guarded
	own       *memstore.Store // counts what this process admits
	instances int64
	slow      int64        // µs
	now       func() int64 // µs
	breaker   breaker
	doubts    doubts
	debts     debts
	raises    raises
	outage    outage
	census    census
	overflow  moment // from then on, the memory decides no key by an overflow quota

	unreleased unreleased
}

var _ core.Store = (*Store)(nil)

const defaultSlow = 250 * time.Millisecond

// New returns a guard around store. A nil options means the zero Options. New
// panics if store is nil or an option is negative.
func New(store core.Store, options *Options) *Store {
	if options == nil {
		options = &Options{}
	}
	base := time.Now()
	micros := base.UnixMicro()
	own := memstore.New(&memstore.Options{MaxKeys: options.MaxKeys})
	s := newStore(store, options, own, func() int64 { return micros + time.Since(base).Microseconds() })
	s.debts.after = func(in time.Duration, f func()) { time.AfterFunc(in, f) }
	return s
}

func newStore(store core.Store, options *Options, own *memstore.Store, now func() int64) *Store {
	if store == nil {
		panic("guard: the store is nil: write guard.New(redisstore.New(client, nil), nil)")
	}
	if options.Instances < 0 || options.Slow < 0 {
		panic(fmt.Sprintf("guard: Instances is %d and Slow is %v: write at least 1 and 1µs, or 0 for the defaults",
			options.Instances, options.Slow))
	}
	s := &Store{store: store, own: own, now: now,
		instances: max(1, int64(options.Instances)), slow: cmp.Or(options.Slow, defaultSlow).Microseconds()}
	s.outage.log.To = options.Log
	s.doubts.begin(store, s.instances == 1)
	s.raises.done.Store(new(map[scale]int64))
	s.debts.keys = make(map[debtor]*debt)
	s.debts.after = func(time.Duration, func()) {} // a test sets the time
	s.census.due.Store(now() + censusEvery)        // a program that runs for less does not count
	return s
}

// Check checks the guarded store, also while the breaker is open: see [core.Check]. It
// neither counts as a call of the store nor logs.
func (s *Store) Check(ctx context.Context) error { return core.Check(ctx, s.store) }

// unavailable reports whether the breaker is open: requests are decided without the
// store until a probe succeeds.
func (s *Store) unavailable() bool { return s.breaker.until.Load() != closed }

// Condition says what the guard does now, and what it has done.
func (s *Store) Condition() core.Condition {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	c := core.Condition{
		Unavailable: s.unavailable() || o.count > 0 && s.now()-o.last < justNow,
		Outages:     o.count,
		Blocked:     o.blocked.Load(),
		Owed:        s.debts.units.Load(),
		Paid:        s.debts.paid.Load(),
		Repeated:    s.debts.repeated.Load(),
	}
	if o.count > 0 {
		c.Since, c.Until = time.UnixMicro(o.began), time.UnixMicro(o.last)
	}
	c.Lost, c.Doubted = s.raises.lost.wall(), s.doubts.all.wall()
	return c
}

// Take implements [core.Store]. It returns errors of the store that do not wrap
// [core.ErrUnavailable], and the error of a ctx that is done. Neither admits. Several asks are one
// call of the store while it decides alone. Otherwise each is decided by itself, in their order,
// and may be decided at another time.
func (s *Store) Take(ctx context.Context, asks []core.Ask) error {
	if err := cmp.Or(core.ValidateAsks(asks), ctx.Err()); err != nil {
		return err
	}
	if began := s.doubts.last.time(); asks[0].Owes() || len(asks) > 1 && s.decidesAlone(asks) {
		return s.takeTogether(ctx, asks, began)
	}
	for i := range asks {
		c := call{attempt: attempt{guard: s, ctx: ctx}, of: asks[i : i+1], charges: asks[i].Charges}
		if err := c.finish(c.take(&asks[i].Decision)); err != nil {
			for j := range asks[:i] {
				_ = core.Undo(ctx, s, asks[j].Charges, &asks[j].Decision) // otherwise it stays taken, which is safe
			}
			return err
		}
	}
	return nil
}

// decidesAlone reports whether the store alone decides all asks, as far as can be known before it
// is asked.
func (s *Store) decidesAlone(asks []core.Ask) bool {
	now := s.now()
	for i := range asks {
		if s.doubtful(asks[i].Charges, now) != 0 {
			return false
		}
	}
	return !s.unavailable() && !s.overflows(now)
}

// takeTogether asks the store for all asks at once, and counts in memory what each took.
func (s *Store) takeTogether(ctx context.Context, asks []core.Ask, began int64) (failed error) {
	a := attempt{guard: s, ctx: ctx, began: began}
	err := errOpen
	if a.enter() {
		defer a.leave()
		err = a.ask(asks)
	}
	for i := range asks {
		c := call{attempt: a, of: asks[i : i+1], charges: asks[i].Charges}
		problem := err
		if d := &asks[i].Decision; err != nil {
			c.unanswered(err)
		} else if d.Allowed {
			c.forgive(d.Forgiven)
			problem = c.counted(d)
		}
		failed = cmp.Or(failed, c.finish(problem))
	}
	return failed
}

// forgive leaves out units of a debt that were not taken, of an ask of one charge. Those of others
// are counted.
func (c *call) forgive(units int64) {
	if units > 0 && len(c.charges) == 1 {
		owed := c.charges[0]
		owed.Cost -= units
		c.charges = []core.Charge{owed}
	}
}

// finish ends a call that the store has decided, or failed to decide with err.
func (c *call) finish(err error) error {
	d := &c.of[0].Decision
	if unavailable(c.ctx, err) {
		err = c.takeLocal(d, err)
	}
	switch admitted := err == nil && d.Allowed; {
	case c.mayTake != 0:
		c.forsake(admitted)
	case admitted && !c.entered:
		c.guard.unreleased.own(c.charges)
	}
	if err != nil {
		*d = core.Decision{}
	}
	return err
}

// unavailable reports whether err, of a call with ctx, means that the store is
// unavailable. An error after the end of ctx says nothing about the store.
func unavailable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && errors.Is(err, core.ErrUnavailable)
}
