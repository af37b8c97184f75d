package livepage

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/ops/topkeys"
)

// Bounds of what a collector keeps.
const (
	maxPolicies  = 10_000 // with counts of their own
	maxRules     = 20_000 // of all policies
	shardCount   = 16
	trackedKeys  = 64 // of each rule and order: see package topkeys
	trackedRules = 1000
	keptSeconds  = 128 // at least shownSeconds and the second that is going on
	keptSlots    = 32  // at least shownSlots
	keptHour     = 368 // at least shownHour

	slotSeconds  = 10
	shownSeconds = 120
	shownSlots   = 30  // 5 minutes
	shownHour    = 360 // slots
	fullSeconds  = 5

	undecided = int(limit.ModeBarred) + 1 // in the place of a mode: no decision was made
	modes     = undecided + 1
)

// A collector counts decisions by the second and by slots of 10 seconds. A decision is
// counted in the shard of its policy, under one lock that is held for some tens of
// nanoseconds.
type collector struct {
	clientIP func(*http.Request) netip.Addr // of the limiter
	start    time.Time
	seed     maphash.Seed
	policies atomic.Int64
	rules    atomic.Int64
	shards   [shardCount]shard
	refusals refusals
	top      *topkeys.Counter
}

// A shard has the counts of the policies that fall to it by the hash of their names.
// Each entry of a ring names the time that it is for, so that old ones need no cleaning.
type shard struct {
	mu       sync.Mutex
	policies map[string]*policy
	last     *policy // of the last decision: the lookup takes a tenth of an observation
	unlisted counts  // of policies beyond maxPolicies
	seconds  [keptSeconds]count
	modes    [keptHour]modeCount
	_        [64]byte // the lock of the next one is on another cache line
}

// A count is how many requests were admitted and refused in a second or slot, whose
// number is at.
type count struct{ at, admitted, refused uint32 }

// add counts a request in the ring of counts.
func add(ring []count, at uint32, admitted bool) {
	c := &ring[at%uint32(len(ring))]
	if c.at != at {
		*c = count{at: at}
	}
	if admitted {
		c.admitted++
	} else {
		c.refused++
	}
}

// counts are those of the last slots.
type counts [keptSlots]count

// sum returns the counts of the last shownSlots.
func (c *counts) sum(now uint32) (admitted, refused int64) {
	for i := range c {
		if c[i].at != 0 && c[i].at+shownSlots > now {
			admitted += int64(c[i].admitted)
			refused += int64(c[i].refused)
		}
	}
	return admitted, refused
}

// A modeCount is how many decisions each mode had in a slot.
type modeCount struct {
	at     uint32
	counts [modes]uint32
}

// A policy has the counts of one policy and its rules.
type policy struct {
	name   string
	counts counts
	rules  []*rule
}

// A rule has the counts of one rule: the requests that it had room for, and others.
type rule struct {
	name   string
	counts counts
	full   [2]fullest
}

// A fullest is the highest used share of any key in a time of fullSeconds.
type fullest struct {
	at    uint32
	share float32
}

func newCollector() *collector {
	c := &collector{start: time.Now(), seed: maphash.MakeSeed(), top: topkeys.New(&topkeys.Options{Keys: trackedKeys, Rules: trackedRules})}
	for i := range c.shards {
		c.shards[i].policies = map[string]*policy{}
	}
	return c
}

// A moment is a time of a collector. Its numbers begin with 1, since an empty entry of a
// ring has 0.
type moment struct{ second, slot, full uint32 }

func at(since time.Duration) moment {
	second := uint32(since / time.Second)
	return moment{second + 1, second/slotSeconds + 1, second/fullSeconds + 1}
}

// now is read from the monotonic clock, which takes half the time of the whole clock.
func (c *collector) now() moment { return at(time.Since(c.start)) }

// observe counts a decision. It is called by limit.Limiter.Observe.
func (c *collector) observe(r *http.Request, d limit.Decision, err error) {
	since := time.Since(c.start)
	now := at(since)
	if err != nil {
		if d.At.IsZero() { // otherwise the decision has been counted, and its end failed
			s := &c.shards[0]
			s.mu.Lock()
			s.mode(now, undecided)
			s.mu.Unlock()
		}
		return
	}
	name := d.Policy()
	s := c.shardOf(name)
	s.mu.Lock()
	add(s.seconds[:], now.second, d.Allowed)
	s.mode(now, int(d.Mode))
	p := s.last
	if p == nil || p.name != name {
		if p = s.policies[name]; p == nil {
			p = c.newPolicy(s, name)
		}
		s.last = p
	}
	if p == nil {
		add(s.unlisted[:], now.slot, d.Allowed)
	} else {
		add(p.counts[:], now.slot, d.Allowed)
		var outcome limit.RuleDecision
		for i := 0; d.Rule(i, &outcome); i++ {
			c.countRule(p, now, &outcome, d.Mode)
			if outcome.Key != "" && d.Mode != limit.ModeRefused {
				c.top.ObserveRule(name, &outcome, d.At)
			}
		}
	}
	s.mu.Unlock()
	if !d.Allowed {
		var banned netip.Addr // no rule of the decision has a key then
		if r != nil && d.Mode == limit.ModeBarred {
			banned = c.clientIP(r)
		}
		c.refusals.add(r, &d, name, since, banned)
	}
}

func (c *collector) shardOf(policy string) *shard {
	return &c.shards[maphash.String(c.seed, policy)%shardCount]
}

func (c *collector) countRule(p *policy, now moment, outcome *limit.RuleDecision, mode core.Mode) {
	u := p.rule(outcome.Name)
	if u == nil {
		if c.rules.Add(1) > maxRules {
			c.rules.Add(-1)
			return
		}
		u = &rule{name: outcome.Name}
		p.rules = append(p.rules, u)
	}
	add(u.counts[:], now.slot, outcome.Allowed)
	if mode == limit.ModeAllowed || mode == limit.ModeRefused {
		return // no quota was asked
	}
	share := float32(1)
	if outcome.Allowed && outcome.Capacity > 0 {
		share = 1 - float32(outcome.Remaining)/float32(outcome.Capacity)
	}
	f := &u.full[now.full%2]
	if f.at != now.full {
		*f = fullest{at: now.full}
	}
	f.share = max(f.share, share)
}

// rule returns the rule of a name, or nil.
func (p *policy) rule(name string) *rule {
	for _, u := range p.rules {
		if u.name == name {
			return u
		}
	}
	return nil
}

// newPolicy returns a policy that is counted from now on, or nil beyond maxPolicies.
func (c *collector) newPolicy(s *shard, name string) *policy {
	if c.policies.Add(1) > maxPolicies {
		c.policies.Add(-1)
		return nil
	}
	p := &policy{name: name}
	s.policies[name] = p
	return p
}

// mode counts a decision of a mode.
func (s *shard) mode(now moment, mode int) {
	if mode >= modes {
		return
	}
	m := &s.modes[now.slot%keptHour]
	if m.at != now.slot {
		*m = modeCount{at: now.slot}
	}
	m.counts[mode]++
}

// fullest returns the highest used share of the last fullSeconds to twice as many.
func (u *rule) fullest(now moment) (share float32) {
	for _, f := range u.full {
		if f.at != 0 && f.at+2 > now.full {
			share = max(share, f.share)
		}
	}
	return share
}
