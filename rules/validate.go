package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/excerpt"
	"github.com/routelimit/limit/internal/grammar"
)

// An Error is one thing wrong with a rule, or with a set of rules if Rule is empty.
type Error struct {
	Policy  string // the name of the set, or "" for one without a name
	Rule    string // the rule in the text grammar, or "" if the set or its text is wrong
	Problem string // what is wrong, and what to write instead

	Text   string // the text that the rules were read from, or "" for rules in code
	Offset int    // in bytes, of the rule in the text, or of the word that does not fit

	misread bool // the text departs from the grammar
}

// Error returns the policy, the place and the problem, and below them the line of a text
// with a caret.
func (e *Error) Error() string {
	where, mark := "", excerpt.At(e.Text, e.Offset)
	if e.Policy != "" {
		where = fmt.Sprintf("policy %q: ", e.Policy)
	}
	if e.misread {
		if strings.Contains(strings.TrimSpace(e.Text), "\n") {
			where += fmt.Sprintf("line %d, ", mark.Line)
		}
		where += fmt.Sprintf("column %d of %q: ", mark.Column, mark.Shown())
	}
	if e.Rule != "" {
		where += fmt.Sprintf("rule %q: ", e.Rule)
	}
	text := "limit: " + where + e.Problem
	if e.misread || e.Text != "" {
		text += mark.String()
	}
	return text
}

// Errorf returns an error about a rule of s, or about s if the index is negative, with the place in
// the text that the rules were read from. It is for packages that check more than [Set.Validate].
func (s Set) Errorf(rule int, format string, args ...any) *Error {
	e := &Error{Policy: s.policy(), Problem: fmt.Sprintf(format, args...)}
	if rule >= 0 {
		e.Rule = s.rules[rule].String()
	}
	if len(s.at) == len(s.rules) && len(s.at) > 0 {
		e.Text, e.Offset = s.text, s.at[max(0, rule)]
	}
	return e
}

// policy returns the name of s, or "".
func (s *Set) policy() string {
	if s.scope != ScopeNamed || !grammar.ValidName(s.name) {
		return ""
	}
	return s.name
}

// problems are the mistakes in a rule of a set.
type problems struct {
	set  *Set
	rule int
	errs []error
}

func (p *problems) addf(format string, args ...any) {
	p.errs = append(p.errs, p.set.Errorf(p.rule, format, args...))
}

func (p *problems) add(list ...string) {
	for _, problem := range list {
		p.addf("%s", problem)
	}
}

// function reports a function that is nil, or whose name has no text.
func (p *problems) function(maker, name string, given, isNil bool) {
	if given && (isNil || !grammar.IsWord(name) || maker == "SettleBy" && '0' <= name[0] && name[0] <= '9') {
		p.addf("rules.%s(%q, …): write a function that is not nil, and a name without "+
			"spaces, semicolons and parentheses", maker, name)
	}
}

// Validate returns an error that joins one [*Error] for each thing wrong with the set, or nil.
// Declaring a route with an invalid set panics with the same error.
func (s Set) Validate() error {
	p := &problems{set: &s, rule: -1}
	if s.scope == ScopeNamed && !grammar.ValidName(s.name) {
		p.addf("policy name %q: write 1 to %d letters, digits, '.', '_' or '-' (so that it cannot be a route)", s.name, grammar.MaxName)
	}
	if len(s.rules) == 0 && s.with == nil && !s.overridable {
		p.addf("no rules: write at least one, such as limit.PerIP(time.Minute, 100)")
	}
	switch {
	case len(s.rules) <= core.MaxCharges:
	case len(s.from) > 0:
		p.addf("%d rules with those of %s: a request is decided by at most %d; put one of the sets around the others, on a group",
			len(s.rules), s.from[0].policy, core.MaxCharges)
	default:
		p.addf("%d rules: a request is decided by at most %d; split the policy over a group and its routes", len(s.rules), core.MaxCharges)
	}
	s.checkWith(p)
	strikes := func(r Rule) bool { return !r.bars() || r.Settle != (Settlement{}) || r.Cost != (Cost{}) }
	if len(s.rules) > 0 && !slices.ContainsFunc(s.rules, strikes) {
		p.addf("rules %s: nothing can strike: "+
			"write a rule whose refusals count, or a Settle such as rules.OnStatus(http.StatusUnauthorized), in text settle 401", s)
	}
	for i := range s.rules {
		p.rule = i
		for _, a := range table() {
			if a.check != nil {
				a.check(&s.rules[i], p)
			}
		}
	}
	return errors.Join(p.errs...)
}

