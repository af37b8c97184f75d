package echolimit

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"
)

func setStatus(c call, status int) { c.Response().Status = status }

// begin sends the headers of an answer that a function has not begun.
func begin(c call, err error) error {
	if err == nil && !c.Response().Committed {
		c.Response().WriteHeader(c.Response().Status)
	}
	return err
}

// answer returns an error whose message Echo's own HTTPErrorHandler writes as it
// is, because it marshals itself.
func answer(c call, status int, text []byte, err error) error {
	h := c.Response().Header()
	h.Set("X-Content-Type-Options", "nosniff")
	return &echo.HTTPError{Code: status, Message: &document{text, h, status}, Internal: err}
}

// A document is a problem details document as the message of an error.
type document struct {
	text   []byte
	header http.Header
	status int
}

// MarshalJSON also corrects the media type: Echo sets it just before it marshals.
// Set earlier, it would mislabel what an error handler of the program answers
// instead of this document.
func (d *document) MarshalJSON() ([]byte, error) {
	if d.header.Get(echo.HeaderContentType) == echo.MIMEApplicationJSON {
		d.header.Set(echo.HeaderContentType, "application/problem+json")
	}
	return d.text, nil
}

// String is for logs, which print the message beside the wrapped error.
func (d *document) String() string { return http.StatusText(d.status) }

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
