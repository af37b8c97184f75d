package limit

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// ProblemType is the media type of refusals.
const ProblemType = "application/problem+json"

// A problem is a problem details document (RFC 9457), with the types and the
// member of draft-ietf-httpapi-ratelimit-headers-11.
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// StatusCode returns 429, or 503 if the request is refused because the store is
// out of reach and a rule wants that.
func (e *RefusedError) StatusCode() int {
	if e.Decision.Mode == ModeRefused {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// MarshalJSON returns the problem details document of the refusal.
func (e *RefusedError) MarshalJSON() ([]byte, error) {
	p := undecided
	if e.Decision.Mode != ModeRefused {
		p = problem{
			Type:             "https://iana.org/assignments/http-problem-types#quota-exceeded",
			Title:            "Quota exceeded",
			Status:           e.StatusCode(),
			ViolatedPolicies: e.Decision.Refusing(),
		}
	}
	if e.Decision.RetryAfter > 0 {
		p.Detail = "Try again in " + strconv.FormatInt(e.Decision.told(), 10) + " s."
	}
	return json.Marshal(p)
}

// ServeHTTP answers with the refusal. The headers of the decision are set
// before, by [SetHeaders].
func (e *RefusedError) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, _ := e.MarshalJSON()
	writeProblem(w, e.StatusCode(), body)
}

// An UndecidedError is an [ErrUndecided] as an answer: 503 with a problem
// details document that does not tell clients why.
type UndecidedError struct{ Err error }

func (e *UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UndecidedError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *UndecidedError) StatusCode() int { return http.StatusServiceUnavailable }

// MarshalJSON returns the problem details document.
func (e *UndecidedError) MarshalJSON() ([]byte, error) {
	return json.Marshal(undecided)
}

// undecided says nothing of quotas: there is nothing known of them.
var undecided = problem{
	Type:   "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
	Title:  "The rate limiter is unavailable",
	Status: http.StatusServiceUnavailable,
}

// ServeHTTP answers with the error.
func (e *UndecidedError) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Retry-After"] = []string{"1"}
	body, _ := e.MarshalJSON()
	writeProblem(w, e.StatusCode(), body)
}

func writeProblem(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = []string{ProblemType}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}
