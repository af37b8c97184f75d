package limit

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/rules"
)

// A Policy is a [RuleSet] bound to a [Limiter]. It decides: HTTP requests by
// [Policy.Handler], [Policy.Middleware] and the adapters, and everything else by
// [Policy.Take], [Policy.Wait] and [Policy.Reserve]. Make it with
// [Limiter.Policy]. It is safe for concurrent use.
type Policy struct {
	limiter *Limiter
	scope   rules.Scope
	current atomic.Pointer[version]

	attached atomic.Bool  // whether Handler was called
	warned   atomic.Bool  // about a second route
	userless atomic.Int32 // see noticeUsers

	// Of a named policy, under Limiter.mu.
	declared RuleSet      // in code
	places   []door.Place // where it decides
}

func newPolicy(l *Limiter, set RuleSet) *Policy {
	p := &Policy{limiter: l, scope: set.Scope(), declared: set}
	p.current.Store(newVersion(p, set))
	return p
}

// check returns an error that joins one [*RuleError] for each rule that could
// resolve no key at a place: a rule by user without a function for the
// user, and a rule by a path value that the pattern does not have.
func (l *Limiter) check(set RuleSet, at door.Place) error {
	var errs []error
	wrong := func(rule int, format string, args ...any) { errs = append(errs, set.Errorf(rule, format, args...)) }
	if at.RPC && set.Scope() == rules.ScopeRoute {
		wrong(-1, "rules %s cover many routes: write limit.Named(\"…\", rules…) for one "+
			"quota of all, or limit.EachRoute(rules…) for a quota of each", set)
	}
	for i, rule := range set.Declared() {
		for _, problem := range l.callerProblems(&rule, at) {
			wrong(i, "%s", problem)
		}
		if refusal := rule.Refusal(l.options.OnRefusal); at.RPC && (refusal.Redirect != "" || refusal.Fallback != nil) {
			wrong(i, "a call cannot be redirected, nor sent to another handler: write refuse 429, or Degrade without a Fallback")
		}
		missing, has := rule.PathValues(at.Pattern)
		for _, name := range missing {
			if len(has) == 0 {
				wrong(i, "key \"path %s\": the path %q has no values: add one, or write another key", name, at.Pattern)
			} else {
				wrong(i, "key \"path %s\": the path %q has no such value: write \"path %s\"",
					name, at.Pattern, strings.Join(has, `" or "path `))
			}
		}
	}
	return errors.Join(errs...)
}
