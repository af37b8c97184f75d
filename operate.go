package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// policies is Policies of package operate.
func (l *Limiter) policies() iter.Seq2[string, RuleSet] {
	return func(yield func(string, RuleSet) bool) {
		for _, p := range l.policyRoutes() {
			if !yield(p.route.name, p.policy.set) {
				return
			}
		}
	}
}

// policyRoutes returns the routes of all policies, sorted by name.
func (l *Limiter) policyRoutes() (list []policyRoute) {
	l.mu.Lock()
	for _, p := range l.named {
		v := p.current.Load()
		list = append(list, policyRoute{v, v.named})
	}
	for _, routes := range l.routes {
		list = append(list, routes...)
	}
	l.mu.Unlock()
	slices.SortStableFunc(list, func(a, b policyRoute) int {
		return cmp.Or(strings.Compare(a.route.name, b.route.name), cmp.Compare(a.route.number, b.route.number))
	})
	return list
}

// peekKey is Peek of package operate.
func (l *Limiter) peekKey(ctx context.Context, policy, rule, key, plan string) (RuleDecision, error) {
	of, i, err := l.find(policy, rule)
	if err != nil {
		return RuleDecision{}, err
	}
	p := of.policy
	run := of.route.plan.Load().Begin()
	defer run.End()
	for n := range run.Charges {
		run.Charges[n].Key = key
	}
	terms := p.distinguish(run, of.route, &profile{plan: plan})
	run.Caller.Exempt = 0
	var d Decision
	if err := run.LookAt(ctx, i, &d.of); err != nil {
		return RuleDecision{}, err
	}
	d.of.Outcomes()[i].Need(1 + d.of.Caller.Reserve(i))
	d.describe(p, of.route, terms)
	return d.rule(i), nil
}

// resetKey is Reset of package operate.
func (l *Limiter) resetKey(ctx context.Context, policy, rule, key string) error {
	of, i, err := l.find(policy, rule)
	if err != nil {
		return err
	}
	if r := &of.policy.set.rules[i]; r.leases() {
		return &RuleError{Rule: r.String(), Problem: "requests in flight cannot be reset: their leases end with them"}
	}
	return l.reset(ctx, of.policy.states(of.route, i, key))
}

// find returns the policy of a name on its route, and the index of its rule.
func (l *Limiter) find(policy, rule string) (found policyRoute, index int, err error) {
	var names, rules []string
	for _, of := range l.policyRoutes() {
		names = append(names, of.route.name)
		if of.route.name != policy {
			continue
		}
		rules = append(rules, of.policy.names...)
		i := slices.Index(of.policy.names, rule)
		switch {
		case i < 0:
		case found.route == nil:
			found, index = of, i
		case found.route.stored != of.route.stored || found.route.variant(index) != of.route.variant(i):
			return found, 0, &RuleError{Problem: fmt.Sprintf("policy %q has two different rules %q: give one of them a Name", policy, rule)}
		}
	}
	switch {
	case found.route != nil:
		return found, index, nil
	case rules != nil:
		return found, 0, &RuleError{Problem: fmt.Sprintf("policy %q has no rule %q: write one of %s", policy, rule, strings.Join(rules, ", "))}
	case len(names) == 0:
		return found, 0, &RuleError{Problem: fmt.Sprintf("no policy %q: no policy has a name, and no route has had a request", policy)}
	}
	return found, 0, &RuleError{Problem: fmt.Sprintf("no policy %q, or its route has had no request: there are %s", policy, someOf(names))}
}

// someOf lists names, and says how many it leaves out of a long list.
func someOf(names []string) string {
	const most = 20
	names = slices.Compact(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// An observer is a function that sees all decisions. It has a pointer, since functions
// cannot be compared.
type observer struct {
	observe func(*http.Request, Decision, error)
}

// observe is Observe of package operate.
func (l *Limiter) observe(observe func(*http.Request, Decision, error)) (stop func()) {
	o := &observer{observe}
	l.setObservers(func(list []*observer) []*observer { return append(list, o) })
	return sync.OnceFunc(func() {
		l.setObservers(func(list []*observer) []*observer {
			return slices.DeleteFunc(list, func(other *observer) bool { return other == o })
		})
	})
}

// setObservers replaces the observers by what change makes of a copy of them.
func (l *Limiter) setObservers(change func([]*observer) []*observer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*observer
	if now := l.observers.Load(); now != nil {
		list = slices.Clone(*now)
	}
	list = change(list)
	l.engine.Timed.Store(len(list) > 0)
	if len(list) == 0 {
		l.observers.Store(nil)
		return
	}
	l.observers.Store(&list)
}

func notify(observers []*observer, r *http.Request, d Decision, err error) {
	for _, o := range observers {
		o.observe(r, d, err)
	}
}

// Check returns what is wrong before the first request: a store that cannot be reached
// or written, evicts keys, or withholds information that the store needs, and quotas in
// memory although the program has several instances. Call it before the program serves:
//
//	if err := limiter.Check(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// The error joins one [*core.Diagnosis] for each problem that [Options].Silence does not
// name, or is the error of ctx if that was canceled. Check changes no quota, and waits
// for the store until ctx ends, at most 5 s. It checks stores of package redisstore, and
// others that have a Check method: see [core.Check].
//
// If the program does not call Check, the same problems are logged: failures of the
// store when they happen, and the rest after the first decision.
func (l *Limiter) Check(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	var found []error
	for _, err := range append(errorsOf(core.Check(ctx, l.engine.Store)), l.checkMemory()) {
		var d *core.Diagnosis
		if err != nil && !(errors.As(err, &d) && l.lines.Silent(d.Code)) {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// errorsOf returns the errors that errors.Join has joined.
func errorsOf(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// checkMemory returns an error if quotas are in memory, and the program says that it has
// several instances.
func (l *Limiter) checkMemory() error {
	if !l.engine.InMemory || l.options.Instances <= 1 {
		return nil
	}
	return &core.Diagnosis{Code: notice.SeveralMemories, Err: fmt.Errorf("limit: the quotas are in memory, and limit.Options.Instances is %d: "+
		"each instance admits the full limit; share the quotas with package redisstore, or leave out Instances", l.options.Instances)}
}

// What to look at after the next decision.
const (
	lookAtStore   uint32 = 1 << iota // if the store has made it
	lookAtChanges                    // if the last change was a second ago
)

// lookOnce looks for problems after a decision, and logs them. A store that fails has its
// own lines.
func (l *Limiter) lookOnce(look uint32, mode core.Mode) {
	n := &l.notices
	if look&lookAtChanges != 0 && time.Now().UnixNano()-n.changed.Load() > int64(time.Second) && n.look.And(^lookAtChanges)&lookAtChanges != 0 {
		l.noticeUndeclared()
	}
	if look&lookAtStore != 0 && mode == core.ModeExact && n.look.And(^lookAtStore)&lookAtStore != 0 {
		l.lookAtStore()
	}
}

func (l *Limiter) lookAtStore() {
	if l.engine.InMemory {
		l.logProblems(l.checkMemory())
		return
	}
	go func() {
		defer func() { _ = recover() }() // a store's: a panic in this goroutine would end the program
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		l.logProblems(core.Check(ctx, l.engine.Store))
	}()
}

func (l *Limiter) logProblems(problems error) {
	for _, err := range errorsOf(problems) {
		var d *core.Diagnosis
		if errors.As(err, &d) && d.Code != notice.Unreachable { // which the lines of the guard say
			notice.Write(l.log(), d.Code, "limit: a check has found a problem", 0, "error", d.Err)
		}
	}
}
