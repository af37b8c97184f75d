package policyfile

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/excerpt"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/patterns"
)

// Explain returns in words what applies to a request, and why: the entry that exempts or
// bars it, the policy and the route that matches it, and for each rule the key, the limit
// of this caller, what a refused request meets, or that the rule exempts the request. It
// charges nothing, and says nothing of sets that code puts around the policy.
//
// The options are those of the limiter. Explain uses User, Plan, Class, Classes, Override,
// Proxies and OnRefusal. It panics if they are invalid, as [limit.New] does. Nil
// means the zero Options.
func (f *File) Explain(r *http.Request, options *limit.Options) string {
	options = cmp.Or(options, new(limit.Options))
	e := explanation{File: f, options: limit.Options{Caller: options.Caller, Classes: options.Classes, Override: options.Override,
		Proxies: options.Proxies, OnRefusal: options.OnRefusal, Log: slog.New(slog.DiscardHandler)}}
	for _, f := range []*func(*http.Request) string{&e.options.Caller.User, &e.options.Caller.Plan, &e.options.Caller.Class} {
		if *f == nil {
			*f = func(*http.Request) string { return "" }
		}
	}
	if e.options.Classes == nil {
		e.options.Classes = grammar.DefaultClasses
	}
	e.client = limit.Client{Request: r, Limiter: limit.New(nil, &e.options)}
	e.caller(r)
	for _, text := range f.exemptProxies(e.options.Proxies) {
		e.line("exempt %s: requests that it sends without the address of a client are exempt", text)
	}
	if entry, ok := e.entry(f.exempt.entries); ok {
		e.line("exempt by %s: no rule is charged, whatever the policy", entry)
		return e.String()
	}
	e.line("exempt: no entry matches")
	if entry, ok := e.entry(f.barred.entries); ok {
		if len(patterns.Append(nil, e.mux, r)) == 0 {
			e.line("barred by %s, but no route of the file matches: answered with 403 only if code attaches a policy there", entry)
		} else {
			e.line("barred by %s: answered with 403", entry)
		}
		return e.String()
	}
	e.line("barred: no entry matches")
	e.policy(r)
	return e.String()
}

type explanation struct {
	*File
	strings.Builder
	options limit.Options
	client  limit.Client
	plan    string // of the request
}

func (e *explanation) line(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		e.WriteString(excerpt.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
}

// caller describes the request.
func (e *explanation) caller(r *http.Request) {
	address, user, class := e.client.IP(), e.client.User(), e.options.Caller.Class(r)
	e.plan = e.options.Caller.Plan(r)
	peer := limit.Client{Request: r}.IP() // without the proxies
	text := fmt.Sprintf("%s %s from %s", r.Method, r.URL.RequestURI(), address)
	add := func(given bool, format string, args ...any) {
		if given {
			text += fmt.Sprintf(format, args...)
		}
	}
	add(address != peer, " through the proxy %s", peer)
	add(user == "", ", no user")
	add(user != "", ", user %s", user)
	add(e.plan != "", ", plan %s", e.plan)
	add(class != "", ", class %s", class)
	add(class != "" && !slices.Contains(e.options.Classes, class), ", which is none of %s and counts as default",
		strings.Join(e.options.Classes, ", "))
	e.line("%s", text)
	for _, name := range []string{"X-Forwarded-For", "Forwarded", e.options.Proxies.Header} {
		if address == peer && r.Header.Get(name) != "" {
			e.line("%s does not name the client: %s is no trusted proxy, or the header no address", name, peer)
			break
		}
	}
}

// entry returns the first entry that matches a request, and its place.
func (e *explanation) entry(entries []entry) (string, bool) {
	for i, entry := range entries {
		if l, err := build(entries[i : i+1]); err != nil || !l.Matches(e.client) {
			continue
		}
		text := entry.String()
		if entry.list != "" {
			text += ", in list " + entry.list
		}
		return fmt.Sprintf("%s (%s)", text, e.source.at(entry.node, 0)), true
	}
	return "", false
}

// policy explains the policies of a request.
func (e *explanation) policy(r *http.Request) {
	matches := patterns.Append(nil, e.mux, r)
	if len(matches) > 1 {
		e.line("routers read this path in different ways: all of these %d policies decide", len(matches))
	}
	for _, m := range matches {
		p := e.File.find(m.Policy.(string))
		by := &p.routes[slices.IndexFunc(p.routes, func(r route) bool { return r.pattern == m.Pattern })]
		e.line("policy %s, by its route %s (%s)", p.name, m.Pattern, e.source.at(by.node, 0))
		e.rules(p, withValues(e.mux, r, &m, by.values))
	}
	if len(matches) > 0 {
		return
	}
	e.line("policy: none of the routes of the file matches")
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		if other.Method = method; method != r.Method {
			for _, m := range patterns.Append(nil, e.mux, other) {
				e.line("  %s of the same path matches %s", method, m.Pattern)
			}
		}
	}
	for i := range e.policies {
		if policy := &e.policies[i]; len(policy.routes) == 0 {
			e.line("  policy %s has no routes: the program may attach it by its name (%s)", policy.name, e.source.error(e.source.start(policy.node), "").place())
		}
	}
}

