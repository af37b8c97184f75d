package echolimit

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
)

func refused(c echo.Context, d limit.Decision) error {
	return httpError(c, &limit.RefusedError{Decision: d})
}

func undecided(c echo.Context, err error) error {
	c.Response().Header().Set("Retry-After", "1")
	return httpError(c, &limit.UndecidedError{Err: err})
}

// gone returns the error of a request whose client went away before its turn
// came. Nobody reads the answer; logs show nginx's 499.
func gone(err error) error {
	return &echo.HTTPError{Code: 499, Message: "Client Closed Request", Internal: err}
}

// httpError returns an error whose message Echo's own HTTPErrorHandler writes
// as it is, because it marshals itself.
func httpError(c echo.Context, err problem) error {
	h := c.Response().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return &echo.HTTPError{Code: err.StatusCode(), Message: &body{err, h}, Internal: err}
}

// A problem is an error of package limit.
type problem interface {
	error
	json.Marshaler
	StatusCode() int
}

// A body is a problem details document as the message of an error.
type body struct {
	problem problem
	header  http.Header
}

// MarshalJSON also corrects the media type: Echo names it just before it
// marshals. To name it earlier would mislabel what an error handler of the
// program answers instead of this document.
func (b *body) MarshalJSON() ([]byte, error) {
	if b.header.Get(echo.HeaderContentType) == echo.MIMEApplicationJSON {
		b.header.Set(echo.HeaderContentType, limit.ProblemType)
	}
	return b.problem.MarshalJSON()
}

// String is for logs, which print the message beside the wrapped error.
func (b *body) String() string { return http.StatusText(b.problem.StatusCode()) }
