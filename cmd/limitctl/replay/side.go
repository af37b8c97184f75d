package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/patterns"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// A side is one set of policies with quotas of its own. It is the store of them: see Take.
type side struct {
	*memstore.Store
	limiter  *limit.Limiter
	adapter  adapter.Adapter[*side]
	now      int64 // the clock of the store
	mux      *http.ServeMux
	bound    []*bound // the policies in their order
	overflow int64    // decisions on a quota that keys share

	// Of the current request.
	event *event
	match match
	later bool // whether another policy decides it after this one
	taken []core.Return
}

// A bound is a policy on a side, and what it has done.
type bound struct {
	PolicyResult
	policy *limit.Policy
	rules  []*ruleCount
	values []string // names of path values that rules need
}

// A ruleCount is what a rule has done.
type ruleCount struct {
	RuleResult
	key     grammar.Key
	keys    *top
	sought  *sought
	charged bool // whether it keeps what it took if a later policy refuses
	leaves  bool // whether the rule is left out as long as no request has its key

	refusedBy map[string]struct{} // the keys that a suggested rule would have refused; nil of others
}

// newSide binds the policies of options. The error joins one for each thing wrong with them.
func newSide(o *Options, r *run) (*side, error) {
	s := &side{mux: http.NewServeMux()}
	s.Store = memstore.New(&memstore.Options{MaxKeys: r.options.MaxKeys, Now: func() int64 { return s.now }})
	s.limiter = limit.New(s, &limit.Options{
		Exempt: o.Exempt, Bar: o.Bar, Log: slog.New(slog.DiscardHandler),
		Proxies: limit.Proxies{IPv6Prefix: r.options.IPv6Prefix},
	})
	s.adapter = adapter.Adapter[*side]{
		Route:     func(s *side) (method, pattern string) { return "", s.match.pattern },
		PathValue: func(s *side, name string) string { return s.match.values[name] },
		Caller:    limit.Caller[*side]{User: func(s *side) string { return s.event.user }},
		Next:      func(*side, *http.Request) (int, error) { return http.StatusOK, nil },
	}
	var errs []error
	for i := range o.Policies {
		errs = append(errs, s.bind(&o.Policies[i], r))
	}
	return s, errors.Join(errs...)
}

func (s *side) bind(p *Policy, r *run) error {
	pattern := ""
	if len(p.Routes) > 0 {
		pattern = p.Routes[0]
	}
	b := &bound{PolicyResult: PolicyResult{Name: cmp.Or(p.Name, pattern, p.Rules.String()), Routes: p.Routes}}
	joined, err := p.Rules.Join(func(other limit.RuleSet) (limit.RuleSet, bool) {
		return other, len(other.Declared())+len(other.Others()) > 0
	})
	if err != nil {
		return fmt.Errorf("policy %q: %w", b.Name, err)
	}
	for i, rule := range joined.Rules() {
		c := &ruleCount{keys: newTop(r.options.Top), key: syntaxOf(rule.Key), charged: staysCharged(rule), leaves: !bans(rule)}
		c.Name, c.Rule = rule.Name, joined.Declared()[i].String()
		if !leases(rule) {
			c.sought = r.presence.seek(c.key)
		}
		b.values = append(b.values, c.key.Names(grammar.Path)...)
		b.rules = append(b.rules, c)
	}
	rules, err := p.Rules.Derive("", func(rule limit.Rule) limit.Rule { return replayable(rule, r) })
	if err != nil {
		return err
	}
	if b.policy, err = s.adapter.Bind(s.limiter, pattern, rules); err != nil {
		return fmt.Errorf("policy %q: %w", b.Name, err)
	}
	s.bound = append(s.bound, b)
	for _, route := range p.Routes {
		if _, problem := patterns.Register(s.mux, route, patterns.Of{Policy: b, Valued: len(b.values) > 0}); problem != "" {
			return fmt.Errorf("policy %q: route %q: %s", b.Name, route, problem)
		}
	}
	return nil
}

func leases(r limit.Rule) bool { _, ok := r.Algorithm.(limit.Concurrency); return ok }
func bans(r limit.Rule) bool   { _, ok := r.Algorithm.(limit.Ban); return ok }

// replayable returns a rule that can be decided from a log alone.
func replayable(rule limit.Rule, r *run) limit.Rule {
	text := rule.String()
	if leases(rule) {
		r.notes.add("rule %q limits requests in flight, which a log does not show: it refuses nothing here", text)
		return limit.Rule{Name: rule.Name, Key: limit.Everyone, Limit: 1e12, Window: time.Second,
			Algorithm: limit.FixedWindow{}, Hidden: true}
	}
	if rule.Settle != (rules.Settlement{}) {
		r.notes.add("rule %q settles what requests cost, which is not replayed: it keeps what it charges", text)
		rule.Settle = rules.Settlement{}
	}
	if len(rule.Plans) > 0 {
		r.notes.add("rule %q has limits for plans, which a log does not show: its own limit applies to all requests", text)
		rule.Plans = nil
	}
	if len(rule.Reserve) > 0 {
		r.notes.add("rule %q reserves units for classes, which a log does not show: nothing is reserved", text)
		rule.Reserve = nil
	}
	exempt := slices.DeleteFunc(slices.Clone(rule.Exempt), func(entry string) bool {
		return strings.HasPrefix(entry, "plan ") || strings.HasPrefix(entry, "class ")
	})
	if len(exempt) < len(rule.Exempt) {
		r.notes.add("rule %q exempts plans or classes, which a log does not show: it exempts none of them", text)
	}
	rule.Exempt = exempt
	if key := r.presence.seek(syntaxOf(rule.Key)); key != nil && !bans(rule) { // a ban costs nothing anyway
		rule.Cost = key.leaveOut(rule.Cost)
	}
	return rule
}

