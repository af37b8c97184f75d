package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// Problem returns the answer to an error of a [Policy] as a problem details
// document (RFC 9457), for adapters whose framework answers errors: the status and
// the body, of the media type application/problem+json. A [*RefusedError] is 429,
// or 503 if the store is unavailable and a rule wants [Refuse]. Any other error is
// 503, and its document does not name the cause.
func Problem(err error) (status int, body []byte) {
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return refused.problem()
	}
	return http.StatusServiceUnavailable, undecidedBody
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

func (e *RefusedError) problem() (status int, body []byte) {
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
	return p.Status, p.text()
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
