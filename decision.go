package limit

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/routelimit/limit/core"
)

// A Decision is the outcome of a policy for one request.
type Decision struct {
	// Allowed reports whether the request is admitted. If it is not, no rule
	// was charged.
	Allowed bool

	// Mode says how the decision was made: by the store, or without it.
	Mode core.Mode

	// At is when the decision was made: on the clock of Redis, or on that of this
	// process for a memory store, [ModeExempt] and [ModeBarred].
	At time.Time

	// RetryAfter is how long until the same request would be admitted if no
	// other request came: the longest of the rules' times. It is 0 if the request
	// is admitted, and [Never] if it costs more than a rule can ever hold. For
	// [ModeBarred] it is what [Options].Bar returned.
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
	// (see [Limiter.Observe]), and 0 otherwise. Of decisions in memory, a random one in 16
	// is measured, since reading the clock takes a quarter of their time. It is 0 for
	// [ModeExempt] and [ModeBarred].
	Latency time.Duration

	outcome outcome // of a request that was refused

	policy *version
	caller caller
	route  *route
	core   core.Decision
	keys   keys
	jitter time.Duration // to add to Retry-After
	slot   time.Time     // on the clock of this process, if there is a Delay
	lease  *lease        // what is held until Release; nil if nothing is
	taken  *taken        // what may be given back; nil if nothing may
}

// Never is the RetryAfter of a request that costs more than a rule can ever hold, or
// whose client is barred for good: no wait helps. Retry-After is then left out of the
// response.
const Never time.Duration = math.MaxInt64

// A RuleDecision is the outcome of one rule.
type RuleDecision struct {
	Name       string
	Key        string        // whose quota it is, as Policy.Key returns it; "" for a Global rule and for requests without a key
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

func newDecision(p *version, r *route, c caller, k keys, decided core.Decision) (d Decision) {
	d.core, d.caller, d.keys = decided, c, k
	d.describe(p, r)
	return d
}

// describe fills in what follows from the store's decision. A Decision is large:
// where it is made for each request, it is filled in place.
func (d *Decision) describe(p *version, r *route) {
	d.Allowed, d.Mode = d.core.Allowed, d.core.Mode
	d.At = time.UnixMicro(d.core.At)
	d.policy, d.route = p, r
	if !d.Allowed {
		d.RetryAfter = retryAfter(d.core.RetryAfter())
		if jitter := p.limiter.options.Jitter; jitter > 0 {
			d.jitter = rand.N(jitter + 1)
		}
	}
	if d.core.Delay > 0 {
		d.Delay = micros(d.core.Delay)
		d.slot = time.Now().Add(d.Delay)
	}
}

// retryAfter returns a time of package core as a duration.
func retryAfter(n int64) time.Duration {
	if n == core.Never {
		return Never
	}
	return micros(n)
}

// micros returns a duration of package core, capped at the longest one.
func micros(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}

// Policy returns the name of the quotas: the route, or the name given by [Named].
func (d Decision) Policy() string {
	if d.route == nil {
		return ""
	}
	return d.route.name
}

// Rules returns the outcome of each rule, in the order of declaration. It is nil for
// [ModeExempt] and [ModeBarred].
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
	rule, o := &d.policy.set.rules[i], d.core.Outcomes()[i]
	if d.caller.exempts(i) {
		o = core.Outcome{Remaining: d.caller.terms.capacities[i]}
	}
	// Field by field: a literal would be copied.
	outcome.Name = d.policy.names[i]
	outcome.Key = d.keys.at(i)
	outcome.Limit = d.caller.terms.limits[i]
	if outcome.Window = rule.Window; outcome.Window == 0 { // the method copies the rule
		outcome.Window = rule.window()
	}
	outcome.Capacity = d.caller.terms.capacities[i]
	outcome.Allowed = o.Fits()
	outcome.Remaining = max(0, o.Remaining-d.caller.reserve(i))
	outcome.RetryAfter = retryAfter(o.RetryAfter)
	outcome.ResetAfter = micros(o.ResetAfter)
	outcome.Shadow = d.shadows(i)
	outcome.Marked = d.marks(i)
	outcome.Exempt = d.caller.exempts(i)
}

// keys are those of the charges of a decision. The charges themselves serve other
// decisions meanwhile. Few keys need no allocation, as the outcomes of package core.
type keys struct {
	few  [4]string
	many *[core.MaxCharges]string
}

func (k *keys) keep(charges []core.Charge) {
	to := k.few[:]
	if len(charges) > len(k.few) {
		k.many = new([core.MaxCharges]string)
		to = k.many[:]
	}
	for i := range charges {
		to[i] = charges[i].Key
	}
}

func (k *keys) at(rule int) string {
	if k.many != nil {
		return k.many[rule]
	}
	return k.few[rule]
}

// refuses reports whether rule i refuses the request.
func (d *Decision) refuses(i int) bool { return !d.core.Outcomes()[i].Fits() && !d.core.Alone(i) }

// Refusing returns the names of the rules that refuse the request.
func (d Decision) Refusing() []string {
	var names []string
	for i := range d.core.Outcomes() {
		if d.refuses(i) {
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
	if outcome := d.Outcome(); outcome != "admitted" && outcome != "refused" {
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
