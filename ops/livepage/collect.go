package livepage

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/ops/topkeys"
)

// Bounds of what a collector keeps.
const (
	maxPolicies  = 10_000 // with counts of their own
	maxRules     = 20_000 // of all policies
	trackedKeys  = 64     // of each rule and order: see package topkeys
	trackedRules = 1000
	keptSeconds  = 128 // at least shownSeconds and the second that is going on
	keptSlots    = 32  // at least shownSlots
	keptHour     = 368 // at least shownHour

	slotSeconds  = 10
	shownSeconds = 120
	shownSlots   = 30  // 5 minutes
	shownHour    = 360 // slots

	undecided = int(core.ModeBarred) + 1 // in the place of a mode: no decision was made
	modes     = undecided + 1
)

// A collector counts decisions by the second and by slots of 10 seconds, under one lock that is
// held for some tens of nanoseconds. Each entry of a ring names its time, so that old ones need no
// cleaning.
type collector struct {
	limiter  *limit.Limiter // that decides
	start    time.Time
	refusals refusals
	top      *topkeys.Counter

	mu       sync.Mutex
	policies map[string]*policy
	rules    int    // of all policies
	unlisted counts // of policies beyond maxPolicies
	seconds  [keptSeconds]count
	modes    [keptHour]modeCount
}

// A count is how many requests were admitted and refused in the second or slot at, and the highest
// used share of a key.
type count struct {
	at, admitted, refused uint32
	full                  float32
}

func add(ring []count, at uint32, admitted bool) *count {
	c := &ring[at%uint32(len(ring))]
	if c.at != at {
		*c = count{at: at}
	}
	if admitted {
		c.admitted++
	} else {
		c.refused++
	}
	return c
}

type counts [keptSlots]count

// sum returns the counts of the last shownSlots, and the highest share of the last two.
func (c *counts) sum(now uint32) (admitted, refused int64, full float32) {
	for i := range c {
		if c[i].at != 0 && c[i].at+shownSlots > now {
			admitted += int64(c[i].admitted)
			refused += int64(c[i].refused)
			if c[i].at+2 > now {
				full = max(full, c[i].full)
			}
		}
	}
	return admitted, refused, full
}

// A modeCount is how many decisions each mode had in a slot.
type modeCount struct {
	at     uint32
	counts [modes]uint32
}

type policy struct {
	counts    counts
	givenBack *counts // of the admitted requests, those that were given back; nil before the first
	rules     []*rule
}

// A rule has the counts of one rule: the requests that it had room for, and others.
type rule struct {
	name    string
	counts  counts
	fullest uint64 // a hash of the fullest key in the last slot
}

var seed = maphash.MakeSeed()

func newCollector(limiter *limit.Limiter) *collector {
	return &collector{limiter: limiter, start: time.Now(), policies: map[string]*policy{},
		top: topkeys.New(&topkeys.Options{Keys: trackedKeys, Rules: trackedRules})}
}

// A moment is a time of a collector. Its numbers begin with 1, since an empty entry of a ring has
// 0.
type moment struct{ second, slot uint32 }

func at(since time.Duration) moment {
	second := uint32(since / time.Second)
	return moment{second + 1, second/slotSeconds + 1}
}

// now is read from the monotonic clock, which takes half the time of the whole clock.
func (c *collector) now() moment { return at(time.Since(c.start)) }

// observe counts a decision. It is called by operate.Observe.
func (c *collector) observe(r *http.Request, d limit.Decision, err error) {
	since := time.Since(c.start)
	now := at(since)
	if err != nil {
		if d.At.IsZero() { // otherwise the decision has been counted, and its end failed
			c.mu.Lock()
			c.mode(now, undecided)
			c.mu.Unlock()
		}
		return
	}
	if d.GivenBack {
		c.givenBack(now, &d)
		return
	}
	c.mu.Lock()
	add(c.seconds[:], now.second, d.Allowed)
	c.mode(now, int(d.Mode))
	if p := c.policy(d.Policy); p == nil {
		add(c.unlisted[:], now.slot, d.Allowed)
	} else {
		c.count(p, now, &d)
	}
	c.mu.Unlock()
	for outcome := range d.Rules() {
		if outcome.Key != "" {
			c.top.ObserveRule(&d, &outcome)
		}
	}
	if !d.Allowed {
		var banned netip.Addr // no rule of the decision has a key then
		if r != nil && d.Mode == core.ModeBarred {
			banned = limit.Client{Request: r, Limiter: c.limiter}.IP()
		}
		c.refusals.add(&d, since, banned)
	}
}

func (c *collector) policy(name string) *policy {
	p := c.policies[name]
	if p == nil && len(c.policies) < maxPolicies {
		p = &policy{}
		c.policies[name] = p
	}
	return p
}

func (c *collector) count(p *policy, now moment, d *limit.Decision) {
	total := add(p.counts[:], now.slot, d.Allowed)
	asked := d.Mode < core.ModeLocal || d.Mode > core.ModeRefused // otherwise the store was not
	for outcome := range d.Rules() {
		u := p.rule(outcome.Name)
		if u == nil {
			if c.rules == maxRules {
				continue
			}
			c.rules++
			u = &rule{name: outcome.Name}
			p.rules = append(p.rules, u)
		}
		of := add(u.counts[:], now.slot, outcome.Allowed)
		if !asked {
			continue
		}
		share := usedShare(&outcome)
		if share > of.full {
			of.full, u.fullest = share, maphash.String(seed, outcome.Key)
		}
		total.full = max(total.full, share)
	}
}

func usedShare(outcome *limit.RuleDecision) float32 {
	if outcome.Allowed && outcome.Capacity > 0 {
		return 1 - float32(outcome.Remaining)/float32(outcome.Capacity)
	}
	return 1
}

func (c *collector) givenBack(now moment, d *limit.Decision) {
	c.mu.Lock()
	if p := c.policies[d.Policy]; p != nil {
		p.giveBack(now.slot, d)
	}
	c.mu.Unlock()
	c.top.Observe(d)
}

// giveBack counts a return. If its key is the fullest one of a rule in this slot, the share
// of the rule is that after the return, and that of the policy follows.
func (p *policy) giveBack(slot uint32, d *limit.Decision) {
	if p.givenBack == nil {
		p.givenBack = new(counts)
	}
	add(p.givenBack[:], slot, true)
	for outcome := range d.Rules() {
		if u := p.rule(outcome.Name); u != nil && d.Mode < core.ModeLocal && u.fullest == maphash.String(seed, outcome.Key) {
			if of := &u.counts[slot%keptSlots]; of.at == slot {
				of.full = usedShare(&outcome)
			}
		}
	}
	total := &p.counts[slot%keptSlots]
	if total.at != slot {
		return
	}
	total.full = 0
	for _, u := range p.rules {
		if of := &u.counts[slot%keptSlots]; of.at == slot {
			total.full = max(total.full, of.full)
		}
	}
}

func (p *policy) rule(name string) *rule {
	for _, u := range p.rules {
		if u.name == name {
			return u
		}
	}
	return nil
}

func (c *collector) mode(now moment, mode int) {
	if mode >= modes { // of a store that is not ours
		return
	}
	m := &c.modes[now.slot%keptHour]
	if m.at != now.slot {
		*m = modeCount{at: now.slot}
	}
	m.counts[mode]++
}
