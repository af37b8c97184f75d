package limit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/terms"
	"github.com/routelimit/limit/rules"
)

// A Request is what a policy decides outside HTTP: in a job, a consumer, an RPC.
type Request struct {
	// Keys has a value for each key that the rules name, as the text grammar writes it:
	// {"ip": "203.0.113.9", "header X-API-Key": "k1"}. An address may have a port. ""
	// means that the request has no such key.
	Keys map[string]string

	Cost  int64            // of each rule; 0 means 1
	Costs map[string]int64 // by rule name; other rules take Cost. 0 passes its rule and takes nothing

	Plan, Class string // of the caller, as Plan and Class of a Caller return them

	// UpTo takes fewer units than Cost if there are fewer, but at least one, and as many
	// of each rule: see [Decision].Taken. It is for [Policy.Take].
	UpTo bool

	// Settle makes the decision one for [Decision.Settle] or SettleCosts, for work whose true
	// cost is known only afterwards: bytes, tokens, rows. Cost is then the most that it may
	// be, or an estimate under rules with Debt. What is never settled stays taken.
	Settle bool

	// Hold is Settle for work whose process may die: if it does, the units are refunded after that
	// time, 1 s to 24 h, except for rules with Attempts. A living process extends the hold until
	// the request is settled or its HTTP handler returns. Leases, slots of a queue, values, strikes
	// and units that Use takes are not held, and nothing is while the store is unavailable.
	Hold time.Duration

	// ID names a request of a policy, with Hold, that any process may repeat with the same keys: what
	// is held is charged and settled once. Rules that hold nothing decide each repeat. For ten minutes
	// after a settlement, unless at 0, it gets [ErrSettled]. Clients that choose IDs can avoid charges.
	ID string
}

// check returns what is wrong with a request, apart from its keys: missing does.
func (p *version) check(r *Request) error {
	if p.named == nil {
		return &rules.Error{Problem: "outside HTTP a policy needs a name: write limit.Named(\"…\", rules…)"}
	}
	if len(p.names) == 0 && !p.set.IsLifted() {
		return errNoRules
	}
	if p.asks {
		if err := p.functions(r); err != nil {
			return err
		}
	}
	if _, err := validCost(r.Cost); err != nil {
		return &rules.Error{Problem: err.Error()}
	}
	if err := p.checkHold(r); err != nil {
		return err
	}
	switch {
	case !r.UpTo && len(r.Costs) == 0:
		return nil
	case r.UpTo && r.Cost < 1:
		return &rules.Error{Problem: "UpTo needs a Cost: write how many units to take at most"}
	case r.UpTo && p.bars:
		return &rules.Error{Problem: "UpTo asks again after a refusal, and each is a strike of the ban: leave out UpTo"}
	case r.UpTo && len(r.Costs) > 0:
		return &rules.Error{Problem: "UpTo takes as many units of each rule: leave out Costs"}
	}
	return p.validCosts(r.Costs)
}

// checkHold returns what is wrong with the Hold and the ID of a request.
func (p *version) checkHold(r *Request) error {
	var problem string
	switch micros := r.Hold.Microseconds(); {
	case r.Hold == 0 && r.ID == "":
		return nil
	case r.Hold == 0:
		problem = "ID names a request with Hold: write how long it is held, such as time.Minute"
	case micros < core.MinHold || micros > core.MaxHold:
		problem = fmt.Sprintf("Hold %v: write 1s to 24h", r.Hold)
	case len(r.ID) > 1024:
		problem = fmt.Sprintf("an ID of %d bytes: write up to 1024", len(r.ID))
	case r.UpTo:
		problem = "UpTo asks for less after a refusal, which is not held: leave out Hold, or UpTo"
	case p.limiter.engine.Holder == nil:
		problem = "the store holds nothing: leave out Hold, or use Redis without Spread and package prefetch"
	case p.composed && !p.unfilled && !p.limiter.engine.Holds(p.rules):
		problem = "a Cluster does not hold what rules of several sets take together: leave out Hold, or With"
	case !p.unfilled && !slices.ContainsFunc(p.rules, func(r engine.Rule) bool { return r.Charge.Quota.Holds() }):
		problem = "no rule of the policy can be held: leave out Hold"
	default:
		return nil
	}
	return &rules.Error{Problem: problem}
}

