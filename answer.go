package limit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/routelimit/limit/core"
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
	return fmt.Sprintf("%s, retry after %v", text, e.Decision.RetryAfter)
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
	writeDocument(w, status, err)
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

// writeDocument writes the answer to an error of a policy as a problem details
// document. It is for refused requests, which an attacker sends as fast as it can: the
// buffers are used again.
func writeDocument(w http.ResponseWriter, status int, err error) {
	h := w.Header()
	h["Content-Type"], h["X-Content-Type-Options"] = problemJSON, noSniff
	w.WriteHeader(status)
	buffer := buffers.Get().(*[]byte)
	*buffer = appendDocument((*buffer)[:0], status, err)
	w.Write(*buffer)
	buffers.Put(buffer)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// documentSize is enough for the document of most policies.
const documentSize = 320

// appendDocument appends the problem details document (RFC 9457) of an error, with
// the types and the member of draft-ietf-httpapi-ratelimit-headers-11. It does not
// name the cause of a failure. A message is printable, and nothing else in it needs an
// escape: see validName.
func appendDocument(b []byte, status int, err error) []byte {
	refused, _ := err.(*RefusedError)
	byRules := refused != nil && refused.Decision.Mode != core.ModeRefused && refused.Decision.Mode != core.ModeBarred
	switch {
	case status == http.StatusTooManyRequests:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429`...)
	case status == http.StatusForbidden: // a type of its own is not registered
		b = append(b, `{"type":"about:blank","title":"Forbidden","status":403`...)
	case byRules:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503`...)
	default:
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
			`"title":"The rate limiter is unavailable","status":503`...)
	}
	message := ""
	if byRules {
		message = refused.Decision.Message
	}
	switch {
	case message != "":
		b = append(b, `,"detail":`...)
		b = append(b, grammar.Quote(message)...) // JSON escapes as the text grammar does
	case refused != nil && refused.Decision.RetryAfter != Never:
		b = append(b, `,"detail":"Try again in `...)
		b = strconv.AppendInt(b, refused.Decision.retrySeconds(), 10)
		b = append(b, ` s."`...)
	}
	if byRules {
		b = append(b, `,"violated-policies":[`...)
		separator := `"`
		for i := range refused.Decision.of.Outcomes() {
			if refused.Decision.of.Refuses(i) {
				b = append(append(append(b, separator...), refused.Decision.policy.names[i]...), '"')
				separator = `,"`
			}
		}
		b = append(b, ']')
		b = refused.Decision.appendLimits(b)
	}
	return append(b, "}\n"...)
}

// appendLimits appends the limits of the rules that refuse a request to its document,
// where they depend on the caller.
func (d *Decision) appendLimits(b []byte) []byte {
	if d.policy == nil || d.policy.plans == nil && d.terms == d.policy.usual {
		return b
	}
	separator := `,"limits":{"`
	for i := range d.of.Outcomes() {
		if d.of.Refuses(i) {
			b = append(append(append(b, separator...), d.policy.names[i]...), `":`...)
			b = strconv.AppendInt(b, d.terms.limits[i], 10)
			separator = `,"`
		}
	}
	if separator != `,"` {
		return b // no rule refuses
	}
	return append(b, '}')
}
