package adapter

import (
	"net/http"

	"github.com/routelimit/limit/internal/response"
)

// A Recorder is a response writer that remembers its status, for frameworks whose
// writer does not: Status is for [limit.Adapter].Status and for what Next returns. A
// status that is not sent is 0, and 101 means that the connection was hijacked.
// SetStatus is for [limit.Adapter].SetStatus: the status of a response that begins
// without a call of WriteHeader. Call Begin when a function of the program has
// returned, to send the header if it wrote nothing.
//
// It has the methods that handlers, and an [http.ResponseController], ask for. Those
// that the writer below does not have return [http.ErrNotSupported].
type Recorder = response.Recorder

// Record returns a Recorder around w.
func Record(w http.ResponseWriter) *Recorder { return response.Record(w) }
