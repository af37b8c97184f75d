package echolimit

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
)

func refused(c echo.Context, d limit.Decision) error {
	err := &limit.RefusedError{Decision: d}
	return httpError(c, err.StatusCode(), err, err)
}

func undecided(c echo.Context, err error) error {
	h := c.Response().Header()
	h.Set("Retry-After", "1")
	h.Set("Cache-Control", "no-store")
	u := &limit.UndecidedError{Err: err}
	return httpError(c, u.StatusCode(), u, u)
}

// httpError returns an error whose message Echo's own HTTPErrorHandler writes
// as it is, because it marshals itself.
func httpError(c echo.Context, status int, problem json.Marshaler, err error) error {
	return &echo.HTTPError{
		Code:     status,
		Message:  &body{problem: problem, status: status, header: c.Response().Header()},
		Internal: err,
	}
}

// A body is a problem details document as the message of an error.
type body struct {
	problem json.Marshaler
	status  int
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
func (b *body) String() string { return http.StatusText(b.status) }
