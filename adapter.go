package limit

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/routelimit/limit/internal/response"
)

// An Adapter says how a framework sees a request. C is the framework's context, such
// as a [*gin.Context], or a type of the adapter that has what its functions need: the
// writer, the next handler, a path. It is for authors of adapters; package adaptertest
// tests one, and CONTRIBUTING.md has the steps. Make it once for each declaration, and
// do not copy it after its first use. Route and Next are required.
//
// [*gin.Context]: https://pkg.go.dev/github.com/gin-gonic/gin#Context
type Adapter[C any] struct {
	// Route returns the method of the request and the pattern of its route: "POST"
	// and "/update/:id". The pattern is "" if no route matched. The method is "" if
	// it is part of the pattern, or if the route is for every method.
	Route func(c C) (method, pattern string)

	// PathValue returns a part of the path. Nil means [http.Request.PathValue].
	PathValue func(c C, name string) string

	// Caller says who sends a request. A function that is nil means that of
	// [Options].Caller.
	Caller Caller[C]

	// Next runs the handler with a request. It returns the status that the handler
	// answered with, and the error of the framework, which Serve returns. If the
	// response has not begun, the status is the one that the framework sends then, or 0
	// if something outside the rules will answer, such as an error handler.
	Next func(c C, r *http.Request) (status int, err error)

	// Record puts a Recorder of package adapter around the writer that the framework
	// writes to, for rules that settle by status: they settle by what it has sent,
	// also what middleware outside the rules sends later. Serve calls it at most once
	// for a request. Nil, or a nil Recorder, means that the status of Next counts.
	Record func(c C) *response.Recorder

	// SetStatus tells the framework the status of a refusal or failure before any
	// function answers it: the one to send unless that function sends another. Nil
	// means that the framework need not know.
	SetStatus func(c C, status int)

	// Refuse and Fail are the program's answers to a request that is refused, or
	// could not be decided, in the form of the framework. Nil means
	// [Options].Refuse and [Options].Fail. Serve returns their errors.
	Refuse func(c C, d Decision) error
	Fail   func(c C, err error) error

	// Answer is the framework's answer where the program has none. The document
	// has the media type application/problem+json. The error is a
	// [*RefusedError], or wraps [ErrUndecided]. Nil means that Serve writes the
	// document.
	Answer func(c C, status int, document []byte, err error) error

	// RPC says that the adapter stands before every procedure of a server, and that
	// its answers are errors. So a set made by [Rules] is an error, [Options].Refuse
	// and [Options].Fail are not called, and Answer answers where Refuse or Fail
	// returns nil.
	RPC bool

	calls sync.Pool // of *call[C]
}

// Bind is [Limiter.Policy] for adapters, where a route is declared. The error also
// joins one [*RuleError] for each rule that could resolve no key there: a rule by
// user if neither Caller.User nor that of [Options] is set, and a rule by a path value that the
// pattern does not have. Write "" for a pattern that is not known yet; its values are
// then not checked.
func (a *Adapter[C]) Bind(l *Limiter, pattern string, rules RuleSet) (*Policy, error) {
	if a.RPC && pattern == "" {
		pattern = "/package.Service/Method" // which has no values
	}
	return l.policy(rules, &place{pattern: pattern, everywhere: a.RPC, caller: a.Caller.parts()})
}

// Serve is the flow of every adapter. It decides a request, sets the headers,
// waits for the slot of a [Queue], and calls Next if the rules admit the request;
// otherwise the request meets the [Refusal] of its rules, which is an answer unless
// they say otherwise. When Next returns or panics, it releases the leases of the
// request, and settles what the request cost once it is answered: see [Rule].Settle.
//
// The decision does not end with the request's context, so that a client that
// disconnects cannot make a handler run uncounted. If the client disconnects before
// its slot comes, or before its rules admit it, Next is not called, the status is 499,
// and the error wraps that of the context.
//
// Serve returns the error of Next, Refuse, Fail or Answer. If Refuse or Fail returns
// nil, or if [Options] or Serve itself answered, it returns the [*RefusedError], or the
// error that wraps [ErrUndecided]. A redirect and a Fallback are answers of Serve. The
// error is for the log of the framework, and may be dropped where there is none.
func (a *Adapter[C]) Serve(p *Policy, w http.ResponseWriter, r *http.Request, c C) error {
	return a.serve(p.current.Load(), w, r, c, Request{})
}

