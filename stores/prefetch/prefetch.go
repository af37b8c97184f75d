// Package prefetch takes the units of hot rules in chunks.
//
// A prefetching [Store] wraps another one. For the rules that a program names, it takes a chunk of
// units in one call, and admits requests from that chunk without a call. A limit that many
// instances share then costs a call for hundreds of requests.
package prefetch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// A Rule names a rule of a policy, as a store sees them. Give both a name with
// limit.Named and limit.Rule.Name.
type Rule struct{ Policy, Name string }

// Options configures a [Store].
type Options struct {
	// Rules are the rules to prefetch. Name those whose keys get thousands of
	// requests a second, such as a global limit. Each key of a rule has chunks of
	// its own; keys with little traffic are decided exactly, by the store.
	Rules []Rule

	// Chunk is how many units a call takes at most. 0 means 1,000. Chunks grow and
	// shrink with the demand of the last milliseconds.
	Chunk int64

	// Hold is how long units are kept for requests to come, before they are given back. All
	// instances must use the same Hold. 0 means a hundredth of the rule's window, and at most a
	// second. A sliding log loses the part Hold/Window of its rate, and a bucket what refills in
	// Hold: see [Store]. Rules for which Hold is below a millisecond, or a bucket too small, are
	// not prefetched.
	Hold time.Duration
}

const defaultChunk = 1_000

// A Store takes the units of some rules in chunks, called permits, and hands them
// out. It is safe for concurrent use. Call [Store.Close] when the program stops.
//
// Put it around everything else that surrounds a store:
//
//	prefetch.New(refusals.New(guard.New(redisstore.New(client, nil), nil)), &prefetch.Options{…})
//
// # Guarantees
//
// All instances together never admit more than the rules promise. Permits are taken before they are
// handed out, so the store is charged with a quota that leaves room for that:
//
//   - [core.SlidingLog]: the window is longer by [Options].Hold. Requests are
//     limited to Limit in a Window and a Hold.
//   - [core.TokenBucket] and [core.LeakyBucket]: the burst is smaller by what
//     refills in Hold. Costs above it can never fit.
//   - [core.FixedWindow], [core.SlidingCells], [core.SlidingCounter]: nothing
//     changes. Permits are handed out in the window, or cell, that counts them.
//
// Rules of other algorithms, buckets with Missing tokens, and charges with a Variant are
// not prefetched. Asks with a charge that has a reserve or is a [core.Ban] get no permits:
// the store decides them, by these quotas. Permits that instances hold count for them.
//
// A request may be refused early. While an instance holds permits, the others can not use them. It
// holds about as many as it needs in half a Hold, and gives back what is left after a Hold. When
// the store refuses a chunk, requests of this rule alone that find no permits are refused without a
// call for a quarter of a Hold, with the mode [core.ModeRemembered] and the RetryAfter of the
// chunk. Before an instance refuses any other request, it gives back its own permits of the rule.
//
// An ask is decided as one: its permits are set aside, the store decides the other
// rules, and if that refuses, the permits are kept. What the permits do not decide of all
// asks of a call goes to the store in one call.
//
// After a Reset, other instances still hand out the permits that they hold, for at
// most a Hold. While the store fails, and while it decides on overflow quotas, each
// request is decided by the wrapped store. Permits that are held are handed out.
//
// # Outcomes
//
// Of a rule with permits, At is when they were taken, and Remaining is what the store
// had left then and what is left of the permits.
type Store struct {
	store   core.Store
	chunk   int64
	hold    int64 // µs; 0 means a part of the window
	base    time.Time
	rules   map[Rule]*rule
	pools   atomic.Int64
	closed  atomic.Bool
	pending sync.WaitGroup // background functions
}

var _ core.Store = (*Store)(nil)

// maxPools bounds the keys with permits. Other keys are decided exactly.
const maxPools = 1024

// A rule has the pools of the keys of one rule.
type rule struct {
	latest atomic.Pointer[plan]

	mu    sync.RWMutex
	pools map[string]*pool
}

func (r *rule) plan(q *core.Quota, hold int64) *plan {
	p := r.latest.Load()
	if p == nil || p.quota != *q {
		p = planOf(*q, hold)
		r.latest.Store(p)
	}
	return p
}

func (r *rule) find(key string) *pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pools[key]
}

// New returns a store that prefetches the rules that options name. It panics if
// they name none, or if a number is negative.
func New(store core.Store, options *Options) *Store {
	if store == nil || options == nil || len(options.Rules) == 0 {
		panic("prefetch: no store or no rules: write prefetch.New(store, &prefetch.Options{Rules: []prefetch.Rule{{Policy: …, Name: …}}})")
	}
	if options.Chunk < 0 || options.Hold < 0 {
		panic(fmt.Sprintf("prefetch: Chunk is %d and Hold is %v: write at least 1 and 1ms, or 0 for the defaults", options.Chunk, options.Hold))
	}
	s := &Store{store: store, chunk: cmp.Or(options.Chunk, defaultChunk), hold: options.Hold.Microseconds(),
		base: time.Now(), rules: make(map[Rule]*rule)}
	for _, r := range options.Rules {
		s.rules[r] = &rule{pools: make(map[string]*pool)}
	}
	return s
}

// now returns the µs since New, by a clock that never steps back.
func (s *Store) now() int64 { return time.Since(s.base).Microseconds() }

