package adapter

import (
	"cmp"
	"net/http"
	"sync"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/rules"
)

// An Adapter says how a framework sees a request. C is the framework's context, such as a
// [*gin.Context], or a type of the adapter that has what its functions need: the writer, the next
// handler, a path. Package adaptertest tests one, and CONTRIBUTING.md has the steps. Make it once
// for each declaration, and do not copy it after its first use. Route and Next are required.
//
// [*gin.Context]: https://pkg.go.dev/github.com/gin-gonic/gin#Context
type Adapter[C any] struct {
	// Route returns the method of the request and the pattern of its route: "POST" and
	// "/update/:id". The pattern is "" if no route matched. The method is "" if it is part of the
	// pattern, or if the route is for every method.
	Route func(c C) (method, pattern string)

	// PathValue returns a part of the path, decoded once. Nil means [http.Request.PathValue].
	PathValue func(c C, name string) string

	// Caller says who sends a request. A function that is nil means that of [limit.Options].Caller.
	Caller limit.Caller[C]

	// Next runs the handler with a request. It returns the status that the handler answered with,
	// and the error of the framework, which Serve returns. If the response has not begun, the
	// status is the one that the framework sends then, or 0 if something outside the rules will
	// answer, such as an error handler.
	Next func(c C, r *http.Request) (status int, err error)

	// Record puts a Recorder around the writer that the framework writes to, for rules that settle
	// by status: they settle by what it has sent, also what middleware outside the rules sends
	// later. Serve calls it at most once for a request. The status of Next counts if the response
	// has not begun when it returns, or if Record or the Recorder is nil.
	Record func(c C) *Recorder

	// SetStatus tells the framework the status of a refusal or failure before any function answers
	// it, which may send another. Nil means that the framework need not know.
	SetStatus func(c C, status int)

	// Refuse and Fail are the program's answers to a request that is refused, or could not be
	// decided, in the form of the framework. Nil means those of [limit.Options]. Serve returns
	// their errors.
	Refuse func(c C, d limit.Decision) error
	Fail   func(c C, err error) error

	// Answer is the framework's answer where the program has none. The document has the media type
	// application/problem+json. The error is a [*limit.RefusedError], or wraps
	// [limit.ErrUndecided]. Nil means that Serve writes the document.
	Answer func(c C, status int, document []byte, err error) error

	// RPC says that the adapter stands before every procedure of a server, and that its answers are
	// errors. So a set made by [limit.Rules] is an error, Refuse and Fail of [limit.Options] are
	// not called, and Answer answers where Refuse or Fail returns nil.
	RPC bool

	calls sync.Pool // of *call[C]
}

// Bind is [limit.Limiter.Policy] for adapters, where a route is declared. The error also joins one
// [*rules.Error] for each rule that could resolve no key there: a rule by user if neither
// Caller.User nor that of [limit.Options] is set, and a rule by a path value that the pattern does
// not have. Values are not checked if the pattern is "": not known yet.
func (a *Adapter[C]) Bind(l *limit.Limiter, pattern string, rules limit.RuleSet) (*limit.Policy, error) {
	if a.RPC && pattern == "" {
		pattern = "/package.Service/Method" // which has no values
	}
	at := &door.Place{Pattern: pattern, RPC: a.RPC}
	for p := range door.Parts {
		at.Caller[p] = a.caller(p) != nil
	}
	return bind(l, rules, at)
}

// Serve is the flow of every adapter. It decides a request, sets the headers, waits for the slot of
// a [limit.Queue], and calls Next if the rules admit the request; otherwise the request meets the
// [limit.Refusal] of its rules, which is an answer unless they say otherwise. When Next returns or
// panics, it releases the leases of the request, and settles what the request cost once it is
// answered: see [limit.Rule].Settle.
//
// The decision does not end with the request's context, so that a client that disconnects cannot
// make a handler run uncounted. If the client disconnects before its slot comes, or before its
// rules admit it, Next is not called, the status is 499, and the error wraps that of the context.
//
// Serve returns the error of Next, Refuse, Fail or Answer. If Refuse or Fail returns nil, or if
// [limit.Options] or Serve itself answered (a redirect, a Fallback), it returns the
// [*limit.RefusedError], or the error that wraps [limit.ErrUndecided]. The error is for the log of
// the framework, and may be dropped where there is none.
func (a *Adapter[C]) Serve(p *limit.Policy, w http.ResponseWriter, r *http.Request, c C) error {
	return a.serve(p, w, r, c, nil)
}

// ServeRequest is Serve for a handler that knows more than the request says, such as one
// that has read the body: see [limit.Policy.Serve].
func (a *Adapter[C]) ServeRequest(p *limit.Policy, w http.ResponseWriter, r *http.Request, c C, given limit.Request) error {
	return a.serve(p, w, r, c, &given)
}

func (a *Adapter[C]) serve(p *limit.Policy, w http.ResponseWriter, r *http.Request, c C, given *limit.Request) error {
	call := a.call(p, c)
	defer a.done(call)
	return serve(p, w, r, call, given)
}

