// Package response wraps response writers and keeps what handlers ask them for:
// flushing, hijacking, deadlines, sendfile.
package response

import (
	"bufio"
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
	d := &defaultWriter{Passthrough: Passthrough{w}, status: status}
	answer(d)
	d.begin()
}

// A Recorder remembers the status of a response.
type Recorder struct {
	Passthrough
	status int // 0 before the response has begun
}

// Status returns the status of the response, or 0 if it has not begun.
func (w *Recorder) Status() int { return w.status }

func (w *Recorder) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// WriteHeader implements [http.ResponseWriter]. An informational status does not
// begin the response.
func (w *Recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *Recorder) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (w *Recorder) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements [io.ReaderFrom], so that files still go by sendfile.
func (w *Recorder) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Hijack implements [http.Hijacker].
func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.Passthrough.Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// A defaultWriter begins a response with a status of its own.
type defaultWriter struct {
	Passthrough
	status int
	begun  bool
}

func (w *defaultWriter) begin() {
	if !w.begun {
		w.WriteHeader(w.status)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *defaultWriter) WriteHeader(status int) {
	w.begun = w.begun || status >= 200 || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *defaultWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher].
func (w *defaultWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w *defaultWriter) FlushError() error {
	w.begin()
	return w.Passthrough.FlushError()
}

// Hijack implements [http.Hijacker].
func (w *defaultWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.Passthrough.Hijack()
	w.begun = w.begun || err == nil
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
