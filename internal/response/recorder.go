package response

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// Record returns a Recorder around w.
func Record(w http.ResponseWriter) *Recorder { return &Recorder{Passthrough: Pass(w)} }

// A Recorder remembers the status of a response, and calls functions once it has begun. Handlers
// get its Writer. It is as safe for concurrent use as the writer below it: a late handler may run.
type Recorder struct {
	Passthrough
	preset int         // that of a response that begins without WriteHeader; 0 means 200
	header http.Header // of the response, for RecorderOf

	mu     sync.Mutex
	status int // 0 before the response has begun
	then   []func(status int)
}

// Writer returns the writer to use instead of the one below, with the optional methods that that
// has, such as Flush.
func (w *Recorder) Writer() http.ResponseWriter { return Offer(w, w.ResponseWriter) }

// Status returns the status of the response, or 0 if it has not begun.
func (w *Recorder) Status() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Then calls f with the status of the response: now if it has begun, or else right after the write
// that begins it, in the goroutine of that write. A response that never begins never calls f.
func (w *Recorder) Then(f func(status int)) {
	w.mu.Lock()
	status := w.status
	if status == 0 {
		w.then = append(w.then, f)
	}
	w.mu.Unlock()
	if status != 0 {
		f(status)
	}
}

// Answered says that the response has a status, unless it has begun with another.
func (w *Recorder) Answered(status int) {
	w.begin(status)
	w.call()
}

// AnsweredAtEnd is [Recorder.Answered] for a response that nothing has written when its request
// ends, which ends the context of its server. With two contexts, only what is written counts: one
// that has ended because the client disconnected, and one with a deadline, which ends with the
// middleware that made it. Contexts without a server, such as those of tests, do not end.
func (w *Recorder) AnsweredAtEnd(ctx context.Context, status int) {
	if ctx.Value(http.ServerContextKey) == nil {
		w.Answered(status)
		return
	}
	if _, derived := ctx.Deadline(); !derived && ctx.Err() == nil {
		context.AfterFunc(ctx, func() { w.Answered(status) })
	}
}

func (w *Recorder) begin(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.status = status
	}
}

func (w *Recorder) call() {
	w.mu.Lock()
	status, then := w.status, w.then
	if status != 0 {
		w.then = nil
	}
	w.mu.Unlock()
	if status != 0 {
		for _, f := range then {
			f(status)
		}
	}
}

// SetStatus sets the status of a response that begins without a call of WriteHeader.
func (w *Recorder) SetStatus(status int) { w.preset = status }

// Begin sends the header, unless the response has begun.
func (w *Recorder) Begin() {
	if w.Status() == 0 {
		w.WriteHeader(cmp.Or(w.preset, http.StatusOK))
	}
}

// beforeBody begins a response that writes its body first. Without a preset status, that is left to
// the writer below, which may look at the body for a Content-Type, but does not know JSON.
func (w *Recorder) beforeBody(object bool) {
	if w.preset == 0 {
		w.begin(http.StatusOK)
	} else if _, typed := w.Header()["Content-Type"]; object && !typed && w.preset >= 400 && w.Status() == 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Begin()
}

// WriteHeader implements [http.ResponseWriter]. An informational status does not begin the
// response.
func (w *Recorder) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.Answered(status)
	}
}

func (w *Recorder) Write(p []byte) (int, error) {
	defer w.call()
	w.beforeBody(len(p) > 0 && p[0] == '{')
	return w.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (w *Recorder) WriteString(s string) (int, error) {
	defer w.call()
	w.beforeBody(len(s) > 0 && s[0] == '{')
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements [io.ReaderFrom], so that files still go by sendfile.
func (w *Recorder) ReadFrom(r io.Reader) (int64, error) {
	defer w.call()
	w.beforeBody(false)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements [http.Flusher].
func (w *Recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w *Recorder) FlushError() error {
	if w.preset != 0 {
		w.Begin()
	}
	err := w.Passthrough.FlushError()
	if !errors.Is(err, http.ErrNotSupported) {
		w.Answered(http.StatusOK)
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.Passthrough.Hijack()
	if err == nil {
		w.Answered(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// Unwrap returns the writer below.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
