package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
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

// A side is one set of policies with quotas of its own.
type side struct {
	limiter  *limit.Limiter
	layers   layered // the store, if a request can meet several policies
	adapter  adapter.Adapter[*side]
	now      int64 // the clock of the store
	mux      *http.ServeMux
	always   []*bound                 // policies without routes
	bound    []*bound                 // all, in their order
	sets     map[string]limit.RuleSet // that have a name, as they are replayed
	overflow int64                    // decisions on a quota that keys share

	// Of the current request.
	event *event
	found
}

// A bound is a policy on a side, and what it has done.
type bound struct {
	PolicyResult
	policy *limit.Policy
	rules  []*ruleCount
	values []string // names of path values that rules need
	quotas string   // of a policy without routes: what stands for its route
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
	s := &side{mux: http.NewServeMux(), sets: make(map[string]limit.RuleSet)}
	s.layers.Store = memstore.New(&memstore.Options{MaxKeys: r.options.MaxKeys, Now: func() int64 { return s.now }})
	store := core.Store(s.layers.Store)
	if len(o.Policies) > 1 && slices.ContainsFunc(o.Policies, func(p Policy) bool { return len(p.Routes) == 0 }) {
		store = &s.layers
	}
	s.limiter = limit.New(store, &limit.Options{
		Exempt: o.Exempt, Bar: o.Bar, Log: slog.New(slog.DiscardHandler),
		Proxies: limit.Proxies{IPv6Prefix: r.options.IPv6Prefix},
	})
	s.adapter = adapter.Adapter[*side]{
		Route:     func(s *side) (method, pattern string) { return "", s.pattern },
		PathValue: func(s *side, name string) string { return s.values[name] },
		Caller:    limit.Caller[*side]{User: func(s *side) string { return s.event.user.name }},
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
	if b.policy, err = s.adapter.Bind(s.limiter, pattern, s.once(rules)); err != nil {
		return fmt.Errorf("policy %q: %w", b.Name, err)
	}
	s.bound = append(s.bound, b)
	if len(p.Routes) == 0 {
		b.quotas = fmt.Sprintf("policy %d", len(s.bound))
		s.always = append(s.always, b)
	}
	for _, route := range p.Routes {
		if err := register(s.mux, route, patterns.Of{Policy: b, Valued: len(b.values) > 0}); err != nil {
			return fmt.Errorf("policy %q: %w", b.Name, err)
		}
	}
	return nil
}

// once returns a set with the first one of each name in place of others, which have other
// functions: a set with others shares their quotas.
func (s *side) once(set limit.RuleSet) limit.RuleSet {
	if known, ok := s.sets[set.Name()]; ok && known.String() == set.String() {
		return known
	}
	set = set.Resolve(func(name string) *limit.RuleSet {
		for _, other := range set.Others() {
			if other.Name() == name {
				other = s.once(other)
				return &other
			}
		}
		if known, ok := s.sets[name]; ok {
			return &known
		}
		return nil
	})
	if set.Name() != "" {
		s.sets[set.Name()] = set
	}
	return set
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
	return leaveOut(rule, r.presence.seek(syntaxOf(rule.Key)))
}

// registered is a place in this file, which says nothing to users.
var registered = regexp.MustCompile(` \(registered at [^)]*\)`)

// register adds a pattern to a mux, which panics if it does not take it.
func register(mux *http.ServeMux, pattern string, of patterns.Of) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			text, _, _ := strings.Cut(fmt.Sprint(problem), "\n")
			text = registered.ReplaceAllString(text, "")
			err = fmt.Errorf("route %q: %s: write a pattern of net/http once, such as POST /login or GET /items/{id}",
				pattern, text)
		}
	}()
	mux.Handle(pattern, of)
	return nil
}

// match returns the policies of a place: those without routes, and those of the patterns
// that package policyfile finds for it.
func (s *side) match(at *place) (m match) {
	for _, b := range s.always {
		m.bound, m.by = append(m.bound, b), append(m.by, found{pattern: b.quotas})
	}
	for _, of := range patterns.Append(nil, s.mux, &http.Request{Method: at.method, URL: at.url, Host: at.host}) {
		b := of.Policy.(*bound)
		by, value := found{pattern: of.Pattern}, of.Values(s.mux)
		for _, name := range b.values {
			if by.values == nil {
				by.values = make(map[string]string)
			}
			by.values[name] = value(name)
		}
		m.pattern = cmp.Or(m.pattern, of.Pattern)
		m.bound, m.by = append(m.bound, b), append(m.by, by)
	}
	return m
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
func (s *side) decide(e *event, m *match, r *http.Request) (o outcome) {
	s.now, s.event = e.time, e
	s.layers.taken = s.layers.taken[:0]
	for i, b := range m.bound {
		taken := len(s.layers.taken)
		s.layers.deciding = b
		b.Requests++
		s.found = m.by[i]
		for _, c := range b.rules {
			c.noteKey(e)
		}
		d, err := s.adapter.Decide(b.policy, r, s, 0)
		if !d.Allowed {
			s.layers.giveBack(m.bound[:i], taken)
		}
		if err != nil {
			return outcome{undecided: true}
		}
		o.exempt = o.exempt || d.Mode == core.ModeExempt
		s.overflow += one(d.Mode == core.ModeOverflow)
		b.Delayed += one(d.Allowed && d.Delay > 0)
		for rule := range d.Rules() {
			if rule.Allowed || !rule.Shadow && !rule.Marked {
				continue
			}
			for _, c := range b.named(rule.Name) {
				if c.Marked += one(rule.Marked); rule.Shadow {
					c.Shadowed++
					c.keys.add(keyOf(&c.key, e))
					if c.refusedBy != nil {
						c.refusedBy[keyOf(&c.key, e)] = struct{}{}
					}
				}
			}
		}
		if !d.Allowed {
			barred := d.Mode == core.ModeBarred
			return outcome{refused: true, barred: barred, keyless: b.refuse(&d, e), retryAfter: d.RetryAfter}
		}
	}
	return o
}

// refuse counts the rules that refuse a request, and the keys that they refuse. It
// reports whether the request does not have the key of one of them.
func (b *bound) refuse(d *limit.Decision, e *event) (keyless bool) {
	b.Refused++
	var refusing []*ruleCount
	for rule := range d.Rules() {
		if rule.Refused {
			refusing = append(refusing, b.named(rule.Name)...)
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

func (b *bound) named(name string) (rules []*ruleCount) {
	for _, c := range b.rules {
		if c.Name == name {
			rules = append(rules, c)
		}
	}
	return rules
}
