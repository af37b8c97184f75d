package limit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// serve calls next with an admitted request, and settles by what it answers.
func (d Decision) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := &answerWriter{passthrough: passthrough{w}, status: http.StatusInternalServerError} // that of a panic
	defer func() { d.Done(r, answer.status) }()
	next.ServeHTTP(answer, r)
	answer.begin(http.StatusOK)
}

// An answerWriter remembers the status of a response.
type answerWriter struct {
	passthrough
	status int
	begun  bool
}

func (w *answerWriter) begin(status int) {
	if !w.begun {
		w.begun, w.status = true, status
	}
}

// WriteHeader begins the response, unless the status is that of a part of it.
func (w *answerWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *answerWriter) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom leaves files to the system, as they would be without w.
func (w *answerWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

func (w *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.passthrough.Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// A passthrough is a response with the methods that handlers, and an
// [http.ResponseController], ask writers for. One that the writer below has not
// returns http.ErrNotSupported, as that would.
type passthrough struct{ http.ResponseWriter }

// Flush sends what has been written.
func (w passthrough) Flush() { _ = w.FlushError() }

// FlushError is Flush for an [http.ResponseController].
func (w passthrough) FlushError() error { return w.controller().Flush() }

// Hijack returns the connection.
func (w passthrough) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.controller().Hijack() }

// SetReadDeadline is for an [http.ResponseController].
func (w passthrough) SetReadDeadline(deadline time.Time) error {
	return w.controller().SetReadDeadline(deadline)
}

// SetWriteDeadline is for an [http.ResponseController].
func (w passthrough) SetWriteDeadline(deadline time.Time) error {
	return w.controller().SetWriteDeadline(deadline)
}

// EnableFullDuplex is for an [http.ResponseController].
func (w passthrough) EnableFullDuplex() error { return w.controller().EnableFullDuplex() }

// Push pushes a target, if the connection can.
func (w passthrough) Push(target string, options *http.PushOptions) error {
	if pusher, ok := w.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}

func (w passthrough) controller() *http.ResponseController {
	return http.NewResponseController(w.ResponseWriter)
}
