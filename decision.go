package limit

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
)

// A Decision is the outcome of a policy for one request.
type Decision struct {
	// Allowed reports whether the request is admitted. If it is not, no rule
	// was charged.
	Allowed bool

	// Mode says how the decision was made: by the store, or without it.
	Mode core.Mode

	// At is when the decision was made: on the clock of Redis, or on that of this
	// process for a memory store, [core.ModeExempt] and [core.ModeBarred].
	At time.Time

	// RetryAfter is how long until the same request would be admitted if no
	// other request came: the longest of the rules' times. It is 0 if the request
	// is admitted, and [Never] if it costs more than a rule can ever hold. For
	// [core.ModeBarred] it is what [Options].Bar returned.
	RetryAfter time.Duration

	// Delay is how long after the decision the slot of an admitted request comes,
	// if a rule is a [Queue]: see [Decision.Wait]. Otherwise it is 0.
	Delay time.Duration

	// Taken is how many units of each rule an admitted [Request] without Costs took:
	// its Cost, or fewer with UpTo.
	Taken int64

	// Waited is how long a request waited until its rules admitted it, or before it was
	// refused: see [Refusal].Wait and [Policy.Wait]. The time to a slot is Delay.
	Waited time.Duration

	// Latency is how long the store took to decide, on the clock of this process: the
	// last call if there were several. It is measured while a function observes decisions
	// (see operate.Observe), and 0 otherwise. Of decisions in memory, a random one in 16
	// is measured, since reading the clock takes a quarter of their time. It is 0 for
	// [core.ModeExempt] and [core.ModeBarred].
	Latency time.Duration

	outcome outcome // of a request that was refused

	of     engine.Decision
	policy *version
	route  *route
	terms  *terms
	jitter time.Duration // to add to Retry-After
	outer  *layer        // of a decision that DecisionFrom returns
	loss   *loss         // likewise
}

// Never is the RetryAfter of a request that costs more than a rule can ever hold, or
// whose client is barred for good: no wait helps. Retry-After is then left out of the
// response.
const Never time.Duration = math.MaxInt64

// A RuleDecision is the outcome of one rule.
type RuleDecision struct {
	Name       string
	Key        string        // whose quota it is, as operate.Key returns it; "" for a Global rule and for requests without a key
	Limit      int64         // of this caller: see Rule.Plans
	Window     time.Duration // for a calendar, the usual length of its unit; for Concurrency, the life of a lease
	Capacity   int64         // the most units that can remain: Limit, or what the Burst allows
	Allowed    bool          // whether this rule had room
	Remaining  int64         // units left for this caller after the decision
	RetryAfter time.Duration // until this rule has room; 0 if it had, Never if it cannot have
	ResetAfter time.Duration // until the quota is full again; 0 if it is
	Shadow     bool          // whether this decision of the rule was not enforced: see Rule.Shadow
	Marked     bool          // whether the rule marked the request: see Refusal.Mark
	Exempt     bool          // whether the rule exempts the request: see Rule.Exempt
}

// describe fills in what follows from what the engine has decided. A Decision is large:
// where it is made for each request, it is filled in place.
func (d *Decision) describe(p *version, r *route, t *terms) {
	d.Allowed, d.Mode, d.Waited, d.Latency = d.of.Allowed, d.of.Mode, d.of.Waited, d.of.Latency
	d.At = time.UnixMicro(d.of.At)
	d.policy, d.route, d.terms = p, r, t
	if !d.Allowed {
		d.RetryAfter = retryAfter(d.of.RetryAfter())
		if jitter := p.limiter.options.Jitter; jitter > 0 {
			d.jitter = rand.N(jitter + 1)
		}
	}
	d.Delay = engine.Micros(d.of.Delay)
	p.limiter.noticeDecision(d)
}

// retryAfter returns a time of package core as a duration.
func retryAfter(n int64) time.Duration {
	if n == core.Never {
		return Never
	}
	return engine.Micros(n)
}

