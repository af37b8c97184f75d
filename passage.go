package limit

import (
	"context"
	"net/http"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/engine"
)

// A passage is what a layer leaves to the program, which may keep it: the context and the
// request of what is behind the rules, and the values of headers. It is the one allocation of
// most requests. The layer itself, which is larger, is used again once it has left and nothing
// uses it any more.
type passage struct {
	context.Context // before the rules
	request         http.Request
	layer           *layer
	users           engine.Users // of the layer

	// What is known of the decision when the layer has left.
	mode  core.Mode
	met   outcome
	route *route

	// The value of RateLimit. With more or longer values it needs another allocation.
	values [1]string
	text   [56]byte
}

type passageKey struct{}

// Value implements [context.Context].
func (p *passage) Value(key any) any {
	if key == (passageKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// open makes the passage of l, if it has none.
func (l *layer) open() *passage {
	if l.passage == nil {
		d := &l.Decision
		l.passage = &passage{Context: l.request.Context(), layer: l, mode: d.Mode, met: d.outcome, route: l.route}
	}
	return l.passage
}

// done ends a use.
func (p *passage) done() {
	if p.users.Done() {
		p.layer.free()
	}
}

// layerOf returns the innermost layer of a context that has not left, or nil. The caller uses
// it.
func layerOf(ctx context.Context) *layer {
	for {
		p, _ := ctx.Value(passageKey{}).(*passage)
		switch {
		case p == nil:
			return nil
		case p.users.Add():
			return p.layer
		}
		ctx = p.Context
	}
}

// DecisionFrom returns the decision of the innermost rule set on a request: the zero
// Decision if no set has let the request through. The context is that of the request in
// its handler. Outcome and Lost of the decision cover all sets on the request. When the
// request is done, the decision has only Policy, Allowed, Mode and Outcome, of its own set.
func DecisionFrom(ctx context.Context) Decision {
	p, _ := ctx.Value(passageKey{}).(*passage)
	switch {
	case p == nil:
		return Decision{}
	case !p.users.Add():
		return Decision{Policy: p.route.name, Allowed: p.met != degraded, Mode: p.mode, outcome: p.met}
	}
	d := p.layer.behind()
	if d.outer == nil { // otherwise d uses it for good
		p.done()
	}
	return d
}

// behind returns the decision of l, as what is behind it sees it.
func (l *layer) behind() Decision {
	d := l.Decision
	d.outer = l.outer
	return d
}

// Outer returns the decision of the next set around the one of d, which is from
// [DecisionFrom]. It is not ok if there is none.
func (d Decision) Outer() (outer Decision, ok bool) {
	if d.outer == nil {
		return Decision{}, false
	}
	return d.outer.behind(), true
}
