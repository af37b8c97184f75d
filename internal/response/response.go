// Package response wraps response writers and keeps what handlers ask them for:
// flushing, hijacking, deadlines, sendfile.
package response

import (
	"io"
	"net/http"
	"time"
)

// A Full is a wrapper with every method that handlers ask a response writer for.
type Full interface {
	plain
	flusher
	http.Hijacker
	closeNotifier
}

type (
	// plain is what a wrapper can do whatever is below it: a ReadFrom copies if need be,
	// and an [http.ResponseController] tells an unsupported deadline by its error.
	plain interface {
		http.ResponseWriter
		io.StringWriter
		io.ReaderFrom
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
		EnableFullDuplex() error
		Unwrap() http.ResponseWriter
	}
	flusher interface {
		http.Flusher
		FlushError() error
	}
	// closeNotifier is http.CloseNotifier, which is deprecated, and which Gin needs.
	closeNotifier interface{ CloseNotify() <-chan bool }
)

// Offer returns a writer with the methods of w that the writer below it offers too, as
// itself or by Unwrap. Handlers choose by these methods, and frameworks panic for want of
// them: a method that only returns an error is worse than none.
func Offer(w Full, below http.ResponseWriter) http.ResponseWriter {
	const flushes, hijacks, notifies = 1, 2, 4
	offered := 0
	for b := below; b != nil; {
		switch b.(type) {
		case http.Flusher, interface{ FlushError() error }:
			offered |= flushes
		}
		if _, ok := b.(http.Hijacker); ok {
			offered |= hijacks
		}
		u, ok := b.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		b = u.Unwrap()
	}
	if _, ok := below.(closeNotifier); ok {
		offered |= notifies
	}
	switch offered {
	case flushes:
		return struct {
			plain
			flusher
		}{w, w}
	case hijacks:
		return struct {
			plain
			http.Hijacker
		}{w, w}
	case flushes | hijacks:
		return struct {
			plain
			flusher
			http.Hijacker
		}{w, w, w}
	case notifies:
		return struct {
			plain
			closeNotifier
		}{w, w}
	case flushes | notifies: // HTTP/2
		return struct {
			plain
			flusher
			closeNotifier
		}{w, w, w}
	case hijacks | notifies:
		return struct {
			plain
			http.Hijacker
			closeNotifier
		}{w, w, w}
	case flushes | hijacks | notifies: // HTTP/1
		return struct {
			plain
			flusher
			http.Hijacker
			closeNotifier
		}{w, w, w, w}
	}
	return struct{ plain }{w}
}

// WithDefault calls answer with a writer that begins a response with a status unless answer calls
// WriteHeader. If it is an error, a body that begins with { is JSON unless a Content-Type is set.
func WithDefault(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := Record(w)
	r.SetStatus(status)
	answer(r.Writer())
	r.Begin()
}

// A Passthrough is a response writer with the methods that handlers, and an
// [http.ResponseController], ask for. One that the writer below does not have returns
// [http.ErrNotSupported]. [Offer] hides those.
type Passthrough struct {
	http.ResponseWriter
	http.ResponseController // of the writer, for Hijack, deadlines and full duplex
}

// Pass returns a Passthrough to w.
func Pass(w http.ResponseWriter) Passthrough { return Passthrough{w, *http.NewResponseController(w)} }

// Flush implements [http.Flusher].
func (w *Passthrough) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w *Passthrough) FlushError() error { return w.ResponseController.Flush() }

// CloseNotify implements http.CloseNotifier. The channel is nil without one below.
func (w *Passthrough) CloseNotify() <-chan bool {
	if notifier, ok := w.ResponseWriter.(closeNotifier); ok {
		return notifier.CloseNotify()
	}
	return nil
}
