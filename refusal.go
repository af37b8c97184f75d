package limit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/routelimit/limit/internal/response"
)

// A RefusedError is a refusal as an error.
type RefusedError struct{ Decision Decision }

func (e *RefusedError) Error() string {
	text := "limit: refused by " + strings.Join(e.Decision.Refusing(), ", ")
	if e.Decision.RetryAfter == Never {
		return text + ", which can never hold that cost"
	}
	return fmt.Sprintf("%s, retry after %v", text, e.Decision.RetryAfter)
}

// answerByOptions answers by the program's function for all frameworks, if it has one.
func (l *Limiter) answerByOptions(w http.ResponseWriter, r *http.Request, status int, err error) bool {
	switch refused, ok := err.(*RefusedError); {
	case ok && l.options.Refuse != nil:
		response.WithDefault(w, status, func(w http.ResponseWriter) { l.options.Refuse(w, r, refused.Decision) })
		return true
	case !ok && l.options.Fail != nil:
		response.WithDefault(w, status, func(w http.ResponseWriter) { l.options.Fail(w, r, err) })
		return true
	}
	return false
}

// statusOf returns the status of the answer to an error of a policy: 429 for a
// refusal, and 503 if the request could not be decided, or if the store is
// unavailable and a rule wants [Refuse].
func statusOf(err error) int {
	if refused, ok := err.(*RefusedError); ok && refused.Decision.Mode != ModeRefused {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// document returns the answer to an error of a policy as a problem details document
// (RFC 9457), which does not name the cause of a failure.
func document(err error) []byte {
	if refused, ok := err.(*RefusedError); ok {
		return refused.document()
	}
	return undecidedBody
}

func writeDocument(w http.ResponseWriter, status int, document []byte) {
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(status)
	w.Write(document)
}

// A problem is a problem details document, with the types and the member of
// draft-ietf-httpapi-ratelimit-headers-11.
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

func (e *RefusedError) document() []byte {
	p := undecided
	if e.Decision.Mode != ModeRefused {
		p = problem{
			Type:             "https://iana.org/assignments/http-problem-types#quota-exceeded",
			Title:            "Quota exceeded",
			Status:           http.StatusTooManyRequests,
			ViolatedPolicies: e.Decision.Refusing(),
		}
	}
	if e.Decision.RetryAfter != Never {
		p.Detail = "Try again in " + strconv.FormatInt(e.Decision.retrySeconds(), 10) + " s."
	}
	return p.text()
}

func (p problem) text() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return append(body, '\n')
}

// undecided says nothing of quotas, since nothing is known of them.
var (
	undecided = problem{
		Type:   "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		Title:  "The rate limiter is unavailable",
		Status: http.StatusServiceUnavailable,
	}
	undecidedBody = undecided.text()
)
