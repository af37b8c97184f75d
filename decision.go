package limit

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// A Decision is the outcome of a policy for one request.
type Decision struct {
	// Allowed reports whether the request is admitted. If it is not, no rule
	// was charged.
	Allowed bool

	// Mode is how the decision was made: by the store, or without it.
	Mode Mode

	// At is when the store decided, by the clock that it decides by: that of
	// Redis, or of this process.
	At time.Time

	// RetryAfter is how long until the same request would be admitted if
	// nobody else came: the longest of the rules' times. It is 0 if the
	// request is admitted.
	RetryAfter time.Duration

	// Delay is how long after the decision an admitted request's turn comes,
	// where a rule is a [Queue]: it goes on then, and not before. See
	// [Decision.Wait]. Otherwise it is 0.
	Delay time.Duration

	policy *Policy
	route  *route
	core   core.Decision
	turn   time.Time // by the clock of this process, if there is a Delay
	lease  *lease    // what is held until Release; nil if nothing is
	taken  *taken    // what may be given back; nil if nothing is to be
}

// A RuleDecision is what one rule said of a request.
type RuleDecision struct {
	Name       string
	Limit      int64
	Window     time.Duration // of a calendar, the usual length of its unit; of Concurrency, the life of a lease
	Capacity   int64         // the most that can be left: Limit, or what the Burst allows
	Allowed    bool          // whether this rule had room
	Remaining  int64         // what is left after the decision
	RetryAfter time.Duration // until this rule would have room; 0 if it has
	ResetAfter time.Duration // until the quota is whole again; 0 if it is
}

func newDecision(p *Policy, r *route, d core.Decision) Decision {
	decision := Decision{
		Allowed:    d.Allowed,
		Mode:       d.Mode,
		At:         time.UnixMicro(d.At),
		RetryAfter: max(0, micros(d.RetryAfter())),
		Delay:      micros(d.Delay),
		policy:     p,
		route:      r,
		core:       d,
	}
	if d.Delay > 0 {
		decision.turn = time.Now().Add(decision.Delay)
	}
	return decision
}

// Policy returns the name that the quotas go by: the route, or the name given
// by [Named].
func (d Decision) Policy() string {
	if d.route == nil {
		return ""
	}
	return d.route.policy
}

// Rules returns what each rule said, in the order of declaration.
func (d Decision) Rules() []RuleDecision {
	if d.policy == nil {
		return nil
	}
	rules := make([]RuleDecision, len(d.policy.names))
	for i, o := range d.core.Outcomes() {
		rule := &d.policy.set.rules[i]
		rules[i] = RuleDecision{
			Name:       d.policy.names[i],
			Limit:      rule.Limit,
			Window:     rule.window(),
			Capacity:   d.policy.most[i],
			Allowed:    o.Fits(),
			Remaining:  o.Remaining,
			RetryAfter: max(0, micros(o.RetryAfter)),
			ResetAfter: micros(o.ResetAfter),
		}
	}
	return rules
}

// Refusing returns the names of the rules that had no room.
func (d Decision) Refusing() []string {
	var names []string
	for i, o := range d.core.Outcomes() {
		if !o.Fits() {
			names = append(names, d.policy.names[i])
		}
	}
	return names
}

// LogValue returns d for package log/slog: how it was made, and what it says, but
// not about whom.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("policy", d.Policy()), slog.Bool("allowed", d.Allowed), slog.String("mode", d.Mode.String())}
	if !d.Allowed {
		attrs = append(attrs, slog.Any("refusing", d.Refusing()), slog.Duration("retry_after", d.RetryAfter))
	}
	if d.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", d.Delay))
	}
	return slog.GroupValue(attrs...)
}

// A RefusedError is a refusal as an error, for frameworks that answer errors.
// It marshals to a problem details document and serves it.
type RefusedError struct{ Decision Decision }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("limit: refused by %s, retry after %v",
		strings.Join(e.Decision.Refusing(), ", "), e.Decision.RetryAfter)
}
