package echov5limit

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v5"
)

// committed reports whether the response has begun.
func committed(c *echo.Context) bool {
	response, err := echo.UnwrapResponse(c.Response())
	return err == nil && response.Committed
}

func setStatus(c call, status int) {
	if response, err := echo.UnwrapResponse(c.Response()); err == nil {
		response.Status = status
	}
}

// begin sends the headers of an answer that a function has not begun.
func begin(c call, err error) error {
	if response, unwrapped := echo.UnwrapResponse(c.Response()); err == nil && unwrapped == nil && !response.Committed {
		c.Response().WriteHeader(response.Status)
	}
	return err
}

// answer returns an error that Echo's own HTTPErrorHandler writes as it is, because
// it marshals itself.
func answer(c call, status int, document []byte, err error) error {
	h := c.Response().Header()
	h.Set("X-Content-Type-Options", "nosniff")
	return &problem{err, status, document, h}
}

// A problem is an error with its problem details document.
type problem struct {
	err      error
	status   int
	document []byte
	header   http.Header
}

func (p *problem) Error() string { return p.err.Error() }

func (p *problem) Unwrap() error { return p.err }

// StatusCode implements [echo.HTTPStatusCoder].
func (p *problem) StatusCode() int { return p.status }

// MarshalJSON also corrects the media type: Echo sets it just before it marshals.
// Set earlier, it would mislabel what an error handler of the program answers
// instead of this document.
func (p *problem) MarshalJSON() ([]byte, error) {
	if p.header.Get(echo.HeaderContentType) == echo.MIMEApplicationJSON {
		p.header.Set(echo.HeaderContentType, "application/problem+json")
	}
	return p.document, nil
}

// pathValue returns a parameter as the request means it. Echo returns it as it was
// written, in which "a" and "%61" would have a quota each.
func pathValue(c call, name string) string {
	v := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}