// Policy returns the name of the quotas: the route, or the name given by [Named].
func (d Decision) Policy() string {
	if d.route == nil {
		return ""
	}
	return d.route.name
}

// Rules returns the outcome of each rule, in the order of declaration. It is nil for
// [core.ModeExempt] and [core.ModeBarred].
func (d Decision) Rules() []RuleDecision {
	if d.policy == nil {
		return nil
	}
	rules := make([]RuleDecision, len(d.policy.names))
	for i := range rules {
		rules[i] = d.rule(i)
	}
	return rules
}

// Rule writes the outcome of rule i, in the order of declaration, to rule. It returns
// false, and writes nothing, if there is no such rule. It is [Decision.Rules] without an
// allocation:
//
//	var rule limit.RuleDecision
//	for i := 0; d.Rule(i, &rule); i++ {
//		…
//	}
func (d *Decision) Rule(i int, rule *RuleDecision) bool {
	if d.policy == nil || uint(i) >= uint(len(d.policy.names)) {
		return false
	}
	d.fill(rule, i)
	return true
}

// rule returns the outcome of rule i.
func (d *Decision) rule(i int) (outcome RuleDecision) {
	d.fill(&outcome, i)
	return outcome
}

// fill makes outcome that of rule i.
func (d *Decision) fill(outcome *RuleDecision, i int) {
	rule, o := &d.policy.set.rules[i], &d.of.Outcomes()[i]
	// Field by field: a literal would be copied.
	outcome.Name = d.policy.names[i]
	outcome.Key = d.of.Key(i)
	outcome.Limit = d.terms.limits[i]
	if outcome.Window = rule.Window; outcome.Window == 0 { // the method copies the rule
		outcome.Window = rule.window()
	}
	outcome.Capacity = d.terms.Capacities[i]
	outcome.Allowed = o.Fits()
	outcome.Remaining = d.of.Remaining(i)
	outcome.RetryAfter = retryAfter(o.RetryAfter)
	outcome.ResetAfter = engine.Micros(o.ResetAfter)
	outcome.Shadow = d.shadows(i)
	outcome.Marked = d.marks(i)
	outcome.Exempt = d.of.Caller.Exempts(i)
}

// Refusing returns the names of the rules that refuse the request.
func (d Decision) Refusing() []string {
	var names []string
	for i := range d.of.Outcomes() {
		if d.of.Refuses(i) {
			names = append(names, d.policy.names[i])
		}
	}
	return names
}

// shadows and marks report whether rule i watched without enforcing, and whether it
// marked the request.
func (d *Decision) shadows(i int) bool { return d.of.Watches(i) && d.policy.set.rules[i].Shadow != nil }

func (d *Decision) marks(i int) bool {
	return d.of.Watches(i) && !d.of.Outcomes()[i].Fits() && d.policy.set.rules[i].Shadow == nil
}

// shown reports whether rule i appears in headers.
func (d *Decision) shown(i int) bool {
	rule := &d.policy.set.rules[i]
	return !rule.Hidden && !rule.noQuota() && !d.shadows(i) && !d.of.Caller.Exempts(i)
}

// Marked returns the names of the rules that marked the request: those that have a Mark,
// and had no room for it. From [DecisionFrom], it covers the sets around this one too.
func (d Decision) Marked() (names []string) {
	if d.outer != nil {
		names = d.outer.decision.Marked()
	}
	return append(names, d.namesOf((*Decision).marks)...)
}

// Shadowed returns the names of the shadow rules that would have refused the request.
func (d Decision) Shadowed() []string {
	return d.namesOf(func(d *Decision, i int) bool { return d.shadows(i) && !d.of.Outcomes()[i].Fits() })
}

