package policyfile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// rules explains each rule of a policy, by what a limiter on an empty store decides.
func (e *explanation) rules(p *policy, r *http.Request) {
	store := &recorder{Store: memstore.New(nil), reserves: make(map[string]int64)}
	var decided []limit.RuleDecision
	e.options.Observe = func(_ *http.Request, d limit.Decision, _ error) { decided = d.Rules() }
	bound, err := limit.New(store, &e.options).Policy(p.set)
	if err != nil {
		for _, err := range leaves(e.placed(err)) {
			if wrong := new(Error); errors.As(err, &wrong) {
				err = errors.New(wrong.place() + ": " + wrong.Problem)
			}
			e.line("  not valid with these options: %v", err)
		}
		return
	}
	_ = bound.Serve(unsent{}, r, limit.Request{}, http.NotFoundHandler()) // which gives nothing that could be wrong
	for i, rule := range p.set.Rules() {
		place := p.own.Errorf(i, "here")
		e.line("  %s (%s)", place.Rule, e.source.at(p.rules.at(place.Offset)))
		d := &limit.RuleDecision{Exempt: true} // as all are that are not decided
		if i < len(decided) {
			d = &decided[i]
		}
		e.rule(p.name, &rule, d, store.reserves)
	}
}

func (e *explanation) rule(policy string, rule *limit.Rule, d *limit.RuleDecision, reserves map[string]int64) {
	if d.Exempt {
		e.line("    exempt:  the rule neither charges nor refuses the request")
		return
	}
	switch {
	case rule.Key.String() == "global":
		e.line("    key:     all requests of the policy")
	case d.Key == "":
		e.line("    key:     %s, which the request does not have: all such requests share one quota", rule.Key)
	default:
		e.line("    key:     %s %s", rule.Key, quoted(d.Key))
	}
	e.line("    limit:   %s", e.limit(policy, rule, d))
	if len(rule.Reserve) > 0 {
		e.line("    reserve: %s", e.reserve(rule, reserves[d.Name], d.Capacity))
	}
	e.line("    refused: %s", e.refused(rule))
	e.line("    outage:  %s", rule.OnStoreError)
}

// limit says which limit of a rule applies, and why.
func (e *explanation) limit(policy string, rule *limit.Rule, r *limit.RuleDecision) string {
	usual, why := rule.Limit, ""
	switch n, ok := rule.Plans[e.plan]; {
	case len(rule.Plans) == 0:
	case ok:
		usual, why = n, ": plan "+e.plan
	case e.plan == "":
		why = ": the request has no plan"
	default:
		why = ": the rule has no limit for plan " + e.plan
	}
	text := fmt.Sprintf("%d%s", usual, why)
	if e.options.Override != nil && e.options.Override(policy, r.Name, r.Key) != 0 {
		text = fmt.Sprintf("%d: an override of the key; without it %s", r.Limit, text)
	}
	return text
}

// reserve says which units of a rule are kept from the class of the request.
func (e *explanation) reserve(rule *limit.Rule, units, capacity int64) string {
	var above []string
	for _, class := range e.options.Classes[:slices.Index(e.options.Classes, e.class)] {
		if rule.Reserve[class] > 0 {
			above = append(above, class)
		}
	}
	if len(above) == 0 {
		return "nothing is kept from class " + e.class
	}
	return fmt.Sprintf("%d of %d units for %s: the request is of class %s", units, capacity, strings.Join(above, " and "), e.class)
}

// A recorder keeps the units that a request leaves to higher classes, by rule.
type recorder struct {
	core.Store
	reserves map[string]int64
}

func (s *recorder) Take(ctx context.Context, asks []core.Ask) error {
	for i := range asks {
		for _, c := range asks[i].Charges {
			s.reserves[c.Rule] = c.Reserve
		}
	}
	return s.Store.Take(ctx, asks)
}

// unsent is a response that nobody reads.
type unsent struct{}

func (unsent) Header() http.Header         { return http.Header{} }
func (unsent) Write(b []byte) (int, error) { return len(b), nil }
func (unsent) WriteHeader(int)             {}

// refused says what a request meets that a rule refuses.
func (e *explanation) refused(rule *limit.Rule) string {
	r := rule.OnRefusal
	if r.Status == 0 && r.Wait == 0 && r.Redirect == "" && !r.Degrade && !r.Mark {
		r = e.options.OnRefusal
	}
	text := "answered with 429"
	switch {
	case rule.Shadow != nil && rule.Shadow.Enforced == 0:
		return "nothing, since the rule only watches"
	case r.Mark:
		return "admitted, and marked"
	case r.Redirect != "":
		text = "redirected to " + r.Redirect
	case r.Degrade:
		text = "answered by a degraded response"
	case r.Status != 0:
		text = fmt.Sprintf("answered with %d", r.Status)
	}
	if r.Wait > 0 {
		text = fmt.Sprintf("waits up to %v, and is then %s", r.Wait, text)
	}
	if rule.Shadow != nil {
		text += fmt.Sprintf(", for %d%% of the keys; the rule watches the others", rule.Shadow.Enforced)
	}
	return text
}