// matching returns the policies of a place: those without routes, and those of the patterns
// that package policyfile finds for it.
func (s *side) matching(at *place) (matches []match) {
	for i, b := range s.bound {
		if len(b.Routes) == 0 {
			matches = append(matches, match{bound: b, pattern: fmt.Sprintf("policy %d", i+1)})
		}
	}
	for _, of := range patterns.Append(nil, s.mux, &http.Request{Method: at.method, URL: at.url, Host: at.host}) {
		m := match{bound: of.Policy.(*bound), pattern: of.Pattern}
		if len(m.bound.values) > 0 {
			m.values = make(map[string]string)
			value := of.Values(s.mux)
			for _, name := range m.bound.values {
				m.values[name] = value(name)
			}
		}
		matches = append(matches, m)
	}
	return matches
}

// Take implements [core.Store]. It notes what a policy takes for a request, since the refusal
// of a later one gives it back.
func (s *side) Take(ctx context.Context, asks []core.Ask) error {
	if err := s.Store.Take(ctx, asks); err != nil || !s.later {
		return err
	}
	for i := range asks {
		a := &asks[i]
		for j, c := range a.Charges {
			stays := slices.ContainsFunc(s.match.rules, func(r *ruleCount) bool { return r.Name == c.Rule && r.charged })
			if a.Decision.Allowed && c.Cost > 0 && !stays {
				s.taken = append(s.taken, a.Decision.Return(j, c))
			}
		}
	}
	return nil
}

// Guarded keeps [limit.New] from adding a guard: memory does not fail.
func (s *side) Guarded() bool { return true }

// giveBack gives back the first n units that were taken for the request of outer policies.
func (s *side) giveBack(outer []match, n int) {
	for _, m := range outer {
		m.GivenBack++
	}
	for some := range slices.Chunk(s.taken[:n], core.MaxCharges) {
		_, _ = s.Return(context.Background(), some) // memory does not fail
	}
}

// staysCharged reports whether a rule keeps what it took if a later policy refuses, as in the
// limiter.
func staysCharged(r limit.Rule) bool {
	_, distinct := r.Algorithm.(limit.Distinct)
	return r.Attempts || r.Settle != rules.Settlement{} || bans(r) || distinct
}

// An outcome is what a side decides about a request.
type outcome struct {
	retryAfter time.Duration
	refused    bool
	keyless    bool // refused by a rule whose key the request does not have
	barred     bool
	exempt     bool
	undecided  bool
}

// decide decides a request by the policies of its place, one after the other, until one
// refuses it. Those before it give back what they took.
func (s *side) decide(e *event, matches []match, r *http.Request) (o outcome) {
	s.now, s.event, s.taken = e.time, e, s.taken[:0]
	for i, b := range matches {
		taken := len(s.taken)
		s.match, s.later = b, i < len(matches)-1
		d, err := s.adapter.Decide(b.policy, r, s, 0)
		if !d.Allowed {
			s.giveBack(matches[:i], taken)
		}
		if err == nil && (d.Mode == core.ModeExempt || d.Mode == core.ModeBarred) {
			b.Listed++
		} else {
			b.Requests++
			for _, c := range b.rules {
				c.noteKey(e)
			}
		}
		if err != nil {
			return outcome{undecided: true}
		}
		o.exempt = o.exempt || d.Mode == core.ModeExempt
		s.overflow += one(d.Mode == core.ModeOverflow)
		b.Delayed += one(d.Allowed && d.Delay > 0)
		keyless := b.count(&d, e)
		if !d.Allowed {
			b.Refused += one(d.Mode != core.ModeBarred)
			return outcome{refused: true, barred: d.Mode == core.ModeBarred, keyless: keyless, retryAfter: d.RetryAfter}
		}
	}
	return o
}

// count counts the rules that had no room for a request, and their keys. It reports whether the
// request does not have the key of one that refuses it.
func (b *bound) count(d *limit.Decision, e *event) (keyless bool) {
	var refusing []*ruleCount
	for rule := range d.Rules() {
		for _, c := range b.rules {
			if rule.Allowed || c.Name != rule.Name {
				continue
			}
			c.Marked += one(rule.Marked)
			if rule.Refused {
				refusing = append(refusing, c)
			}
			if rule.Shadow {
				c.Shadowed++
				c.keys.add(keyOf(&c.key, e))
				if c.refusedBy != nil {
					c.refusedBy[keyOf(&c.key, e)] = struct{}{}
				}
			}
		}
	}
	for _, c := range refusing {
		c.Refused++
		c.Alone += one(len(refusing) == 1)
		c.keys.add(keyOf(&c.key, e))
		keyless = keyless || c.sought != nil && !has(&c.key, e)
	}
	return keyless
}
