package limit

import (
	"context"
	"net/http"

	"github.com/routelimit/limit/internal/response"
)

// What a request is answered with is known when its response begins, and that may be
// after Next: frameworks answer the errors of handlers outside the rules. One Recorder
// watches the response of a request for all sets that settle by its status.

// next calls Next, and finds the Recorder of the response: the one of a set around this
// one, or a new one.
func (v *call[C]) next(r *http.Request) (int, error) {
	if v.writer == nil {
		return v.adapter.Next(v.context, r)
	}
	if v.recorded = response.RecorderOf(r.Context(), v.writer); v.recorded != nil || v.adapter.Record == nil {
		return v.adapter.Next(v.context, r)
	}
	if v.recorded = v.adapter.Record(v.context); v.recorded == nil {
		return v.adapter.Next(v.context, r)
	}
	status, err := v.adapter.Next(v.context, response.WithRecorder(r, v.recorded))
	if status != 0 && v.recorded.Status() == 0 {
		answeredAtEnd(r.Context(), v.recorded, status)
	}
	return status, err
}

func (v *call[C]) recorder() *response.Recorder { return v.recorded }

// answeredAtEnd records the status of a response that nothing has written when its request
// ends. The context of a server ends with the request, but two others say nothing about
// that end, and then only what is written counts: one that has ended because the client
// disconnected, and one with a deadline, which ends with the middleware that made it.
// Contexts without a server, such as those of tests, do not end.
func answeredAtEnd(ctx context.Context, recorder *response.Recorder, status int) {
	if ctx.Value(http.ServerContextKey) == nil {
		recorder.Answered(status)
		return
	}
	if _, derived := ctx.Deadline(); !derived && ctx.Err() == nil {
		context.AfterFunc(ctx, func() { recorder.Answered(status) })
	}
}

// done ends an admitted request when Next has returned a status, or has panicked with
// the status 0: it releases the leases, and settles by the answer, now or once there is
// one. Without an answer the request stays charged.
func (d Decision) done(recorder *response.Recorder, r *http.Request, status int) {
	d.Release()
	if d.taken == nil || !d.policy.settles {
		return
	}
	if recorder != nil {
		if status = recorder.Status(); status == 0 {
			d.settleLater(recorder, r)
		}
	}
	if status != 0 {
		d.settleBy(r, status)
	}
}

// settleLater has a request settled once it is answered. It is a function of its own so
// that only its copy of the decision escapes to the heap.
//
//go:noinline
func (d Decision) settleLater(recorder *response.Recorder, r *http.Request) {
	recorder.Then(func(status int) { d.settleBy(r, status) })
}
