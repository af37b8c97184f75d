package adapter

import (
	"net/http"

	"github.com/routelimit/limit/internal/response"
)

// A Recorder remembers the status of a response, for [Adapter].Record: 101 means
// that the connection was hijacked. Handlers, or the framework, write to its Writer, which
// has the optional methods of the writer below, such as Flush and Hijack, and no others.
//
// SetStatus is for [Adapter].SetStatus: the status of a response that begins
// without a call of WriteHeader. Call Begin when a function of the program has
// returned, to send the header if it wrote nothing.
type Recorder = response.Recorder

// Record returns a Recorder around w.
func Record(w http.ResponseWriter) *Recorder { return response.Record(w) }
