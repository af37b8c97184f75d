package limit

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
	if d.policy == nil || d.policy.refusals == nil || d.Mode == ModeRefused {
		return nil
	}
	var strictest *Refusal
	for i := range d.of.Outcomes() {
		r := &d.policy.refusals[i]
		if d.of.Refuses(i) && (strictest == nil || r.strictness() > strictest.strictness()) {
			strictest = r
		}
	}
	return strictest
}

// Outcome returns what the caller met: "admitted", "refused", "redirected",
// "degraded" or "marked"; "" for the zero Decision. A refused decision of [Policy.Take] or [Adapter.Decide] is
// "refused", whatever the [Refusal] of its rules.
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
