// Package response wraps response writers and keeps what handlers ask them for:
// flushing, hijacking, deadlines, sendfile.
package response

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"time"
)

// Record returns a writer that remembers the status of the response.
func Record(w http.ResponseWriter) *Recorder { return &Recorder{Passthrough: Passthrough{w}} }

// WithDefault calls answer with a writer that begins a response with the given
// status unless answer calls WriteHeader.
func WithDefault(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := Record(w)
	r.SetStatus(status)
	answer(r)
	r.Begin()
}

// A Recorder is a response writer that remembers the status of the response.
type Recorder struct {
	Passthrough
	status int // 0 before the response has begun
	preset int // that of a response that begins without WriteHeader; 0 means 200
}

// Status returns the status of the response, or 0 if it has not begun.
func (w *Recorder) Status() int { return w.status }

// SetStatus sets the status of a response that begins without a call of WriteHeader.
func (w *Recorder) SetStatus(status int) { w.preset = status }

// Begin sends the header, unless the response has begun.
func (w *Recorder) Begin() {
	if w.status == 0 {
		w.WriteHeader(cmp.Or(w.preset, http.StatusOK))
	}
}

// beforeBody begins a response that writes its body first. Without a preset status,
// that is left to the writer below, which may look at the body for a Content-Type.
func (w *Recorder) beforeBody() {
	if w.status == 0 && w.preset == 0 {
		w.status = http.StatusOK
	}
	w.Begin()
}

// WriteHeader implements [http.ResponseWriter]. An informational status does not
// begin the response.
func (w *Recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *Recorder) Write(p []byte) (int, error) {
	w.beforeBody()
	return w.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (w *Recorder) WriteString(s string) (int, error) {
	w.beforeBody()
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements [io.ReaderFrom], so that files still go by sendfile.
func (w *Recorder) ReadFrom(r io.Reader) (int64, error) {
	w.beforeBody()
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements [http.Flusher].
func (w *Recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w *Recorder) FlushError() error {
	w.beforeBody()
	return w.Passthrough.FlushError()
}

// Hijack implements [http.Hijacker].
func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.Passthrough.Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// A Passthrough is a response writer with the methods that handlers, and an
// [http.ResponseController], ask for. One that the writer below does not have
// returns [http.ErrNotSupported].
type Passthrough struct{ http.ResponseWriter }

// Flush implements [http.Flusher].
func (w Passthrough) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w Passthrough) FlushError() error { return w.controller().Flush() }

// Hijack implements [http.Hijacker].
func (w Passthrough) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.controller().Hijack() }

// SetReadDeadline is for an [http.ResponseController].
func (w Passthrough) SetReadDeadline(deadline time.Time) error {
	return w.controller().SetReadDeadline(deadline)
}

// SetWriteDeadline is for an [http.ResponseController].
func (w Passthrough) SetWriteDeadline(deadline time.Time) error {
	return w.controller().SetWriteDeadline(deadline)
}

// EnableFullDuplex is for an [http.ResponseController].
func (w Passthrough) EnableFullDuplex() error { return w.controller().EnableFullDuplex() }

// Push implements [http.Pusher].
func (w Passthrough) Push(target string, options *http.PushOptions) error {
	if pusher, ok := w.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}

func (w Passthrough) controller() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}
