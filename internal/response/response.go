// Package response wraps response writers and keeps what handlers ask them for:
// flushing, hijacking, deadlines, sendfile.
package response

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// WithDefault calls answer with a writer that begins a response with the given
// status unless answer calls WriteHeader.
func WithDefault(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := Record(w)
	r.SetStatus(status)
	answer(r.Writer())
	r.Begin()
}

// A Passthrough is a response writer with the methods that handlers, and an
// [http.ResponseController], ask for. One that the writer below does not have
// returns [http.ErrNotSupported]. [Offer] hides those.
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

// CloseNotify implements http.CloseNotifier. The channel is nil without one below.
func (w Passthrough) CloseNotify() <-chan bool {
	if notifier, ok := w.ResponseWriter.(closeNotifier); ok {
		return notifier.CloseNotify()
	}
	return nil
}

func (w Passthrough) controller() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}