// rules explains each rule of a policy, by what a limiter on an empty store decides.
func (e *explanation) rules(p *policy, r *http.Request) {
	bound, err := limit.New(nil, &e.options).Policy(p.set.Resolve(e.named))
	if err != nil {
		d := decoder{source: e.source}
		e.misplaced(&d, err)
		_ = d.err() // which sorts them
		for _, wrong := range d.errs {
			e.line("  not valid with these options: %s: %s", wrong.place(), wrong.Problem)
		}
		return
	}
	once := adapter.Adapter[any]{Route: func(any) (string, string) { return "", r.Pattern }}
	decision, _ := once.Decide(bound, r, nil, 0) // which does not wait
	decision.Release()
	decided := slices.Collect(decision.Rules())
	joined, _ := e.joined(p)
	of, first, usual := p, 0, e.options.OnRefusal // the policy that a rule is of, and its first rule
	if slices.ContainsFunc(joined.Rules(), func(r limit.Rule) bool { q := r.Quota(); return q.Bars() }) {
		usual.Wait, usual.Waiters = 0, 0 // a request beside a ban does not wait
	}
	for i, rule := range joined.Rules() {
		name, own := joined.Origin(i)
		if name != "" && name != of.name {
			of, first = e.File.find(name), i
			e.line("  with %s:", name)
		}
		place := of.own.Errorf(i-first, "here")
		e.line("  %s (%s)", place.Rule, e.source.at(of.rules.at(place.Offset)))
		d := &limit.RuleDecision{Exempt: true} // as all are that are not decided
		if i < len(decided) {
			d = &decided[i]
		}
		if name != "" {
			rule.Name = own
		}
		e.rule(of.name, &rule, d, usual)
	}
}

func (e *explanation) rule(policy string, rule *limit.Rule, d *limit.RuleDecision, usual limit.Refusal) {
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
	e.line("    refused: %s", refused(rule, usual))
	e.line("    outage:  %s", rule.OnStoreError)
	if rule.Debt > 0 {
		e.line("    debt:    up to %d units, if requests cost more than they reserved", rule.Debt)
	}
	if rule.Attempts {
		e.line("    inner:   stays charged if an inner rule set refuses the request")
	}
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
	if e.options.Override != nil && e.options.Override(policy, rule.Name, r.Key) != 0 {
		text = fmt.Sprintf("%d: an override of the key; without it %s", r.Limit, text)
	}
	return text
}

// refused says what a request meets that a rule refuses.
func refused(rule *limit.Rule, usual limit.Refusal) string {
	r := rule.Refusal(usual)
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