func checkName(r *Rule, p *problems) {
	name := r.name()
	if !grammar.ValidName(name) {
		p.addf("name %q: write 1 to %d letters, digits, '.', '_' or '-' as its Name", name, grammar.MaxName)
	}
	first := slices.IndexFunc(p.set.rules[:p.rule], func(other Rule) bool { return other.name() == name })
	if first >= 0 {
		p.addf("the name %q is taken by %q: remove one of them, or give it another Name, in text a name and a colon before it", name, p.set.rules[first])
	}
}

func checkQuota(r *Rule, p *problems) {
	q := r.Quota()
	if q.Algorithm == noAlgorithm {
		p.addf("algorithm %s: write a value of package limit, such as limit.TokenBucket{Burst: 5}, and no pointer", strings.Replace(fmt.Sprintf("%T", r.Algorithm), "rules.", "limit.", 1))
		q.Algorithm = core.FixedWindow // one mistake is reported once
	}
	q.Window = min(max(q.Window, core.MinWindow), core.MaxWindow) // checkWindow reports it in the units of this package
	if joined, ok := q.Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			p.addf("%v", err)
		}
	}
}

func checkWindow(r *Rule, p *problems) {
	calendar := r.calendar().Unit != 0
	switch micros := r.window().Microseconds(); {
	case calendar && r.Window != 0 && r.Window != (&Rule{Algorithm: r.Algorithm}).window():
		p.addf("window %v: leave it out, since the calendar says it", r.Window)
	case micros < core.MinWindow && !calendar:
		p.addf("window %v: write at least 1ms (the window comes first, then the limit)", r.Window)
	case micros > core.MaxWindow:
		p.addf("window %v: write at most %dh (366 days)", r.Window, 366*24)
	case r.Window%time.Microsecond != 0:
		p.addf("window %v: write a whole number of microseconds", r.Window)
	case r.leases() && micros > 0 && r.Window < minLease:
		p.addf("window %v: it is how long a lease lives that is not renewed: write at least %v", r.Window, minLease)
	}
}

func checkRefusal(r *Rule, p *problems) {
	p.add(r.OnRefusal.problems()...)
	if r.bars() && r.OnRefusal.Degrade && r.OnRefusal.Fallback == nil {
		p.addf("a ban that degrades lets barred clients reach the handler: write a Fallback, or refuse 429 in place of degrade")
	}
	if r.OnRefusal.Wait > 0 && slices.ContainsFunc(p.set.rules, func(r Rule) bool { return r.bars() }) {
		p.addf("a request that waits is refused more than once, and each is a strike of the ban: leave out the wait or the ban")
	}
}

// maxMessage is the length in bytes of the longest Message.
const maxMessage = 200

func checkPlans(r *Rule, p *problems) {
	if len(r.Plans) > grammar.MaxCallers {
		p.addf("%d plans: write at most %d; use limit.Options.Override for the limits of single keys", len(r.Plans), grammar.MaxCallers)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Plans)) {
		if !grammar.ValidName(name) {
			p.addf("plan %q: write 1 to %d letters, digits, '.', '_' or '-'", name, grammar.MaxName)
			continue
		}
		other := r.WithLimit(r.Plans[name])
		q, usual := other.Quota(), r.Quota()
		if usual.Validate() != nil {
			continue // one mistake is reported once
		}
		if err := q.Validate(); err != nil {
			p.addf("plan %s: %v", name, err)
		}
	}
}

