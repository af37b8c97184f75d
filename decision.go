package limit

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/fields"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/terms"
	"github.com/routelimit/limit/rules"
)

// A Decision is the outcome of a policy for one request.
type Decision struct {
	Policy  string    // the name of the quotas: the route, or the name given by Named
	Allowed bool      // whether the request is admitted; if it is not, no rule was charged
	Mode    core.Mode // how the decision was made: by the store, or without it
	outcome outcome   // of a request that was refused

	// GivenBack is set where [Options].Observe sees an admitted request again, since a rule
	// set behind this one has not let it through: what the request took was given back,
	// apart from rules with Attempts or Settle and bans, and Rules has what is left
	// afterwards. If another set serves the request after all, Observe sees it once more,
	// without GivenBack.
	GivenBack bool

	// At is when the decision was made: on the clock of Redis, or on that of this
	// process for a memory store, [core.ModeExempt] and [core.ModeBarred].
	At time.Time

	// RetryAfter is how long until the same request would be admitted if no other request
	// came: 0 if the request is admitted, [Never] if no wait helps, and for a barred client
	// what [Options].Bar returned.
	RetryAfter time.Duration

	Message string // the Rule.Message that a refused client reads, or ""

	Waited time.Duration // how long the request waited until its rules decided: see Policy.Wait
	Delay  time.Duration // from the decision to the slot of a Queue, if the request is admitted: see Decision.Wait

	// Taken is how many units of each rule an admitted [Request] without Costs took:
	// its Cost, or fewer with UpTo.
	Taken int64

	// Latency is how long the store took to decide. It is measured while a function observes
	// decisions, in memory of one decision in 16, and is otherwise 0.
	Latency time.Duration

	of     engine.Decision
	policy *version
	terms  *terms.Terms  // of the caller
	jitter time.Duration // to add to Retry-After
	outer  *layer        // of a decision that DecisionFrom returns
	loss   *engine.Loss  // of the leases of all sets so far, or nil
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
	Refused    bool          // whether the rule refuses the request: it had no room, and does not only watch
	Remaining  int64         // units left for this caller after the decision
	RetryAfter time.Duration // until this rule has room; 0 if it had, Never if it cannot have
	ResetAfter time.Duration // until the quota is full again; 0 if it is
	Shadow     bool          // whether the rule only watched; it would have refused if it is not Allowed: see Rule.Shadow
	Marked     bool          // whether the rule marked the request: see Refusal.Mark
	Exempt     bool          // whether the rule exempts the request (see Rule.Exempt), or an outer set has charged its quota
}

// decided fills in d, which the engine has made of a run.
func (d *Decision) decided(run *engine.Run, p *version, policy string, t *terms.Terms) {
	d.Waited, d.Latency = run.Waited, run.Latency
	if run.Ended > 0 {
		p.limiter.notices.ended.Say(&p.limiter.lines, notice.HoldsEnded, "policy", policy, "holds", run.Ended)
	}
	if run.Unheld {
		p.limiter.notices.unheld.Say(&p.limiter.lines, notice.Unheld, "policy", policy, "mode", d.of.Mode)
	}
	d.describe(p, policy, t)
}

// describe fills in what follows from what the engine has decided. A Decision is large:
// where it is made for each request, it is filled in place.
func (d *Decision) describe(p *version, policy string, t *terms.Terms) {
	set(&d.Policy, policy)
	set(&d.policy, p)
	set(&d.terms, t)
	d.Allowed, d.Mode = d.of.Allowed, d.of.Mode
	d.At = time.UnixMicro(d.of.At)
	if !d.Allowed {
		d.RetryAfter = retryAfter(d.of.RetryAfter())
		if i := d.strictest(); i >= 0 {
			d.Message = p.list[i].Message
		}
		if jitter := p.limiter.options.Jitter; jitter > 0 {
			d.jitter = rand.N(jitter + 1)
		}
	}
	d.Delay = core.Duration(d.of.Delay)
	p.limiter.noticeDecision(d)
}

