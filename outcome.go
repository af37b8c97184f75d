package limit

import (
	"context"
	"net/http"

	"github.com/routelimit/limit/internal/response"
)

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
	for i := range d.core.Outcomes() {
		r := &d.policy.refusals[i]
		if !d.refuses(i) {
			continue
		}
		if strictest == nil || r.strictness() > strictest.strictness() {
			strictest = r
		}
	}
	return strictest
}

// Outcome returns what the caller met: "admitted", "refused", "redirected",
// "degraded" or "marked". A refused decision of [Policy.Take] or [Adapter.Decide] is
// "refused", whatever the [Refusal] of its rules.
func (d Decision) Outcome() string {
	switch {
	case d.Allowed && d.Marked() != nil:
		return "marked"
	case d.Allowed:
		return "admitted"
	case d.outcome == answered:
		return "refused"
	}
	return outcomes[d.outcome]
}

type degradedKey struct{}

// Degraded reports whether the Degrade of a [Refusal] let a request reach its handler,
// which should then do less work. Pass the context of the request.
func Degraded(ctx context.Context) bool { return ctx.Value(degradedKey{}) != nil }

// meet answers a refused request as r says, unless that is an answer with a status.
// Headers are set.
func (r *Refusal) meet(w http.ResponseWriter, request *http.Request, from framework, d *Decision) error {
	if d.outcome == redirected {
		w.Header()["Location"] = []string{r.Redirect}
		status := r.Status
		if status == 0 {
			status = http.StatusSeeOther
		}
		w.WriteHeader(status)
		return &RefusedError{Decision: *d}
	}
	request = request.WithContext(context.WithValue(request.Context(), degradedKey{}, true))
	if r.Fallback == nil {
		_, err := from.next(request)
		return err
	}
	response.WithDefault(w, http.StatusOK, func(w http.ResponseWriter) { r.Fallback.ServeHTTP(w, request) })
	return &RefusedError{Decision: *d}
}
