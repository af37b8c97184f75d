package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

// A Rule is what a plan knows of one rule.
type Rule struct {
	Charge core.Charge // of a request, without Key, Cost and ID

	Watches  bool // whether the rule decides beside the others, for all keys but those of Enforced
	Enforced int  // the percentage of keys for which a rule that watches refuses

	Wait    time.Duration // how long a refused request waits; 0 for not at all
	Waiters int           // how many requests may wait for one key

	Settles bool // whether the answer to a request says what it really cost
	Keeps   bool // whether its charge stays if something behind the rules refuses the request
}

// A Plan is a rule set on one scope, compiled to the steps that its rules need. It does
// not change, and is safe for concurrent use.
type Plan struct {
	engine *Engine
	number uint64
	rules  []Rule
	usual  *Terms

	arranged  bool                 // whether runs may leave rules out
	exempting atomic.Pointer[Plan] // see Exempting

	prepare []func(*Run)       // before the store is asked
	steps   []func(*Run) error // each time it is asked

	plain    bool                                   // whether asking the store is the only step: its decision needs no copy then
	take     func(context.Context, *core.Ask) error // of a plain plan: see Engine.Bind; or nil
	holds    atomic.Bool                            // whether a run has held something
	looks    looks                                  // for holds that have ended
	renewals renewals
	runs     sync.Pool
}

// Terms are what the rules of a plan allow callers of one kind. They do not change.
type Terms struct {
	Quotas     []core.Quota
	Variants   []string  // of the rules' states
	Capacities []int64   // the most units of each rule that can remain
	Reserves   [][]int64 // for each class, what its requests leave to higher ones of each rule; nil if nothing
}

// A Caller is what a request's rules know of its sender.
type Caller struct {
	Terms  *Terms
	Class  uint8  // 0 for the highest
	Exempt uint16 // a bit for each rule that does not count the caller
}

// Exempts reports whether a rule does not count the caller.
func (c *Caller) Exempts(rule int) bool { return c.Exempt>>rule&1 != 0 }

// Reserve returns the units of a rule that the caller leaves to higher classes.
func (c *Caller) Reserve(rule int) int64 {
	if c.Terms == nil || c.Terms.Reserves == nil {
		return 0
	}
	return c.Terms.Reserves[c.Class][rule]
}

// NewPlan compiles rules. Usual are the terms of a caller that nothing distinguishes;
// distinguishes says whether other terms, or exemptions, occur.
func (e *Engine) NewPlan(rules []Rule, usual *Terms, distinguishes bool) *Plan {
	p := &Plan{engine: e, number: e.plans.Add(1), rules: rules, usual: usual}
	arranged, leases, queues, settles := distinguishes || len(rules) == 0, false, false, false
	for i := range rules {
		r := &rules[i]
		arranged = arranged || r.Watches
		leases = leases || r.Charge.Quota.Leases()
		queues = queues || r.Charge.Quota.Queues()
		settles = settles || r.Settles
	}
	p.arranged = arranged
	if arranged {
		p.prepare = append(p.prepare, (*Run).agree, (*Run).divide)
	}
	if leases {
		p.steps = append(p.steps, (*Run).identify)
	}
	p.steps = append(p.steps, func(r *Run) error { return r.ask(&r.result) })
	if arranged {
		p.steps = append(p.steps, (*Run).collect)
	}
	if leases {
		p.steps = append(p.steps, (*Run).keepLeases)
	}
	if queues || settles {
		p.steps = append(p.steps, (*Run).keep)
	}
	if p.plain = len(p.steps) == 1; p.plain {
		p.take = e.bind(rules)
	}
	p.renewals.engine = e
	return p
}

// bind returns what decides by rules, or nil if that is Take of the store.
func (e *Engine) bind(rules []Rule) func(context.Context, *core.Ask) error {
	if e.Bind == nil {
		return nil
	}
	charges := make([]core.Charge, len(rules))
	for i := range rules {
		charges[i] = rules[i].Charge
	}
	return e.Bind(charges)
}

// Exempting returns a plan of the same rules whose runs may exempt the caller from some.
func (p *Plan) Exempting() *Plan {
	if p.arranged {
		return p
	}
	if other := p.exempting.Load(); other != nil {
		return other
	}
	p.exempting.CompareAndSwap(nil, p.engine.NewPlan(p.rules, p.usual, true))
	return p.exempting.Load()
}

// Charge returns the charge of a rule for a key, under terms. It costs nothing.
func (p *Plan) Charge(rule int, key string, terms *Terms) core.Charge {
	c := p.rules[rule].Charge
	c.Key, c.Quota, c.Variant = key, terms.Quotas[rule], variant(c.Variant, terms.Variants[rule])
	return c
}

// variant returns the variant of a state that two things set apart: the rule, from another
// one of its name on the route, and the terms of a caller. Neither has a "+".
func variant(rule, terms string) string {
	if rule == "" || terms == "" {
		return rule + terms
	}
	return rule + "+" + terms
}

// Rules returns the rules of the plan. Do not change them.
func (p *Plan) Rules() []Rule { return p.rules }