func checkDebt(r *Rule, p *problems) {
	switch q := r.Quota(); {
	case r.Debt < 0 || r.Debt > core.MaxLimit:
		p.addf("debt %d: write 1 to %d units, or leave it out", r.Debt, int64(core.MaxLimit))
	case r.Debt > 0 && q.Algorithm != noAlgorithm && !q.Algorithm.Owes():
		p.addf("debt: %v has none: leave it out, or write token-bucket, leaky-bucket, sliding-cells or fixed-window", q.Algorithm)
	}
}

func checkAttempts(r *Rule, p *problems) {
	switch {
	case r.Attempts && r.Settle != (Settlement{}):
		p.addf("attempts and settle: the answer settles the rule already: leave out attempts")
	case r.Attempts && (r.leases() || r.bars()):
		p.addf("attempts: %v gives nothing back that counts attempts: leave out attempts", r.algorithm())
	}
}

// checkReserve checks the reserve of r, whatever the classes.
func checkReserve(r *Rule, p *problems) {
	if len(r.Reserve) == 0 {
		return
	}
	if r.noQuota() {
		p.addf("%v leaves no reserve: leave it out, or write another algorithm", r.algorithm())
	}
	if len(r.Reserve) > grammar.MaxCallers {
		p.addf("%d reserves: write at most %d", len(r.Reserve), grammar.MaxCallers)
		return
	}
	sum := int64(0)
	for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
		switch n := r.Reserve[name]; {
		case !grammar.ValidName(name):
			p.addf("reserve %q: write 1 to %d letters, digits, '.', '_' or '-'", name, grammar.MaxName)
		case n < 1 || n > core.MaxLimit:
			p.addf("reserve %s %d: write 1 or more units, or leave it out", name, n)
		default:
			sum += n // at most 64 times 10^12
		}
	}
	if q := r.Quota(); q.Validate() == nil && sum >= q.Capacity() {
		p.addf("reserves of %d units: the rule has %d: leave at least one for the lowest class", sum, q.Capacity())
	}
}

func checkExempt(r *Rule, p *problems) {
	if len(r.Exempt) > grammar.MaxCallers {
		p.addf("%d exemptions: write at most %d, and put more into a list of package access", len(r.Exempt), grammar.MaxCallers)
		return
	}
	for i, entry := range r.Exempt {
		kind, value := grammar.SplitExemption(entry)
		switch {
		case value == "":
			p.addf("exempt %q: write ip and a prefix, or user, plan or class and a name of one word", entry)
		case slices.Contains(r.Exempt[:i], entry):
			p.addf("exempt %s: it stands twice: remove one", entry)
		case kind == "ip":
			if _, problem := grammar.ExemptPrefix(value); problem != "" {
				p.addf("exempt %s: %s", entry, problem)
			}
		case kind != "user" && !grammar.ValidName(value):
			p.addf("exempt %s: write a name of 1 to %d letters, digits, '.', '_' or '-'", entry, grammar.MaxName)
		}
	}
}

// CheckClasses returns an error that joins one for each class that a rule names and a limiter
// with these classes does not have.
func (s Set) CheckClasses(classes []string) error {
	var errs []error
	listed := strings.Join(classes, ", ")
	for i, r := range s.rules {
		for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
			switch slices.Index(classes, name) {
			case -1:
				errs = append(errs, s.Errorf(i, "reserve %s: write one of the classes %s, or add it to limit.Options.Classes", name, listed))
			case len(classes) - 1:
				errs = append(errs, s.Errorf(i, "reserve %s: no class is below it: write a higher one", name))
			}
		}
		for _, entry := range r.Exempt {
			if kind, name := grammar.SplitExemption(entry); kind == "class" && !slices.Contains(classes, name) {
				errs = append(errs, s.Errorf(i, "exempt %s: write one of the classes %s, or add it to limit.Options.Classes", entry, listed))
			}
		}
	}
	return errors.Join(errs...)
}
