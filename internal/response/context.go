package response

import (
	"context"
	"net/http"
	"reflect"
)

type recorderKey struct{}

// WithRecorder returns r with a context in which RecorderOf finds the Recorder.
func WithRecorder(r *http.Request, recorder *Recorder) *http.Request {
	recorder.header = recorder.Header()
	return r.WithContext(context.WithValue(r.Context(), recorderKey{}, recorder))
}

// RecorderOf returns the Recorder of the response that w writes, or nil. The context
// alone does not tell: a handler may send requests of its own to a router, with its
// context and writers of theirs. Wrappers of one response share its header.
func RecorderOf(ctx context.Context, w http.ResponseWriter) *Recorder {
	recorder, ok := ctx.Value(recorderKey{}).(*Recorder)
	if !ok || reflect.ValueOf(recorder.header).Pointer() != reflect.ValueOf(w.Header()).Pointer() {
		return nil
	}
	return recorder
}
