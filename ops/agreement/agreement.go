// Package agreement compares shadow rules with the rules that they may replace, by what
// both say about the same requests:
//
//	var counter agreement.Counter
//	limiter := limit.New(store, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, err error) {
//		counter.Observe(d)
//	}})
//	rules := limit.MustParse("old: 100/1m per ip; new: 20/10s per ip shadow replaces old")
//
// The old rule's verdict is that in its set, and the new rule's is that of a rule on its
// own. The two differ if the set has other enforced rules: a request that one of those
// refuses charges the new rule and not the old one. So the new rule then refuses more
// in comparison than it would in place of the old one.
//
// Package promlimit exports the same counts.
package agreement

import (
	"cmp"
	"slices"
	"sync"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

// Counts are the decisions about a shadow rule (the new one) and the rule that it may
// replace (the old one).
type Counts struct {
	Policy   string // the route, or the name of the set
	New, Old string // the names of the rules

	BothAdmit, BothRefuse          int64
	OnlyOldRefuses, OnlyNewRefuses int64
}

// A Counter counts decisions. The zero Counter is ready to use. It is safe for
// concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts map[id]*Counts
}

type id struct{ policy, new, old string }

// Observe counts what the rules of a decision with [limit.Rule].Replaces say. It costs
// nothing for other policies. Requests for which the shadow is enforced are not counted:
// the two rules then charge each other's requests only if both admit.
func (c *Counter) Observe(d limit.Decision) {
	for _, pair := range operate.Comparisons(d) {
		c.count(id{d.Policy(), pair.New.Name, pair.Old.Name}, pair)
	}
}

func (c *Counter) count(of id, pair operate.Comparison) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[of]
	if n == nil {
		n = &Counts{Policy: of.policy, New: of.new, Old: of.old}
		if c.counts == nil {
			c.counts = make(map[id]*Counts)
		}
		c.counts[of] = n
	}
	switch {
	case pair.Old.Allowed && pair.New.Allowed:
		n.BothAdmit++
	case pair.Old.Allowed:
		n.OnlyNewRefuses++
	case pair.New.Allowed:
		n.OnlyOldRefuses++
	default:
		n.BothRefuse++
	}
}

// Counts returns the counts since the Counter was made, sorted by policy and rules.
func (c *Counter) Counts() []Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Counts, 0, len(c.counts))
	for _, n := range c.counts {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b Counts) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.New, b.New), cmp.Compare(a.Old, b.Old))
	})
	return list
}
