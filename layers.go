package limit

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/response"
)

// Sets on one request are layers: of the application, of a group, of a route. Each decides
// by itself, and takes at once. If an inner set refuses the request, the outer ones give
// back what they took, so that a refusal costs nothing in any layer.

// What may still become of what a set took for a request that it has admitted.
const (
	kept  uint32 = iota // nothing
	held                // a set behind it may give it back
	given               // it was given back, and a set behind it may take it again
)

// hold keeps the run of a request that the set has admitted, for a set behind it, and
// reports whether it did.
func (l *layer) hold(run *engine.Run) bool {
	if !l.decision.Allowed || l.decision.Mode == core.ModeExempt {
		return false
	}
	l.run = run
	atomic.StoreUint32(&l.state, held)
	return true
}

// unhold returns the run of l, once, if l is in a state, or nil.
func (l *layer) unhold(state uint32) *engine.Run {
	if !atomic.CompareAndSwapUint32(&l.state, state, kept) {
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
// response share its header, but for http.TimeoutHandler, which leaves the request its own.
// Calls of an RPC have headers that differ, but their procedures end the paths of their
// requests, with or without the prefix of a router. A handler that calls another procedure
// has another path.
func (l *layer) answers(o *layer) bool {
	if l.framework.RPC() {
		return strings.HasSuffix(o.request.URL.Path, l.request.URL.Path)
	}
	return response.Same(l.header, o.header) || l.timed && l.sends(o)
}

// sends reports whether l decides the very request of o, and not one that its handler makes.
func (l *layer) sends(o *layer) bool {
	return l.request.Header != nil && response.Same(l.request.Header, o.request.Header)
}

// keep lets the sets around l keep what they took: the request has been served, or they
// have given it back. A handler may have another set decide afterwards, on the same response.
func (l *layer) keep() {
	for o := l.around(); o != nil; o = o.around() {
		if run := o.unhold(held); run != nil {
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
	for o := l.outer; o != nil; o = o.outer {
		if o.version.limiter == l.version.limiter && (l.sends(o) || l.answers(o)) {
			run.Spare(&o.decision.of)
		}
	}
}

// giveBack gives back what the sets around l took for a request that l does not let
// through, in one call of the store.
func (l *layer) giveBack() {
	var list []engine.Share
	var sets []*layer
	var runs []*engine.Run
	for o := l.around(); o != nil; o = o.around() {
		run := o.unhold(held)
		if run == nil {
			continue
		}
		before := len(list)
		if list = run.Unused(&o.decision.of, len(sets), list); len(list) == before {
			run.End()
			continue
		}
		sets, runs = append(sets, o), append(runs, run)
		l.noticeFreeAttempts(o)
	}
	if len(list) == 0 {
		return
	}
	limiter := l.version.limiter
	done, err := limiter.engine.GiveBack(l.request.Context(), list)
	shown := len(l.header[headerRateLimit])
	for i, o := range sets {
		d := o.decision
		if runs[i].Back(&d.of, i, list[:done]) {
			d.GivenBack = true
			shown = o.amend(l.header[headerRateLimit][:shown], &d)
			limiter.notify(o.request, &d, nil)
		}
		o.run = runs[i]
		atomic.StoreUint32(&o.state, given)
		if slices.ContainsFunc(list[done:], func(s engine.Share) bool { return s.Set == i }) {
			limiter.failed(unsettledRequest, o.request, o.decision, err)
		}
	}
}

// takeAgain takes again what the sets around l have given back. Something between the sets
// has tried another one after the refusal, and that one, l, serves the request.
func (l *layer) takeAgain() {
	for o := l.outer; o != nil; o = o.outer {
		if atomic.LoadUint32(&o.state) != given || o.version.limiter != l.version.limiter || !l.answers(o) {
			continue
		}
		if run := o.unhold(given); run != nil {
			err := run.TakeAgain(l.request.Context())
			run.End()
			if err != nil {
				o.version.limiter.failed(unsettledRequest, o.request, o.decision, err)
			} else {
				o.version.limiter.notify(o.request, &o.decision, nil)
			}
		}
	}
}

// amend replaces the quotas of l among those that the response shows by those of d, and
// returns where: sets around l are before. Once it has begun, the response keeps them.
func (l *layer) amend(states []string, d *Decision) int {
	before := l.decision.state()
	for i := len(states) - 1; i >= 0; i-- {
		if states[i] == before {
			states[i] = d.state()
			return i
		}
	}
	return len(states)
}