// rule returns the rule of a charge, or nil if it is not prefetched.
func (s *Store) rule(c *core.Charge) *rule {
	if c.Variant != "" {
		return nil
	}
	return s.rules[Rule{c.Policy, c.Rule}]
}

// pool returns the pool of a charge, or nil if it has none: if there are too many,
// or if the key was charged with another quota lately.
func (s *Store) pool(r *rule, plan *plan, c *core.Charge) *pool {
	if plan.hold == 0 {
		return nil
	}
	p := r.find(c.Key)
	if p == nil {
		p = s.addPool(r, plan, c)
	}
	if p == nil || p.plan.quota != c.Quota {
		return nil
	}
	return p
}

func (s *Store) addPool(r *rule, plan *plan, c *core.Charge) *pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pools[c.Key]
	if p != nil || s.pools.Load() >= maxPools || s.closed.Load() {
		return p
	}
	p = newPool(s, r, plan, c)
	r.pools[p.charge.Key] = p
	s.pools.Add(1)
	p.checkLater()
	return p
}

// Check checks the wrapped store: see [core.Check].
func (s *Store) Check(ctx context.Context) error { return core.Check(ctx, s.store) }

// Condition returns that of the wrapped store: see [core.ConditionOf].
func (s *Store) Condition() core.Condition { return core.ConditionOf(s.store) }

// Account returns what the wrapped store knows that a key owes: see [core.AccountOf].
func (s *Store) Account(ctx context.Context, c core.Charge) (core.Account, error) {
	if r := s.rule(&c); r != nil {
		c.Quota = r.plan(&c.Quota, s.hold).charged
	}
	return core.AccountOf(ctx, s.store, c)
}

// Guarded returns true: a guard belongs inside a Store of this package, so
// [github.com/routelimit/limit.New] puts none around it.
func (s *Store) Guarded() bool { return true }

// Take implements [core.Store]. Where it needs a second call and that fails, it gives
// back what the first one took.
func (s *Store) Take(ctx context.Context, asks []core.Ask) error {
	if err := cmp.Or(ctx.Err(), core.ValidateAsks(asks)); err != nil {
		return err
	}
	if asks[0].Owes() {
		s.surrender(ctx, asks)
	}
	t := take{store: s, ctx: ctx, asks: asks}
	if !t.prefetched() {
		return s.store.Take(ctx, asks)
	}
	return t.decide()
}

// surrender gives back what this instance holds of keys that are charged a bounded debt: they
// owe less then, and nothing is handed out while they owe.
func (s *Store) surrender(ctx context.Context, asks []core.Ask) {
	for i := range asks {
		for j := range asks[i].Charges {
			c := &asks[i].Charges[j]
			r := s.rule(c)
			if c.MaxDebt == 0 || r == nil {
				continue
			}
			if p := r.find(c.Key); p != nil {
				_ = p.giveBack(ctx, p.takeAll()) // otherwise the units expire
			}
		}
	}
}

// Renew implements [core.Store].
func (s *Store) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	return s.store.Renew(ctx, charges)
}

// Release implements [core.Store].
func (s *Store) Release(ctx context.Context, charges []core.Charge) error {
	return s.store.Release(ctx, charges)
}

// Reset implements [core.Store]. Permits of the keys that this instance holds, or is taking, are
// lost.
func (s *Store) Reset(ctx context.Context, charges []core.Charge) error {
	for i := range charges {
		if r := s.rule(&charges[i]); r != nil {
			if p := r.find(charges[i].Key); p != nil {
				p.drop()
				defer p.drop() // what was taken while the store reset the key
			}
		}
	}
	return s.store.Reset(ctx, charges)
}

// Return implements [core.Store]. Units of permits that are still held become
// permits again, and others are returned to the store.
func (s *Store) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	results := make([]core.Returned, len(returns))
	pools := make([]*pool, len(returns))
	var rest []core.Return
	var of []int
	for i, r := range returns {
		if rule := s.rule(&r.Charge); rule != nil {
			plan := rule.plan(&r.Quota, s.hold)
			if p := rule.find(r.Key); p != nil && p.plan.quota == r.Quota {
				outcome, ok := p.restore(&r)
				if ok {
					results[i] = core.Returned{Units: r.Cost, Outcome: outcome}
					continue
				}
				pools[i] = p
			}
			r.Quota = plan.charged // also of units that were taken without permits
		}
		rest, of = append(rest, r), append(of, i)
	}
	if rest == nil {
		return results, nil
	}
	back, err := s.store.Return(ctx, rest)
	if err != nil {
		return nil, err
	}
	for i, result := range back {
		if p := pools[of[i]]; p != nil {
			p.addFree(&result.Outcome)
		}
		results[of[i]] = result
	}
	return results, nil
}

// Close gives all permits back to the store, and waits for calls that are under way. From then on
// the wrapped store decides all requests. After an error, permits may count until their time has
// passed.
func (s *Store) Close(ctx context.Context) error {
	s.closed.Store(true)
	var failed error
	for _, r := range s.rules {
		r.mu.RLock()
		pools := slices.Collect(maps.Values(r.pools))
		r.mu.RUnlock()
		for _, p := range pools {
			if err := p.giveBack(ctx, p.takeAll()); err != nil {
				failed = err
			}
		}
	}
	s.pending.Wait()
	return failed
}