// checkGiven returns what is wrong with what a handler says of an HTTP request.
func (p *version) checkGiven(r *Request) error {
	if r == nil {
		return nil
	}
	if r.UpTo || r.Plan != "" || r.Class != "" || r.ID != "" {
		return &rules.Error{Problem: "of an HTTP request, a handler gives Keys, Cost, Costs, Settle and Hold: leave out UpTo, Plan and Class, and for ID call limit.Policy.Take"}
	}
	if len(r.Keys) > 0 && !p.unfilled {
		if err := p.set.Unknown(r.Keys); err != nil {
			return err
		}
	}
	if _, err := validCost(r.Cost); err != nil {
		return &rules.Error{Problem: err.Error()}
	}
	return cmp.Or(p.checkHold(r), p.validCosts(r.Costs))
}

// functions returns an error if a rule asks HTTP requests for their cost, and the request
// does not say it, or if one asks responses, and the request will not be settled.
func (p *version) functions(r *Request) error {
	for i := range p.list {
		rule := &p.list[i]
		if rule.Cost != (rules.Cost{}) && r.Cost == 0 {
			if _, said := r.Costs[p.names[i]]; !said {
				return &rules.Error{Rule: rule.String(), Problem: "Cost is a function of an HTTP request: set limit.Request.Cost"}
			}
		}
		if !r.Settle && r.Hold == 0 && rule.Settle != (rules.Settlement{}) {
			return &rules.Error{Rule: rule.String(), Problem: "Settle is a function of an HTTP response: " +
				"set limit.Request.Settle, and call limit.Decision.Settle"}
		}
	}
	return nil
}

func (p *version) validCosts(costs map[string]int64) error {
	var errs []error
	for name, n := range costs {
		if !p.unfilled && !slices.Contains(p.names, name) {
			errs = append(errs, &rules.Error{Problem: fmt.Sprintf("Costs[%q]: no rule has that name: write one of %s",
				name, strings.Join(p.names, ", "))})
		}
		if _, err := validCost(n); err != nil {
			errs = append(errs, &rules.Error{Problem: fmt.Sprintf("Costs[%q]: %v", name, err)})
		}
	}
	return errors.Join(errs...)
}

// validCost returns n as a cost. A negative one is an error, since it would give back quota that was
// never taken. One above what any store counts is capped.
func validCost(n int64) (int64, error) {
	if n < 0 {
		return 0, fmt.Errorf("cost %d: write 0 or more", n)
	}
	return min(n, core.MaxCost), nil
}

// fill fills in the keys, the costs and the caller of a request that check has accepted.
// It returns what is wrong with its keys. The maps of the request do not escape, so that
// a literal costs its caller no allocation.
func (p *version) fill(run *engine.Run, r *Request) (*terms.Terms, error) {
	faulty := p.joins // a part that is not asked may be missing too
	p.fillKeys(run, func(k *KeyResolver) string {
		v, ok := k.Given(r.Keys, p.limiter.options.Proxies.IPv6Prefix)
		faulty = faulty || !ok
		return v
	})
	if faulty {
		if err := p.set.Missing(r.Keys); err != nil {
			return nil, err
		}
	}
	if r.Hold > 0 {
		run.Hold(p.named.stored, strings.Clone(r.ID), r.Hold.Microseconds(), // a copy, so that r does not escape
			func(rule int) string { return p.list[rule].Key.String() })
	}
	usual, alike := min(max(1, r.Cost), core.MaxCost), !p.bars && len(r.Costs) == 0
	for i := range run.Charges {
		c := &run.Charges[i]
		if c.Cost = usual; alike {
			continue
		}
		if c.Quota.Bars() {
			c.Cost = 0
		}
		if n, said := r.Costs[p.names[i]]; said {
			c.Cost = min(n, core.MaxCost)
		}
	}
	if !p.distinguishes && r.Class == "" { // waiters have classes, whatever the rules
		run.Caller.Class = p.defaultClass
		return p.usual, nil
	}
	from := r.profile(p)
	return p.distinguish(run, p.named, &from), nil
}

// fillKeys fills in keys and distinct values. Each resolver is asked once.
func (p *version) fillKeys(run *engine.Run, value func(*KeyResolver) string) {
	for i, first := range p.keyOf {
		switch {
		case first < i:
			run.Charges[i].Key = run.Charges[first].Key
		case first == i:
			run.Charges[i].Key = p.list[i].Key.Resolve(value)
		}
		if p.shows && run.Charges[i].Quota.Algorithm == core.Distinct {
			values := p.list[i].Values()
			run.Charges[i].ID = rules.ValueID(values.Resolve(value))
		}
	}
}