// reset makes d zero, but for what describe, which overwrites the rest, leaves where it is.
func (d *Decision) reset() {
	d.Allowed, d.Mode, d.outcome, d.GivenBack, d.RetryAfter, d.Message = false, 0, answered, false, 0, ""
	d.Waited, d.Delay, d.Taken, d.Latency, d.jitter, d.outer, d.loss = 0, 0, 0, 0, 0, nil, nil
	d.of.Reset()
}

// retryAfter returns a time of package core as a duration.
func retryAfter(n int64) time.Duration {
	if n == core.Never {
		return Never
	}
	return core.Duration(n)
}

// Rules ranges over the outcomes of the rules, in the order of declaration. There are none
// if [Options].Exempt or Bar has decided.
func (d Decision) Rules() iter.Seq[RuleDecision] {
	return func(yield func(RuleDecision) bool) {
		if d.policy == nil {
			return
		}
		for i := range d.policy.names {
			if !yield(d.rule(i)) {
				return
			}
		}
	}
}

// rule returns the outcome of rule i.
func (d *Decision) rule(i int) (outcome RuleDecision) {
	rule, o := &d.policy.rules[i], &d.of.Outcomes()[i]
	// Field by field: a literal would be copied.
	outcome.Name = d.policy.names[i]
	outcome.Key = d.of.Key(i)
	outcome.Limit = d.terms.Limits[i]
	outcome.Window = core.Duration(rule.Charge.Quota.Window)
	outcome.Capacity = d.terms.Capacities[i]
	outcome.Allowed = o.Fits()
	outcome.Refused = d.of.Refuses(i)
	outcome.Remaining = d.of.Remaining(i)
	outcome.RetryAfter = retryAfter(o.RetryAfter)
	outcome.ResetAfter = core.Duration(o.ResetAfter)
	outcome.Shadow = d.shadows(i)
	outcome.Marked = d.marks(i)
	outcome.Exempt = d.of.Caller.Exempts(i)
	return outcome
}

// named returns the names of the rules that pass a test.
func (d *Decision) named(is func(rule int) bool) (names []string) {
	for i := range d.of.Outcomes() {
		if is(i) {
			names = append(names, d.policy.names[i])
		}
	}
	return names
}

// refusing returns the names of the rules that refuse the request.
func (d *Decision) refusing() []string { return d.named(d.of.Refuses) }

// shadows and marks report whether rule i watched without enforcing, and whether it
// marked the request.
func (d *Decision) shadows(i int) bool { return d.of.Watches(i) && d.policy.list[i].Shadow != nil }

func (d *Decision) marks(i int) bool {
	return d.of.Watches(i) && !d.of.Outcomes()[i].Fits() && d.policy.list[i].Shadow == nil
}

// shown reports whether rule i appears in headers.
func (d *Decision) shown(i int) bool {
	return !d.policy.list[i].Hidden && d.policy.rules[i].Charge.Quota.Spends() && !d.shadows(i) && !d.of.Caller.Exempts(i)
}

// marking returns the names of the rules of this set that marked the request.
func (d *Decision) marking() []string { return d.named(d.marks) }

