// Package topkeys lists the keys that a program refuses most, and those that are near
// their limit: the addresses and users behind the figures of a dashboard.
//
//	top := topkeys.New(nil)
//	operate.Observe(limiter, func(_ *http.Request, d limit.Decision, err error) {
//		if err == nil {
//			top.Observe(&d)
//		}
//	})
//	…
//	for _, key := range top.Top(topkeys.ByRefusals, 20) {
//		fmt.Println(key.Policy, key.Rule, key.Key, key.Refused)
//	}
//
// Memory is bounded, whatever keys clients send: each rule tracks the keys that count most, by the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient Computation of Frequent and
// Top-k Elements in Data Streams", ICDT 2005).
//
// Counts age. A request counts as 1, and as 1/e = 0.37 after [Window], so that a client with a
// steady rate counts as many requests as it sends in one Window. Ages are in whole seconds. This is
// the exponential form of "Forward Decay" (Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009),
// which keeps the bounds of Space-Saving.
package topkeys

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// Window is the mean age of what counts: the steady rate of a key times Window is its
// count. After a client stops, its count halves every 3 minutes and 28 seconds.
const Window = 5 * time.Minute

// Options configures a [Counter]. The zero Options is ready to use.
type Options struct {
	// Keys is how many keys each rule tracks for each [Order]; 0 means 256, and the most
	// is 10,000. Each takes at most 350 bytes, and about 220 if its text is an address.
	Keys int

	// Rules is how many rules are tracked; 0 means 1,000, and the most is 10,000. Later ones are
	// not listed. Rules with one name and policy are one. With the defaults, a Counter takes at
	// most 180 MB, if clients fill 1,000 rules.
	Rules int

	// Name returns the text that stands for a key in [Key].Key, such as that of [Hashed]. Nil means
	// the key itself.
	Name func(key string) string
}

// An Order says which keys come first.
type Order int

// The orders.
const (
	ByRefusals Order = iota // the most refusals first
	ByUse                   // the largest used part of the capacity first, then the most requests
)

// A Key is a key of a rule, and what it counts.
type Key struct {
	Policy, Rule string // as a limit.Decision names them

	// Key is the text of the key, or what Options.Name made of it. Clients choose most keys: escape
	// it for a page or a terminal. It is "" for a global rule, and for the requests that lack the
	// key.
	Key string

	// Requests is how many requests the key had, aged. It is too low for a key that was
	// not tracked from its first request, but at least Refused.
	Requests float64

	// Refused is how many requests the rule refused, aged. It is never too low for the keys of
	// ByRefusals, and too high by at most Error. For a key of ByUse alone, it may be 0 although the
	// rule refused some.
	Refused, Error float64

	// Used is the part of Capacity that was in use after the last decision of the store, or
	// return to it, from 0 to 1. It is 0 once the quota is full again.
	Used                       float64
	Limit, Remaining, Capacity int64     // likewise
	Last                       time.Time // of the last decision, on the clock of decisions

	// Until is when the rule has room again, on the clock of this process, if the last decision of
	// the store was a refusal by the rule. It is zero otherwise, and centuries ahead if waiting
	// does not help.
	Until time.Time
}

// A Counter counts the requests of keys. Make it with [New]. It is safe for concurrent use.
type Counter struct {
	options Options
	now     func() time.Time
	index   sync.Map    // of *rule by ruleID
	full    atomic.Bool // whether there are Options.Rules rules

	mu    sync.Mutex
	rules []*rule // in the order of their first decisions
}

type ruleID struct{ policy, name string }

// New returns a Counter. Nil options mean the zero Options. New panics if the options are invalid.
func New(options *Options) *Counter {
	c := &Counter{options: *cmp.Or(options, new(Options)), now: time.Now}
	bound := func(name string, value *int, usual int) {
		const most = 10_000
		if *value < 0 || *value > most {
			panic(fmt.Sprintf("topkeys: %s %d: write 1 to %d, or 0 for %d", name, *value, most, usual))
		}
		if *value == 0 {
			*value = usual
		}
	}
	bound("Keys", &c.options.Keys, 256)
	bound("Rules", &c.options.Rules, 1000)
	return c
}

// Observe counts a decision without an error, once for each of its rules: call it from
// operate.Observe. Requests that a rule exempts do not count for it, nor do those refused because
// the store failed (core.ModeRefused). A refusal by a shadow rule, or by one that only marks the
// request, is none. A decision that is GivenBack only changes what its keys have used, and one that
// was made without the store does not: only the store knows.
//
// Observe does not allocate for keys that are tracked, and d may be changed afterwards.
func (c *Counter) Observe(d *limit.Decision) {
	for outcome := range d.Rules() {
		c.ObserveRule(d, &outcome)
	}
}

// ObserveRule counts one rule of a decision. It is Observe for programs that look at the
// rules of decisions anyway, or that count only some of them.
func (c *Counter) ObserveRule(d *limit.Decision, outcome *limit.RuleDecision) {
	if outcome.Exempt || d.Mode == core.ModeRefused {
		return
	}
	r, asked := c.rule(d.Policy, outcome.Name), d.Mode < core.ModeLocal
	if d.GivenBack {
		if r != nil && asked {
			r.givenBack(outcome)
		}
		return
	}
	if r == nil {
		if r = c.add(d.Policy, outcome.Name); r == nil {
			return
		}
	}
	r.observe(outcome, d.At, asked)
}

func (c *Counter) rule(policy, name string) *rule {
	known, _ := c.index.Load(ruleID{policy, name})
	r, _ := known.(*rule)
	return r
}

// add returns the rule of a policy, new if need be, or nil if there are too many.
func (c *Counter) add(policy, name string) *rule {
	if c.full.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rule(policy, name); r != nil {
		return r
	}
	if len(c.rules) >= c.options.Rules {
		c.full.Store(true)
		return nil
	}
	r := &rule{policy: policy, name: name, most: c.options.Keys, clock: func() time.Time { return c.now() }, entries: make(map[string]*entry)}
	c.rules = append(c.rules, r)
	c.index.Store(ruleID{policy, name}, r)
	return r
}

// Top returns the first n keys of an order, over all rules.
//
// By refusals, each key that has more than 1/Keys of the refusals of its rule is tracked, and Error
// is at most that part. By use, a request counts as the square of the part of the capacity that its
// key has used, so that clients near their limit are kept before the many that are far from it:
// each key with more than 1/Keys of this sum is tracked. Sums are aged.
//
// ByRefusals leaves out keys with an aged Refused of less than 0.05, which a single
// refusal has after 15 minutes. ByUse leaves out keys with a full quota.
func (c *Counter) Top(order Order, n int) []Key { return c.TopOf("", order, n) }

// TopOf returns the first n keys of an order of the rules of one policy, as [Counter.Top]
// does. "" means all policies.
func (c *Counter) TopOf(policy string, order Order, n int) []Key {
	c.mu.Lock()
	rules := slices.Clone(c.rules)
	c.mu.Unlock()
	return c.first(order, n, slices.DeleteFunc(rules, func(r *rule) bool { return policy != "" && r.policy != policy }))
}
