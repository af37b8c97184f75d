package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// A Policy is a name and rules.
type Policy struct {
	Name  string   `json:"name"`
	Texts []string `json:"rules"` // as they were written

	rules  []limit.Rule
	shared []bool   // whether all clients share the key of the rule
	keys   []string // that requests have
}

// NewPolicy returns a policy. The error says which rule has no text, as a function has
// none.
func NewPolicy(name string, rules []limit.Rule) (p Policy, err error) {
	p = Policy{Name: name, rules: rules}
	for _, r := range rules {
		p.Texts = append(p.Texts, r.String())
		key, err := grammar.ParseKey(r.Key.String())
		if err != nil {
			return p, fmt.Errorf("policy %q: rule %q: %w", name, r, err)
		}
		of := keysOf(key)
		p.shared = append(p.shared, len(of) == 0)
		p.keys = append(p.keys, of...)
		if distinct, ok := r.Algorithm.(limit.Distinct); ok {
			values, err := grammar.ParseKey(distinct.Values.String())
			if err != nil {
				return p, fmt.Errorf("policy %q: rule %q: %w", name, r, err)
			}
			p.keys = append(p.keys, keysOf(values)...)
		}
	}
	slices.Sort(p.keys)
	p.keys = slices.Compact(p.keys)
	return p, nil
}

const (
	// fastest is more decisions a second than one Redis makes.
	fastest = 500_000

	// unevenness is how much more than its share of the requests a client may send, by
	// chance, without being refused.
	unevenness = 3

	// shortest is above the pauses after which a batch arrives at once.
	shortest = 10 * time.Millisecond
)

// admitting returns the rules with windows so short that a number of clients is never
// refused, however fast Redis is. This process would remember refusals, and measure its
// memory instead of Redis. The limits stay where that is possible, since batches are
// smaller the longer the logs of their rules may get.
func (p *Policy) admitting(clients, callers int) []limit.Rule {
	rules := slices.Clone(p.rules)
	for i := range rules {
		r := &rules[i]
		r.Exempt, r.OnRefusal = nil, limit.Refusal{}
		rate := float64(fastest)
		if !p.shared[i] && clients > 1 {
			rate = min(rate, unevenness*rate/float64(clients))
		}
		switch r.Algorithm.(type) {
		case limit.Ban: // nothing strikes
		case limit.Concurrency:
			r.Limit = max(r.Limit, int64(min(callers, core.MaxLeases)))
		case limit.Distinct:
			if p.shared[i] {
				r.Limit = max(r.Limit, int64(min(clients, core.MaxValues)))
			}
		default:
			admit(r, rate)
		}
	}
	return rules
}

// admit changes a rule so that it admits so many requests a second.
func admit(r *limit.Rule, rate float64) {
	if f, ok := r.Algorithm.(limit.FixedWindow); ok && f.Calendar.Unit != 0 { // a period has no other length, and its count no size
		r.Limit = core.MaxLimit
		return
	}
	needed := time.Duration(float64(r.Limit) / rate * float64(time.Second)).Truncate(time.Microsecond)
	r.Window = min(r.Window, max(needed, shortest))
	r.Limit = max(r.Limit, int64(rate*r.Window.Seconds()))
	switch a := r.Algorithm.(type) {
	case limit.TokenBucket: // full, and as large as its limit by default
		r.Algorithm = limit.TokenBucket{Burst: wide(r, a.Burst)}
	case limit.LeakyBucket:
		r.Algorithm = limit.LeakyBucket{Burst: wide(r, a.Burst)}
	case limit.Queue:
		r.Algorithm = limit.Queue{Burst: max(a.Burst, r.Limit, fastest)}
	}
}

// wide returns a burst of a bucket that admits what the rule does; 0 stays the default.
func wide(r *limit.Rule, burst int64) int64 {
	if burst == 0 {
		return 0
	}
	return max(burst, r.Limit, fastest)
}

// keysOf returns the names of the values that a key is made of.
func keysOf(k grammar.Key) (names []string) {
	switch k.Kind {
	case grammar.Global:
	case grammar.And, grammar.Or:
		for _, part := range k.Parts {
			names = append(names, keysOf(part)...)
		}
	default:
		names = append(names, k.String())
	}
	return names
}

// request returns the request of a client.
func (p *Policy) request(client int) limit.Request {
	r := limit.Request{Keys: make(map[string]string, len(p.keys))}
	for _, key := range p.keys {
		r.Keys[key] = fmt.Sprintf("client-%d", client)
	}
	if _, ok := r.Keys["ip"]; ok {
		r.Keys["ip"] = fmt.Sprintf("10.%d.%d.%d", client>>16&255, client>>8&255, client&255)
	}
	return r
}