// LogValue returns d for package log/slog: the policy, the outcome and the mode,
// but no keys.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("policy", d.Policy), slog.Bool("allowed", d.Allowed), slog.String("mode", d.Mode.String())}
	if !d.Allowed {
		attrs = append(attrs, slog.Any("refusing", d.refusing()), slog.Duration("retry_after", d.RetryAfter))
	}
	if outcome := d.Outcome(); outcome != "" && outcome != "admitted" && outcome != "refused" {
		attrs = append(attrs, slog.String("outcome", outcome))
	}
	if marked := d.marking(); marked != nil {
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

// Outcome returns what the caller met: "admitted", "refused", "redirected",
// "degraded", "marked" or "given back"; "" for the zero Decision. A degraded or marked
// request reaches its handler. For a handler, which asks [DecisionFrom], the outcome is that
// of all sets on the request: "degraded" if one degrades it, and otherwise "marked" if one
// marks it. A refused decision of [Policy.Take], or of Decide of an adapter, is "refused",
// whatever the [Refusal] of its rules.
func (d Decision) Outcome() string {
	switch {
	case d.Policy == "":
		return ""
	case d.GivenBack:
		return "given back"
	case d.outcome != answered:
		return outcomes[d.outcome]
	case !d.Allowed:
		return "refused"
	}
	outer := "admitted"
	if d.outer != nil {
		outer = d.outer.behind().Outcome()
	}
	if outer == "admitted" && d.marking() != nil {
		return "marked"
	}
	return outer
}

// The errors of settlements and of lost leases.
var (
	// ErrLeaseLost is wrapped by the error that [Options].Observe receives when a
	// request has lost a lease: see [Decision.Lost].
	ErrLeaseLost = engine.ErrLeaseLost

	// ErrSettled is wrapped by the error of [Decision.Settle] and SettleCosts when there is nothing
	// to settle: the decision is a refusal, its [Request] says neither Settle nor Hold, it has
	// been settled, or its hold is forgotten. Nothing was changed.
	ErrSettled = engine.ErrSettled
)

// Release gives back what the decision holds under rules of [Concurrency], when the
// request is done. Handlers and adapters release what they decided; callers of
// [Policy.Take] defer Release. Until then the lease is renewed for as long as the process
// lives. Release may be repeated, and waits up to a second for the store. If the store is
// unavailable, the lease is released when it answers again.
func (d Decision) Release() { d.of.Release() }

// Lost returns a channel that is closed when a lease that the decision holds under a rule
// of [Concurrency] is known to be lost: the request goes on, but no longer counts, and
// another request may have its slot. The channel is nil if the decision holds nothing.
// A lease is lost when the store no longer holds it, or when no renewal has succeeded for
// the shortest Window. An unavailable store alone is no loss. A loss is noticed late, by up
// to a third of the Window: the channel says when to stop, and is no fencing token.
func (d Decision) Lost() <-chan struct{} {
	if d.loss != nil {
		return d.loss.Lost
	}
	return d.of.Lost()
}

// Wait waits for the slot of an admitted request: until Delay has passed since the
// decision. It returns the error of ctx if that ends first, and a [*RefusedError] if the
// request is refused, or at once if its slot would come after the deadline of ctx. With
// either error the request must not go on, and what it took is given back. Leases stay held
// until [Decision.Release].
func (d Decision) Wait(ctx context.Context) error {
	if !d.Allowed {
		return &RefusedError{Decision: d}
	}
	refused, err := d.of.WaitForSlot(ctx)
	if !refused {
		return err
	}
	d.describe(d.policy, d.Policy, d.terms)
	return &RefusedError{Decision: d}
}

// Settle corrects what a [Request] that says Settle took to n units of each rule, its true
// cost; 0 gives back everything:
//
//	d, err := policy.Take(ctx, limit.Request{Keys: keys, Cost: 4_000, Settle: true})
//	…
//	err = d.Settle(ctx, used)
//
// A second call, also on a copy, gets [ErrSettled]. Rules of [Concurrency] are released,
// not settled. If the cost is lower, the rest is refunded, as far as its time has
// not passed; docs/algorithms.md has the details. If it is higher, Settle takes what the
// rules have room for, and above the limit as far as their Debt allows: without one, let
// Cost be the most that the request may cost.
// After an error that wraps [ErrUndecided] everything may stay taken; under a Hold, it is
// settled later. Settle may take a second, also if ctx has ended. Rules that took different
// units need SettleCosts: an error says so.
func (d Decision) Settle(ctx context.Context, n int64) error {
	n, err := validCost(n)
	if err == nil && n > 0 && d.of.Settles() && !d.of.Alike() {
		err = errors.New("Settle: the rules took different units: write SettleCosts, with the units of each")
	}
	if err != nil {
		return &rules.Error{Problem: err.Error()}
	}
	return d.settle(ctx, func(int) (int64, bool) { return n, true })
}

// SettleCosts is Settle for rules that count different things, such as requests and tokens: it
// corrects what each rule took to its units in costs, by the names of the rules. A rule
// that is not named keeps what it took. A name that no rule has, or one of a rule of
// [Concurrency], is an error that settles nothing.
func (d Decision) SettleCosts(ctx context.Context, costs map[string]int64) error {
	if err := d.mayCost(costs); err != nil {
		return err
	}
	return d.settle(ctx, func(rule int) (int64, bool) {
		n, named := costs[d.policy.names[rule]]
		return min(n, core.MaxCost), named
	})
}

// Use notes how many units of each rule the request has used so far, by the names of the rules,
// while the work goes on, such as after each chunk of a stream. The request must be one that can
// be settled. If it has used more than it has taken, Use takes more units: at least the missing
// ones, and up to half of what it has or of what is left. Without room, it goes above the limit as
// far as the Debt of the rule allows. If that is not enough, Use returns a [*RefusedError], and
// the program should end the work.
//
// An amount below that of an earlier call changes nothing, nor does a rule that is not named. A
// settlement below the used amount does not give back units above the limit. An HTTP request is
// settled at what it has used if its handler does not settle it, or panics; a decision of
// [Policy.Take] needs SettleCosts. Goroutines may call Use at once. Errors are those of
// SettleCosts.
func (d Decision) Use(ctx context.Context, soFar map[string]int64) error {
	if d.Mode == core.ModeExempt { // nothing counts what it uses
		return nil
	}
	if err := d.mayCost(soFar); err != nil {
		return err
	}
	err := d.of.Use(ctx, func(rule int) (n int64, said bool) {
		n, said = soFar[d.policy.names[rule]]
		if !d.policy.rules[rule].Charge.Quota.Spends() {
			return 0, false
		}
		return min(n, core.MaxCost), said
	})
	if err != nil || d.of.Allowed {
		return err
	}
	d.describe(d.policy, d.Policy, d.terms)
	return &RefusedError{Decision: d}
}

// mayCost returns what is wrong with the costs of a request that was admitted.
func (d *Decision) mayCost(costs map[string]int64) error {
	if d.policy == nil {
		return ErrSettled
	}
	err := d.policy.validCosts(costs)
	for i, name := range d.policy.names {
		if _, named := costs[name]; named && d.policy.rules[i].Charge.Quota.Leases() {
			err = errors.Join(err, &rules.Error{Rule: name, Problem: "leases are released, not settled: leave the rule out"})
		}
	}
	return err
}

// settle corrects what each rule took to what cost returns for it, if that is ok.
func (d *Decision) settle(ctx context.Context, cost func(rule int) (n int64, ok bool)) error {
	return d.correct(ctx, false, func(rule int, charged int64) int64 {
		n, ok := cost(rule)
		if !ok || n > 0 && !d.policy.rules[rule].Charge.Quota.Spends() {
			return charged
		}
		return n
	})
}

// correct settles what the request took, releases it if it ends, and says if units were forgiven.
func (d *Decision) correct(ctx context.Context, ends bool, cost func(rule int, charged int64) int64) error {
	forgiven, err := d.of.Settle(ctx, ends, cost)
	sum, short := int64(0), ""
	for i, n := range forgiven {
		if sum += n; n > 0 {
			short = fields.Join(short, d.policy.names[i])
		}
	}
	if sum > 0 {
		d.policy.limiter.notices.forgiven.Say(&d.policy.limiter.lines, notice.Forgiven, "policy", d.Policy, "rules", short, "units", sum)
	}
	return err
}