// ServeRequest is Serve for a handler that knows more than the request says, such as one
// that has read the body: see [Policy.Serve].
func (a *Adapter[C]) ServeRequest(p *Policy, w http.ResponseWriter, r *http.Request, c C, given Request) error {
	v := p.current.Load()
	if err := v.checkGiven(&given); err != nil {
		return err
	}
	return a.serve(v, w, r, c, given)
}

func (a *Adapter[C]) serve(p *version, w http.ResponseWriter, r *http.Request, c C, given Request) error {
	call := a.call(p.limiter, c)
	defer a.done(call)
	if p.settles && !a.RPC {
		call.writer = w
	}
	return p.serve(w, r, call, given)
}

// Decide decides a request and does nothing else, for programs that answer it
// themselves: no headers, no waiting, and Observe is called for errors only. A cost
// of 0 is what [Rule].Cost says. Call [Decision.Wait] on an admitted request if a
// rule is a [Queue], and [Decision.Release] when the request is done. An error wraps
// [ErrUndecided].
func (a *Adapter[C]) Decide(p *Policy, r *http.Request, c C, cost int64) (d Decision, err error) {
	call := a.call(p.limiter, c)
	defer a.done(call)
	l := p.current.Load().enter(r, call)
	l.given.Cost = cost
	if err = l.decide(false); err != nil {
		p.limiter.failed(undecidedRequest, r, Decision{}, err)
		return Decision{}, err
	}
	if d = l.decision; d.of.Holds() {
		l.shared = true
		d.of.OnLoss(nil, l.reportLoss)
	}
	l.leave()
	return d, nil
}

// A call is one request of an adapter. Calls are used again: one for each request
// would cost it an allocation.
type call[C any] struct {
	adapter *Adapter[C]
	limiter *Limiter
	context C

	// For rules that settle by status:
	writer   http.ResponseWriter
	recorded *response.Recorder // of the response, since Next was called
}

func (a *Adapter[C]) call(l *Limiter, c C) *call[C] {
	v, ok := a.calls.Get().(*call[C])
	if !ok {
		v = &call[C]{adapter: a}
	}
	v.limiter, v.context = l, c
	return v
}

func (a *Adapter[C]) done(v *call[C]) {
	var none C
	v.limiter, v.context, v.writer, v.recorded = nil, none, nil, nil
	a.calls.Put(v)
}

func (v *call[C]) route() (method, pattern string) { return v.adapter.Route(v.context) }

func (v *call[C]) pathValue(r *http.Request, name string) string {
	if v.adapter.PathValue == nil {
		return r.PathValue(name)
	}
	return v.adapter.PathValue(v.context, name)
}

func (v *call[C]) caller(p part) (answer string, asked bool) {
	ask := v.adapter.Caller.function(p)
	if ask == nil {
		return "", false
	}
	return ask(v.context), true
}

// answer answers a request that is refused or could not be decided: by the function
// of the adapter, by that of Options, as the framework does, or with the document.
func (v *call[C]) answer(w http.ResponseWriter, r *http.Request, err error) error {
	a := v.adapter
	status := statusOf(err)
	if a.SetStatus != nil {
		a.SetStatus(v.context, status)
	}
	if answered, answer := v.answerByProgram(err); answer != nil || answered && !a.RPC {
		return cmp.Or(answer, err)
	}
	if !a.RPC && v.limiter.answerByOptions(w, r, status, err) {
		return err
	}
	if a.Answer != nil {
		return a.Answer(v.context, status, appendDocument(make([]byte, 0, documentSize), status, err), err)
	}
	writeDocument(w, status, err)
	return err
}

func (v *call[C]) answerByProgram(err error) (answered bool, _ error) {
	switch refused, ok := err.(*RefusedError); {
	case ok && v.adapter.Refuse != nil:
		return true, v.adapter.Refuse(v.context, refused.Decision)
	case !ok && v.adapter.Fail != nil:
		return true, v.adapter.Fail(v.context, err)
	}
	return false, nil
}

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
