package limit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/response"
)

// Sets on one request are layers: of the application, of a group, of a route. Each decides
// by itself, and takes at once. If an inner set refuses the request, the outer ones give
// back what they took, so that a refusal costs nothing in any layer.

// around returns the next set of the Limiter around l on the same request, or nil. Requests
// that a handler makes with its context are others: they have responses of their own.
func (l *layer) around() *layer {
	for o := l.outer; o != nil; o = o.outer {
		if o.version.limiter == l.version.limiter && l.answers(o) {
			return o
		}
	}
	return nil
}

// answers reports whether the response of l reaches that of o. Calls of an RPC have headers that
// differ, but their paths end alike, unless a handler calls another procedure.
func (l *layer) answers(o *layer) bool {
	if l.framework.RPC() {
		return strings.HasSuffix(o.request.URL.Path, l.request.URL.Path)
	}
	return response.Same(l.header, o.header) || l.w != nil && o.w != nil && response.Reaches(l.w, o.w)
}

// sends reports whether l decides the very request of o, and not one that its handler makes.
func (l *layer) sends(o *layer) bool {
	return l.request.Header != nil && response.Same(l.request.Header, o.request.Header)
}

// keep lets the sets around l keep what they took: the request has been served, or they
// have given it back. A handler may have another set decide afterwards, on the same response.
func (l *layer) keep() {
	for o := l.around(); o != nil; o = o.around() {
		o.held.Keep()
	}
}

// overlaps reports whether l and a set around it may have a quota in common since one of them
// is With others.
func (l *layer) overlaps() bool {
	for o := l.outer; o != nil; o = o.outer {
		if (l.version.composed || o.version.composed) && o.version.limiter == l.version.limiter {
			return true
		}
	}
	return false
}

// spare leaves out the rules whose quotas the sets around l have charged for the request: it
// is charged to each once. Middleware that collects the answer in a response of its own, and
// passes the request on, is not told from a handler that makes requests with the header of
// its own one: of these, only the first is not charged again.
func (l *layer) spare(run *engine.Run) {
	for o := l.outer; o != nil; o = o.outer {
		if o.version.limiter == l.version.limiter && (l.answers(o) || l.sends(o) && !o.spared.Swap(true)) {
			run.Spare(&o.Decision.of)
		}
	}
}

// giveBack gives back what the sets around l took for a request that l does not let
// through, in one call of the store.
func (l *layer) giveBack() {
	var few [2]engine.Refund // without an allocation
	var fewSets [len(few)]*layer
	list, sets := few[:0], fewSets[:0] // of each refund
	for o := l.around(); o != nil; o = o.around() {
		if list = o.held.Unused(&o.Decision.of, list); len(list) > len(sets) {
			sets = append(sets, o)
			l.noticeFreeAttempts(o)
		}
	}
	if len(sets) == 0 {
		return
	}
	limiter := l.version.limiter
	limiter.engine.GiveBack(l.request.Context(), list)
	states := l.header[headerRateLimit]
	for i, o := range sets {
		d := o.Decision
		if list[i].Amend(&d.of) {
			d.GivenBack = true
			states = o.amend(l.header, states, &d)
			limiter.notify(o.request, &d, nil)
		}
		if err := list[i].Err; err != nil {
			limiter.failed(unsettledRequest, o.request, o.Decision, err)
		}
	}
}

// takeAgain takes again what the sets around l have given back: l serves the request, or a part
// of it, and another set between them has refused it before or meanwhile.
func (l *layer) takeAgain() {
	for o := l.around(); o != nil; o = o.around() {
		if given, err := o.held.TakeAgain(l.request.Context()); err != nil {
			l.version.limiter.failed(unsettledRequest, o.request, o.Decision, err)
		} else if given {
			l.version.limiter.notify(o.request, &o.Decision, nil)
		}
	}
}

// amend replaces the quotas of l among those that the response shows by those of d, and returns
// the states before its own: those of sets around l. Once it has begun, the response keeps them.
func (l *layer) amend(h http.Header, states []string, d *Decision) []string {
	if style := l.version.limiter.options.Headers; style&(OpenAI|Anthropic) != 0 {
		before, after := make(http.Header), make(http.Header)
		l.Decision.appendNamed(&response.Fields{Header: before}, style)
		d.appendNamed(&response.Fields{Header: after}, style)
		for name, values := range before {
			if slices.Equal(h[name], values) {
				h[name] = after[name]
			}
		}
	}
	var room [128]byte
	before := appendRateLimit(room[:0], &l.Decision)
	for i, state := range slices.Backward(states) {
		if state == string(before) {
			states[i] = string(appendRateLimit(room[:0], d))
			return states[:i]
		}
	}
	return states
}
