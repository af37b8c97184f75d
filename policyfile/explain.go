package policyfile

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/access"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/memstore"
)

// Explain returns in words what applies to a request of a user, who may be "", and why:
// the entry that exempts or bars it, the policy and the route that matches it, and for
// each rule the key, the limit and what a refused request meets. It charges nothing. The
// client is the peer of the request.
func (f *File) Explain(r *http.Request, user string) string {
	e := explanation{File: f, user: user}
	e.line("%s %s from %s%s", r.Method, r.URL.RequestURI(), new(limit.Proxies).ClientIP(r), as(user))
	if entry, ok := e.entry(f.exempt, r); ok {
		e.line("exempt by %s: no rule is charged, whatever the policy", entry)
		return e.String()
	}
	e.line("exempt: no entry matches")
	if entry, ok := e.entry(f.barred, r); ok {
		e.line("barred by %s: answered with 403 on each route that has a policy", entry)
		return e.String()
	}
	e.line("barred: no entry matches")
	e.policy(r)
	return e.String()
}

func as(user string) string {
	if user == "" {
		return ", no user"
	}
	return ", user " + user
}

type explanation struct {
	*File
	strings.Builder
	user string
}

func (e *explanation) line(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		e.WriteString(printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
}

func (e *explanation) userOf(*http.Request) string { return e.user }

// entry returns the first entry that matches a request, and its place.
func (e *explanation) entry(entries []entry, r *http.Request) (string, bool) {
	for _, entry := range entries {
		l, err := access.Parse(strings.NewReader(entry.text), &access.Options{User: e.userOf})
		if err != nil || !l.Matches(r) {
			continue
		}
		text := entry.text
		if words := strings.Fields(text); words[0] == "header" {
			text = "header " + words[1] // and not the secret
		}
		if entry.list != "" {
			text += ", in list " + entry.list
		}
		return fmt.Sprintf("%s (%s)", text, e.at(e.source.inside(entry.node, 0))), true
	}
	return "", false
}

func (f *File) at(at int) string {
	e := f.source.error(at, "")
	return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
}

// policy explains the policy of a request.
func (e *explanation) policy(r *http.Request) {
	found, pattern := e.mux.Handler(r)
	_, clean := found.(matched)
	for i := range e.policies {
		policy := &e.policies[i]
		for _, route := range policy.routes {
			if route.pattern == pattern {
				e.line("policy %s, by its route %s (%s)", policy.name, route.pattern, e.at(e.source.inside(route.node, 0)))
				if len(route.values) > 0 {
					r = withValues(e.mux, r, pattern, route.values, clean)
				}
				e.rules(policy, r)
				return
			}
		}
	}
	e.line("policy: none of the routes of the file matches")
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		if other.Method = method; method != r.Method {
			if _, pattern := e.mux.Handler(other); pattern != "" {
				e.line("  %s of the same path matches %s", method, pattern)
			}
		}
	}
	for i := range e.policies {
		if policy := &e.policies[i]; len(policy.routes) == 0 {
			e.line("  policy %s has no routes: the program may attach it by its name (%s)", policy.name, e.at(policy.at))
		}
	}
}

// rules explains each rule of a policy.
func (e *explanation) rules(policy *policy, r *http.Request) {
	charges := e.charges(policy.set, r)
	for i, rule := range policy.set.Rules() {
		parsed := &policy.rules[i]
		e.line("  %s (%s)", parsed.Rule, e.at(parsed.at))
		e.line("    key:     %s", e.key(parsed.Key, r))
		if i < len(charges) {
			e.line("    limit:   %d", charges[i].Quota.Limit)
		}
		e.line("    refused: %s", refused(&rule))
		e.line("    outage:  %s", rule.OnStoreError)
	}
}

// key describes the key that requests share a quota by.
func (e *explanation) key(k grammar.Key, r *http.Request) string {
	switch k.Kind {
	case grammar.Global:
		return "all requests of the policy"
	case grammar.And:
		var parts []string
		for _, part := range k.Parts {
			parts = append(parts, e.key(part, r))
		}
		return strings.Join(parts, " and ")
	case grammar.Or:
		for _, part := range k.Parts {
			if text := e.key(part, r); !strings.HasSuffix(text, noValue) {
				return text
			}
		}
		return k.String() + noValue
	}
	set, err := limit.Parse("1/1m per " + k.String())
	if err != nil {
		return err.Error()
	}
	if charges := e.charges(limit.Named("key", set.Rules()...), r); len(charges) == 1 && charges[0].Key != "" {
		return k.String() + " " + quoted(charges[0].Key)
	}
	return k.String() + noValue
}

const noValue = ", which the request does not have: all such requests share one quota"

// charges returns what a set charges for a request.
func (e *explanation) charges(set limit.RuleSet, r *http.Request) []core.Charge {
	store := &recorder{Store: memstore.New(nil)}
	limiter := limit.New(store, &limit.Options{User: e.userOf, Log: slog.New(slog.DiscardHandler)})
	policy, err := checker.Bind(limiter, "", set)
	if err != nil {
		return nil
	}
	if d, err := checker.Decide(policy, r, struct{}{}, 0); err == nil {
		d.Release()
	}
	return store.charges
}

// A recorder keeps the charges of a request.
type recorder struct {
	core.Store
	charges []core.Charge
}

func (s *recorder) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	s.charges = append(s.charges[:0], charges...)
	return s.Store.Take(ctx, policy, charges)
}

// refused says what a request meets that a rule refuses.
func refused(rule *limit.Rule) string {
	r := rule.OnRefusal
	text := "answered with 429"
	switch {
	case rule.Shadow && rule.Enforced == 0:
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
	if rule.Shadow {
		text += fmt.Sprintf(", for %d%% of the keys; the rule watches the others", rule.Enforced)
	}
	return text
}
