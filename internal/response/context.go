package response

import (
	"context"
	"net/http"
	"reflect"
	"time"
)

type recorderKey struct{}

// WithRecorder returns r with a context in which RecorderOf finds the Recorder.
func WithRecorder(r *http.Request, recorder *Recorder) *http.Request {
	recorder.header = recorder.Header()
	return r.WithContext(context.WithValue(r.Context(), recorderKey{}, recorder))
}

// RecorderOf returns the Recorder of the response that w writes, or nil. The context alone does not
// tell: a handler may send requests of its own to a router, with its context and writers of theirs.
// Wrappers of one response share its header.
func RecorderOf(ctx context.Context, w http.ResponseWriter) *Recorder {
	recorder, ok := ctx.Value(recorderKey{}).(*Recorder)
	if !ok || !Same(recorder.header, w.Header()) {
		return nil
	}
	return recorder
}

// Same reports whether two headers are one map.
func Same(a, b http.Header) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// Reaches reports whether what is written to w ends in the same response as what is written to
// other, also through [http.TimeoutHandler]. It asks neither for anything else, since
// TimeoutHandler may write meanwhile.
func Reaches(w, other http.ResponseWriter) bool {
	a, b := reflect.ValueOf(innermost(w)), reflect.ValueOf(innermost(other))
	return a.Kind() == reflect.Pointer && a.Type() == b.Type() && a.Pointer() == b.Pointer()
}

func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		next := inside(w)
		if next == nil {
			return w
		}
		w = next
	}
}

// inside returns what w writes to, or nil if that is not known: net/http may name the writer
// of TimeoutHandler in another way.
func inside(w http.ResponseWriter) http.ResponseWriter {
	v := reflect.ValueOf(w)
	if v.Type().String() != "*http.timeoutWriter" {
		return behind(w)
	}
	field := v.Elem().FieldByName("w")
	if !field.IsValid() || field.Type() != reflect.TypeFor[http.ResponseWriter]() {
		return nil
	}
	return *(*http.ResponseWriter)(field.Addr().UnsafePointer())
}

// Deadline returns the time at which the context of a request that has arrived at a time ends, or
// nine tenths of the server's WriteTimeout have passed; the zero Time for none. The server counts
// from the header of the request, a little earlier.
func Deadline(ctx context.Context, arrived time.Time) time.Time {
	deadline, _ := ctx.Deadline()
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 {
		return deadline
	}
	if end := arrived.Add(server.WriteTimeout - server.WriteTimeout/10); deadline.IsZero() || end.Before(deadline) {
		return end
	}
	return deadline
}

// Follow returns the writer to use instead of another one, so that the Recorder sees what
// is written to it: that one itself, unless it bypasses the Recorder.
func (w *Recorder) Follow(by http.ResponseWriter) http.ResponseWriter {
	if !w.bypassed(by) {
		return by
	}
	again := Record(by)
	again.Then(w.Answered)
	return again.Writer()
}

// bypassed reports whether a writer writes the response without the Recorder. Middleware that has
// put its own writer before the Recorder may restore the one below. One that middleware has put
// behind the Recorder leads to it, or has a header of its own.
func (w *Recorder) bypassed(by http.ResponseWriter) bool {
	if !Same(by.Header(), w.Header()) {
		return false
	}
	for put := w.Writer(); by != nil; by = behind(by) {
		if by == put {
			return false
		}
	}
	return true
}

// behind returns the writer that w writes to, or nil.
func behind(w http.ResponseWriter) http.ResponseWriter {
	if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	v := reflect.Indirect(reflect.ValueOf(w))
	if v.Kind() != reflect.Struct {
		return nil
	}
	field := v.FieldByName("ResponseWriter") // embedded, usually
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	below, _ := field.Interface().(http.ResponseWriter)
	return below
}
