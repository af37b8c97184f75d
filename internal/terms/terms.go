// Package terms works out what the rules of a policy allow a caller: the usual limits, those of
// its plan, and those that limit.Options.Override has for its keys.
package terms

import (
	"cmp"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/fields"
	"github.com/routelimit/limit/rules"
)

// Terms are what the rules of a policy allow callers of one kind: those on a plan, or those whose
// keys have an override. They do not change.
type Terms struct {
	engine.Terms
	Limits  []int64  // for each rule
	Header  []string // the value of RateLimit-Policy, which responses share, or nil
	Members []string // of it, for each rule
}

// Of returns the terms of callers for which the rules have other limits; 0 means the usual one,
// and nil the usual ones. The classes are those of limit.Options.
func Of(list []rules.Rule, classes []string, other []int64) *Terms {
	t := &Terms{}
	reserves, header := false, ""
	for i, r := range list {
		if other != nil && other[i] != 0 {
			r = r.WithLimit(other[i])
		}
		q := r.Quota()
		t.Limits = append(t.Limits, r.Limit)
		t.Quotas = append(t.Quotas, q)
		t.Variants = append(t.Variants, "")
		t.Capacities = append(t.Capacities, q.Capacity())
		t.Members = append(t.Members, fields.Policy(r.Name, &q, r.Limit))
		header = fields.Join(header, t.Members[i])
		reserves = reserves || len(r.Reserve) > 0
	}
	if header != "" {
		t.Header = []string{header}
	}
	if !reserves {
		return t
	}
	for class := range classes {
		kept := make([]int64, len(list))
		for i := range list {
			kept[i] = list[i].Kept(classes[:class], t.Capacities[i])
		}
		t.Reserves = append(t.Reserves, kept)
	}
	return t
}

// OfPlans returns the terms of callers on each plan that the rules name, or nil.
func OfPlans(list []rules.Rule, classes []string) map[string]*Terms {
	var plans map[string]*Terms
	for i := range list {
		for name := range list[i].Plans {
			if plans[name] != nil {
				continue
			}
			if plans == nil {
				plans = make(map[string]*Terms)
			}
			limits := make([]int64, len(list))
			for j := range list {
				limits[j] = list[j].Plans[name]
			}
			plans[name] = Of(list, classes, limits)
			plans[name].ownState(list, name)
		}
	}
	return plans
}

// ownState gives callers on a plan buckets and queues of their own: what these lack is worth other
// units at another rate, so a few requests of a slow plan would stop a fast one. The name is that
// of the plan, so that a bucket keeps its state when the limit changes.
func (t *Terms) ownState(list []rules.Rule, plan string) {
	for i := range t.Quotas {
		if _, named := list[i].Plans[plan]; named && t.Quotas[i].Refills() {
			t.Variants[i] = plan
		}
	}
}

// Limits are what overrides give the rules of a policy, 0 for nothing.
type Limits [core.MaxCharges]int64

// Overrides remembers the terms of callers with overrides, since making them takes longer than a
// decision. The zero Overrides is ready to use, and safe for concurrent use.
type Overrides struct {
	mu    sync.RWMutex
	terms map[overridden]*Terms
}

type overridden struct {
	usual  *Terms
	limits Limits
}

// most is how many terms are remembered.
const most = 1000

// Of returns the terms of callers for which limits change the usual terms.
func (o *Overrides) Of(list []rules.Rule, classes []string, usual *Terms, limits Limits) *Terms {
	key := overridden{usual, limits}
	o.mu.RLock()
	t := o.terms[key]
	o.mu.RUnlock()
	if t != nil {
		return t
	}
	other := slices.Clone(usual.Limits)
	for i := range other {
		other[i] = cmp.Or(limits[i], other[i])
	}
	t = Of(list, classes, other)
	t.Variants = usual.Variants // buckets keep what is spent
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.terms == nil || len(o.terms) >= most {
		o.terms = make(map[overridden]*Terms)
	}
	o.terms[key] = t
	return t
}
