package limit

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
)

// Sets on one request are layers: of the application, of a group, of a route. Each decides
// by itself, and takes at once. If an inner set refuses the request, the outer ones give
// back what they took, so that a refusal costs nothing in any layer.

// hold keeps the run of a request that the set has admitted, for a set behind it, and
// reports whether it did.
func (l *layer) hold(run *engine.Run) bool {
	if !l.decision.Allowed || l.decision.Mode == core.ModeExempt {
		return false
	}
	l.run = run
	atomic.StoreUint32(&l.held, 1)
	return true
}

// unhold returns the run that l holds, once, or nil.
func (l *layer) unhold() *engine.Run {
	if !atomic.CompareAndSwapUint32(&l.held, 1, 0) {
		return nil
	}
	run := l.run
	l.run = nil
	return run
}

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

// answers reports whether a refusal of l answers the request of o. Wrappers of one
// response share its header. Calls of an RPC have headers that differ, but their
// procedures end the paths of their requests, with or without the prefix of a router. A
// handler that calls another procedure has another path.
func (l *layer) answers(o *layer) bool {
	if l.framework.RPC() {
		return strings.HasSuffix(o.request.URL.Path, l.request.URL.Path)
	}
	return reflect.ValueOf(l.header).Pointer() == reflect.ValueOf(o.header).Pointer()
}

// keep lets the sets around l keep what they took: the request has been served, or they
// have given it back. A handler may have another set decide afterwards, on the same response.
func (l *layer) keep() {
	for o := l.around(); o != nil; o = o.around() {
		if run := o.unhold(); run != nil {
			run.End()
		}
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
// is charged to each once. A handler such as http.TimeoutHandler changes the response, and
// not the header of the request.
func (l *layer) spare(run *engine.Run) {
	header := reflect.ValueOf(l.request.Header).Pointer()
	for o := l.outer; o != nil; o = o.outer {
		same := header != 0 && header == reflect.ValueOf(o.request.Header).Pointer()
		if o.version.limiter == l.version.limiter && (same || l.answers(o)) {
			run.Spare(&o.decision.of)
		}
	}
}

// giveBack gives back what the sets around l took for a request that l does not let
// through, in one call of the store.
func (l *layer) giveBack() {
	var list []engine.Share
	var sets []*layer
	for o := l.around(); o != nil; o = o.around() {
		if run := o.unhold(); run != nil {
			before := len(list)
			if list = run.Unused(&o.decision.of, len(sets), list); len(list) > before {
				sets = append(sets, o)
			}
			run.End()
		}
	}
	if len(list) == 0 {
		return
	}
	limiter := l.version.limiter
	err := limiter.engine.GiveBack(l.request.Context(), list)
	for i, o := range sets {
		d := o.decision
		d.of.Back(i, list)
		o.amend(l.header, &d)
		if err != nil {
			limiter.failed(unsettledRequest, o.request, d, err)
		} else {
			d.GivenBack = true
			l.noticeFreeAttempts(o)
			limiter.notify(o.request, &d, nil)
		}
	}
}

// amend replaces the quotas that the response shows of l by those of d. Once it has begun,
// it keeps them.
func (l *layer) amend(h http.Header, d *Decision) {
	states := h[headerRateLimit]
	if before := l.decision.state(); before != "" {
		if i := slices.Index(states, before); i >= 0 {
			states[i] = d.state()
		}
	}
}
