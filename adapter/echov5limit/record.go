package echov5limit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/routelimit/limit/adapter"
)

// record puts a Recorder below Echo's response, and below the one that a response wraps
// where middleware of net/http stands between. It returns nil if it finds no response:
// then only what is written before the handler returns is settled.
func record(c call) *adapter.Recorder {
	var response *echo.Response
	for w := c.Response(); w != nil; {
		if below, ok := w.(*echo.Response); ok {
			response = below
		}
		unwrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = unwrapper.Unwrap()
	}
	if response == nil {
		return nil
	}
	recorder := adapter.Record(response.ResponseWriter)
	response.ResponseWriter = recorder.Writer()
	// Middleware that has put its own writer there restores the one before.
	response.Before(func() { response.ResponseWriter = recorder.Follow(response.ResponseWriter) })
	return recorder
}

// status returns the status of a response that has begun, or that begins if nothing
// writes it, or 0 for an error: the error handler of the server answers that.
func status(c call, err error) int {
	response, unwrapped := echo.UnwrapResponse(c.Response())
	if unwrapped != nil || err != nil && !response.Committed {
		return 0
	}
	return response.Status
}
