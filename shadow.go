package limit

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/routelimit/limit/core"
)

// A watch is what a policy with a rule that watches or hides knows of it, and nil for
// other policies.
type watch struct {
	alone    uint16 // a bit for each rule that refuses no key
	enforced bool   // whether a shadow is enforced for some keys
	marks    bool   // whether a rule marks
	hides    bool   // whether a rule does not appear in headers, for some keys at least
	old      []int  // for each rule, the index of the one that it may replace, or -1
	compares bool   // whether a rule may replace another
}

func newWatch(rules []Rule, refusals []Refusal) *watch {
	w := &watch{old: make([]int, len(rules))}
	for i, r := range rules {
		marks := refusals != nil && refusals[i].Mark
		if marks || r.Shadow != nil && r.Shadow.Enforced == 0 {
			w.alone |= 1 << i
		}
		w.marks = w.marks || marks
		w.enforced = w.enforced || r.shadow().Enforced > 0
		w.hides = w.hides || r.Hidden || r.Shadow != nil
		w.old[i] = slices.IndexFunc(rules, func(old Rule) bool { return r.shadow().Replaces != "" && old.name() == r.Shadow.Replaces })
		w.compares = w.compares || w.old[i] >= 0
	}
	if w.alone == 0 && !w.enforced && !w.hides {
		return nil
	}
	return w
}

// choose says for which of the charges, whose keys are known, a shadow refuses nothing.
func (p *version) choose(route *route, charges []core.Charge) {
	for i := range charges {
		if percent := p.set.rules[i].shadow().Enforced; percent > 0 {
			charges[i].Alone = share(route.stored, p.names[i], charges[i].Key) >= percent
		}
	}
}

// share returns a number from 0 to 99 for a key, the same in all processes: it must
// never change. It is FNV-1a, mixed so that all bits count.
func share(policy, rule, key string) int {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{policy, rule, key} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211 // in no text, so that "ab", "c" differs from "a", "bc"
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int((h ^ h>>33) % 100)
}

// shadows and marks report whether rule i watched without enforcing, and whether it
// marked the request.
func (d *Decision) shadows(i int) bool { return d.core.Alone(i) && d.policy.set.rules[i].Shadow != nil }

func (d *Decision) marks(i int) bool {
	return d.core.Alone(i) && !d.core.Outcomes()[i].Fits() && d.policy.set.rules[i].Shadow == nil
}

// Marked returns the names of the rules that marked the request: those that have a Mark,
// and had no room for it.
func (d Decision) Marked() []string { return d.namesOf((*Decision).marks) }

// Shadowed returns the names of the shadow rules that would have refused the request.
func (d Decision) Shadowed() []string {
	return d.namesOf(func(d *Decision, i int) bool { return d.shadows(i) && !d.core.Outcomes()[i].Fits() })
}

func (d *Decision) namesOf(rule func(*Decision, int) bool) (names []string) {
	if d.policy == nil || d.policy.watch == nil {
		return nil
	}
	for i := range d.core.Outcomes() {
		if rule(d, i) {
			names = append(names, d.policy.names[i])
		}
	}
	return names
}

// A Comparison is what a shadow (New) and the rule that it may replace (Old) say about
// one request. New decides as if it were the only rule. A request that a third rule
// refuses charges only New, so New then refuses more requests than it would in place of
// Old.
type Comparison struct{ Old, New RuleDecision }

// Comparisons returns one Comparison for each [Shadow].Replaces whose shadow was not
// enforced for the request. Package agreement counts them.
func (d Decision) Comparisons() (list []Comparison) {
	if d.policy == nil || d.policy.watch == nil || !d.policy.watch.compares {
		return nil
	}
	for i, old := range d.policy.watch.old {
		if old >= 0 && d.shadows(i) {
			list = append(list, Comparison{Old: d.rule(old), New: d.rule(i)})
		}
	}
	return list
}

// The header of marked requests, as net/http spells it.
const headerMarked = "Ratelimit-Marked"

type markedKey struct{}

// Marked returns the names of the rules that marked a request: see [Refusal].Mark. Pass
// the context of the request in its handler. Several policies on one request add up.
func Marked(ctx context.Context) []string {
	names, _ := ctx.Value(markedKey{}).([]string)
	return slices.Clone(names)
}

// showMarks tells the handler and the client which rules marked an admitted request.
func (d *Decision) showMarks(h http.Header, r *http.Request) *http.Request {
	names := d.Marked()
	if names == nil {
		return r
	}
	field := ""
	for i := range d.core.Outcomes() {
		if d.marks(i) && !d.policy.set.rules[i].Hidden {
			if field != "" {
				field += ", "
			}
			field += d.policy.names[i]
		}
	}
	if field != "" && d.policy.limiter.options.Headers != NoHeaders {
		h[headerMarked] = append(h[headerMarked], field)
	}
	before, _ := r.Context().Value(markedKey{}).([]string)
	return r.WithContext(context.WithValue(r.Context(), markedKey{}, slices.Concat(before, names)))
}

// shown reports whether rule i appears in headers.
func (d *Decision) shown(i int) bool {
	rule := &d.policy.set.rules[i]
	return !rule.Hidden && !rule.noQuota() && !d.shadows(i) && !d.caller.exempts(i)
}

// shownFields returns RateLimit-Policy and RateLimit of the rules that appear in headers,
// or "".
func (d *Decision) shownFields() (policy, state string) {
	for i, o := range d.core.Outcomes() {
		if !d.shown(i) {
			continue
		}
		if policy != "" {
			policy, state = policy+", ", state+", "
		}
		policy += d.caller.terms.members[i]
		state += `"` + d.policy.names[i] + `";r=` + strconv.FormatInt(max(0, o.Remaining-d.caller.reserve(i)), 10)
		if t := max(o.MoreAfter, o.RetryAfter); t > 0 {
			state += ";t=" + strconv.FormatInt(seconds(micros(t)), 10)
		}
	}
	return policy, state
}
