package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit/adapter"
)

// record puts a Recorder below Echo's response, and below the one that a response wraps
// where middleware of net/http stands between.
func record(c call) *adapter.Recorder {
	response := c.Response()
	for w := response.Writer; w != nil; {
		if below, ok := w.(*echo.Response); ok {
			response = below
		}
		unwrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = unwrapper.Unwrap()
	}
	recorder := adapter.Record(response.Writer)
	response.Writer = recorder.Writer()
	// Middleware that has put its own writer there, such as Gzip, restores the one before.
	response.Before(func() { response.Writer = recorder.Follow(response.Writer) })
	return recorder
}

// status returns the status of a response that has begun, or that begins if nothing
// writes it, or 0 for an error: the error handler of the server answers that.
func status(c call, err error) int {
	if err != nil && !c.Response().Committed {
		return 0
	}
	return c.Response().Status
}