// Decide decides a request and does nothing else, for programs that answer it themselves: no
// headers, no waiting, and [limit.Options].Observe is called for errors only. A cost of 0 is what
// [limit.Rule].Cost says. Call [limit.Decision.Wait] on an admitted request if a rule is a
// [limit.Queue], and [limit.Decision.Release] when the request is done. An error wraps
// [limit.ErrUndecided].
func (a *Adapter[C]) Decide(p *limit.Policy, r *http.Request, c C, cost int64) (limit.Decision, error) {
	call := a.call(p, c)
	defer a.done(call)
	return decide(p, r, call, cost)
}

// What package limit does for adapters.
var (
	bind            = door.Bind.(func(*limit.Limiter, limit.RuleSet, *door.Place) (*limit.Policy, error))
	serve           = door.Serve.(func(*limit.Policy, http.ResponseWriter, *http.Request, door.Framework, *limit.Request) error)
	functions       = door.Functions.(func(*limit.Limiter) rules.Functions)
	decide          = door.Decide.(func(*limit.Policy, *http.Request, door.Framework, int64) (limit.Decision, error))
	answerByOptions = door.AnswerByOptions.(func(*limit.Policy, http.ResponseWriter, *http.Request, int, error) bool)
)

// A call is one request of an adapter, as a [door.Framework]. Calls are used again: one
// for each request would cost it an allocation.
type call[C any] struct {
	adapter *Adapter[C]
	policy  *limit.Policy
	context C
}

func (a *Adapter[C]) call(p *limit.Policy, c C) *call[C] {
	v, ok := a.calls.Get().(*call[C])
	if !ok {
		v = &call[C]{adapter: a}
	}
	v.policy, v.context = p, c
	return v
}

func (a *Adapter[C]) done(v *call[C]) {
	*v = call[C]{adapter: a}
	a.calls.Put(v)
}

func (v *call[C]) Route() (method, pattern string)              { return v.adapter.Route(v.context) }
func (v *call[C]) RPC() bool                                    { return v.adapter.RPC }
func (v *call[C]) Next(r *http.Request) (status int, err error) { return v.adapter.Next(v.context, r) }

func (v *call[C]) PathValue(r *http.Request, name string) string {
	if v.adapter.PathValue == nil {
		return r.PathValue(name)
	}
	return v.adapter.PathValue(v.context, name)
}

func (v *call[C]) Record() *Recorder {
	if v.adapter.Record == nil {
		return nil
	}
	return v.adapter.Record(v.context)
}

func (v *call[C]) Caller(p door.Part) (answer string, asked bool) {
	ask := v.adapter.caller(p)
	if ask == nil {
		return "", false
	}
	return ask(v.context), true
}

func (a *Adapter[C]) caller(p door.Part) func(C) string {
	switch p {
	case door.User:
		return a.Caller.User
	case door.Plan:
		return a.Caller.Plan
	}
	return a.Caller.Class
}

// Answer answers by the function of the adapter, by that of limit.Options, or as the framework
// does.
func (v *call[C]) Answer(w http.ResponseWriter, r *http.Request, status int, err error) (answered bool, _ error) {
	a := v.adapter
	if a.SetStatus != nil {
		a.SetStatus(v.context, status)
	}
	answered, answer := v.answerByProgram(err)
	switch {
	case answer != nil || answered && !a.RPC:
		return true, cmp.Or(answer, err)
	case !a.RPC && answerByOptions(v.policy, w, r, status, err):
		return true, err
	case a.Answer != nil:
		return true, a.Answer(v.context, status, door.Document(status, err), err)
	}
	return false, nil
}

func (v *call[C]) answerByProgram(err error) (answered bool, _ error) {
	switch refused, ok := err.(*limit.RefusedError); {
	case ok && v.adapter.Refuse != nil:
		return true, v.adapter.Refuse(v.context, refused.Decision)
	case !ok && v.adapter.Fail != nil:
		return true, v.adapter.Fail(v.context, err)
	}
	return false, nil
}

// CallerOf returns a caller for an [Adapter] whose context C has the framework's in it, such as
// beside the next handler.
func CallerOf[C, D any](caller limit.Caller[D], context func(C) D) limit.Caller[C] {
	of := func(f func(D) string) func(C) string {
		if f == nil {
			return nil
		}
		return func(c C) string { return f(context(c)) }
	}
	return limit.Caller[C]{User: of(caller.User), Plan: of(caller.Plan), Class: of(caller.Class)}
}

// A Recorder remembers the status of a response, for [Adapter].Record. Its methods:
//   - Writer() http.ResponseWriter is for handlers, or the framework, to write to. It has the
//     optional methods of the writer below, such as Flush and Hijack, and no others.
//   - Status() int is 0 if the response has not begun, and 101 if the connection was hijacked.
//   - SetStatus(int) is for [Adapter].SetStatus: the status of a response that begins without a
//     call of WriteHeader.
//   - Begin() sends the header if a function of the program has returned and wrote nothing.
type Recorder = response.Recorder

// Record returns a Recorder around w.
func Record(w http.ResponseWriter) *Recorder { return response.Record(w) }