// compared is for Comparisons of package operate: it returns the indexes of the rule that
// a shadow may replace and of the shadow, for each that was not enforced.
func (d Decision) compared() (pairs [][2]int) {
	if d.policy == nil || d.of.Watched == 0 {
		return nil
	}
	for i := range d.policy.set.rules {
		replaces := d.policy.set.rules[i].shadow().Replaces
		if old := slices.Index(d.policy.names, replaces); old >= 0 && d.shadows(i) {
			pairs = append(pairs, [2]int{old, i})
		}
	}
	return pairs
}

func (d *Decision) namesOf(rule func(*Decision, int) bool) (names []string) {
	if d.policy == nil || d.of.Watched == 0 {
		return nil
	}
	for i := range d.of.Outcomes() {
		if rule(d, i) {
			names = append(names, d.policy.names[i])
		}
	}
	return names
}

// LogValue returns d for package log/slog: the policy, the outcome and the mode,
// but no keys.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("policy", d.Policy()), slog.Bool("allowed", d.Allowed), slog.String("mode", d.Mode.String())}
	if !d.Allowed {
		attrs = append(attrs, slog.Any("refusing", d.Refusing()), slog.Duration("retry_after", d.RetryAfter))
	}
	if outcome := d.Outcome(); outcome != "" && outcome != "admitted" && outcome != "refused" {
		attrs = append(attrs, slog.String("outcome", outcome))
	}
	if marked := d.Marked(); marked != nil {
		attrs = append(attrs, slog.Any("marked", marked))
	}
	if d.Waited > 0 {
		attrs = append(attrs, slog.Duration("waited", d.Waited))
	}
	if d.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", d.Delay))
	}
	return slog.GroupValue(attrs...)
}

// An outcome is what a caller meets, from the mildest to the strictest.
type outcome uint8

const (
	answered outcome = iota // admitted, or refused with an answer
	degraded
	redirected
)

var outcomes = [...]string{degraded: "degraded", redirected: "redirected"}

func (r *Refusal) outcome() outcome {
	switch {
	case r.Redirect != "":
		return redirected
	case r.Degrade:
		return degraded
	}
	return answered
}

// strictness orders refusals by what a request meets.
func (r *Refusal) strictness() int {
	switch {
	case r.Redirect != "":
		return 2
	case !r.Degrade:
		return 3
	case r.Fallback != nil:
		return 1
	}
	return 0
}

// refusal returns what the request of a refused decision meets, or nil for 429.
func (d *Decision) refusal() *Refusal {
	if i := d.strictest(); i >= 0 && d.policy.refusals != nil {
		return &d.policy.refusals[i]
	}
	return nil
}

// strictest returns the refusing rule whose outcome the request meets, or -1.
func (d *Decision) strictest() int {
	if d.policy == nil || d.Mode == core.ModeRefused {
		return -1
	}
	strictest := -1
	for i := range d.of.Outcomes() {
		if d.of.Refuses(i) && (strictest < 0 || d.policy.refusals != nil &&
			d.policy.refusals[i].strictness() > d.policy.refusals[strictest].strictness()) {
			strictest = i
		}
	}
	return strictest
}

// Message returns the [Rule].Message that a refused client reads, or "".
func (d Decision) Message() string {
	if i := d.strictest(); i >= 0 {
		return d.policy.set.rules[i].Message
	}
	return ""
}

// Outcome returns what the caller met: "admitted", "refused", "redirected",
// "degraded" or "marked"; "" for the zero Decision. A refused decision of [Policy.Take],
// or of Decide of an adapter, is "refused", whatever the [Refusal] of its rules.
func (d Decision) Outcome() string {
	switch {
	case d.route == nil:
		return ""
	case d.Allowed && d.namesOf((*Decision).marks) != nil:
		return "marked"
	case d.Allowed:
		return "admitted"
	case d.outcome == answered:
		return "refused"
	}
	return outcomes[d.outcome]
}

// Degraded reports whether the Degrade of a [Refusal] let the request reach its handler,
// which should then do less work. From [DecisionFrom], it covers the sets around this one
// too.
func (d Decision) Degraded() bool {
	return d.outcome == degraded || d.outer != nil && d.outer.decision.Degraded()
}
