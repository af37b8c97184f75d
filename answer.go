package limit

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fields"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/response"
)

// A RefusedError is a refusal as an error.
type RefusedError struct{ Decision Decision }

func (e *RefusedError) Error() string {
	text := "limit: refused by " + strings.Join(e.Decision.refusing(), ", ")
	switch barred := e.Decision.Mode == core.ModeBarred; {
	case barred && e.Decision.RetryAfter == Never:
		return "limit: the client is barred"
	case barred:
		text = "limit: the client is barred"
	case e.Decision.RetryAfter == Never:
		return text + ", which can never hold that cost"
	}
	retry := e.Decision.RetryAfter
	if retry > time.Millisecond { // microseconds tell a reader nothing
		retry = (retry + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return fmt.Sprintf("%s, retry after %v", text, retry)
}

// An outcome is what a caller meets, from the mildest to the strictest.
type outcome uint8

const (
	answered outcome = iota // admitted, or refused with an answer
	degraded
	redirected
)

var outcomes = [...]string{degraded: "degraded", redirected: "redirected"}

func outcomeOf(r *Refusal) outcome {
	switch {
	case r.Redirect != "":
		return redirected
	case r.Degrade:
		return degraded
	}
	return answered
}

// strictness orders refusals by what a request meets.
func strictness(r *Refusal) int {
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
	if d.policy != nil && d.policy.refusals != nil { // most policies have none
		if i := d.strictest(); i >= 0 {
			return &d.policy.refusals[i]
		}
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
			strictness(&d.policy.refusals[i]) > strictness(&d.policy.refusals[strictest])) {
			strictest = i
		}
	}
	return strictest
}

// answer answers a request that is refused or could not be decided: by a function of the
// program, in the form of the framework, or with the problem details document.
func (l *layer) answer(w http.ResponseWriter, err error) error {
	status := statusOf(err)
	if answered, err := l.framework.Answer(w, l.request, status, err); answered {
		return err
	}
	var room [core.MaxCharges]string
	document := documentOf(status, err, room[:0])
	document.Write(w)
	return err
}

// answerByOptions answers by the program's function for all frameworks, if it has one.
func (p *Policy) answerByOptions(w http.ResponseWriter, r *http.Request, status int, err error) (answered bool) {
	o := &p.limiter.options
	switch refused, ok := err.(*RefusedError); {
	case ok && o.Refuse != nil:
		response.WithDefault(w, status, func(w http.ResponseWriter) { o.Refuse(w, r, refused.Decision) })
		return true
	case !ok && o.Fail != nil:
		response.WithDefault(w, status, func(w http.ResponseWriter) { o.Fail(w, r, err) })
		return true
	}
	return false
}

// statusOf returns the status of the answer to an error of a policy: 429 for a
// refusal, unless its rules say 503, 403 if the client is barred, and 503 if the request
// could not be decided, or if the store is unavailable and a rule wants [Refuse].
func statusOf(err error) int {
	refused, ok := err.(*RefusedError)
	switch {
	case !ok || refused.Decision.Mode == core.ModeRefused:
		return http.StatusServiceUnavailable
	case refused.Decision.Mode == core.ModeBarred:
		return http.StatusForbidden
	}
	if r := refused.Decision.refusal(); r != nil && r.Status == http.StatusServiceUnavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// documentOf returns the problem details document of an error. A message is printable, and
// nothing else in it needs an escape: see validName. The names of rules are put into room.
func documentOf(status int, err error, room []string) (p response.Problem) {
	p.Status, p.Retry, p.Violated = status, -1, room
	refused, ok := err.(*RefusedError)
	if !ok {
		return p
	}
	d := &refused.Decision
	if d.RetryAfter != Never {
		p.Retry = fields.Seconds(d.RetryAfter + d.jitter)
	}
	if d.Mode == core.ModeRefused || d.Mode == core.ModeBarred {
		return p
	}
	if p.Refused = true; d.Message != "" {
		p.Detail = grammar.Quote(d.Message) // JSON escapes as the text grammar does
	}
	ofCaller := d.policy != nil && (d.policy.plans != nil || d.terms != d.policy.usual)
	for i := range d.of.Outcomes() {
		if !d.of.Refuses(i) {
			continue
		}
		p.Violated = append(p.Violated, d.policy.names[i])
		if ofCaller {
			p.Limits = append(p.Limits, d.terms.Limits[i])
		}
	}
	return p
}
