package limit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/rules"
)

// A layer is one rule set on one HTTP request. Layers are used again by the requests of a version:
// see passage. What those have in common stays, see set.
type layer struct {
	RefusedError // the decision, and the error of one that is a refusal

	version   *version
	route     *route
	framework door.Framework
	held      engine.Hold // what the set took
	ofRequest
}

// ofRequest is what a layer has of one request beside its decision.
type ofRequest struct {
	outer   *layer   // the set around this one, or nil
	passage *passage // to what is behind the rules, or nil

	request  *http.Request
	given    *Request           // what a handler says of the request, or nil: see Policy.Serve
	known    [door.Parts]string // of the caller
	shared   bool               // whether something has it that may outlive the request
	userless bool               // whether a rule by user met no user, and no request had one so far
	arrived  *time.Time         // when the request did, if a set has let it wait

	w        http.ResponseWriter // the response, as the handler of net/http writes to it
	header   http.Header         // of it
	recorder *response.Recorder  // of it, once the handler runs, if rules settle by its status
	spared   atomic.Bool         // whether a request with a response of its own was not charged again

	handler http.Handler // of net/http, behind the rules
}

// set sets what is often the same before: while garbage is collected, pointers cost to write.
func set[T comparable](to *T, x T) {
	if *to != x {
		*to = x
	}
}

// enter makes l, which is new, the layer of a request on one more rule set.
func (l *layer) enter(r *http.Request, from door.Framework, given *Request) {
	l.request, l.given = r, given
	set(&l.framework, from)
	set(&l.route, l.version.route(from))
	if l.outer = layerOf(r.Context()); l.outer != nil {
		l.arrived, l.Decision.loss = l.outer.arrived, l.outer.Decision.loss
	}
}

// leave ends l. After a panic, leave it to the garbage collector instead.
func (l *layer) leave() {
	if l.passage == nil || l.passage.users.Alone() {
		l.free()
		return
	}
	if l.held.Close(); l.passage.users.Leave() {
		l.free()
	}
}

// free gives l back, which has no users any more, and has no use for its outer one.
func (l *layer) free() {
	if l.shared {
		l.held.Keep()
		return
	}
	if l.outer != nil {
		l.outer.passage.done()
	}
	l.held.End()
	l.Decision.reset()
	l.ofRequest = ofRequest{}
	l.version.layers.Put(l)
}

// decide decides the request of l. If it is served, it waits as its rules say; the error
// may then be that of its context.
func (l *layer) decide(served bool) error {
	p, d := l.version, &l.Decision
	for _, step := range p.before {
		if step(l) {
			return nil
		}
	}
	plan := l.route.plan.Load()
	overlaps := served && l.outer != nil && l.overlaps()
	if overlaps {
		plan = plan.Exempting()
	}
	run := l.held.Begin(plan)
	set(&d.terms, p.usual)
	for _, step := range p.resolve {
		if err := step(l, run); err != nil {
			return err
		}
	}
	if overlaps {
		l.spare(run)
	}
	if l.holds() {
		run.Hold("", "", l.given.Hold.Microseconds(), nil)
	}
	ctx := l.request.Context()
	if err := run.Serve(ctx, p.limiter.detached(ctx), l.patience(served), &d.of); err != nil {
		return err
	}
	if l.holds() || l.given != nil && l.given.Settle {
		run.Keep(&d.of)
	}
	d.decided(run, p, l.route.name, d.terms)
	if d.Allowed && d.Mode != core.ModeExempt {
		l.held.Set()
	}
	return nil
}

// holds reports whether the handler has what the set takes held, until it settles it.
func (l *layer) holds() bool { return l.given != nil && l.given.Hold > 0 }

// patience returns how long the request may wait, or nil for not at all.
func (l *layer) patience(served bool) *engine.Patience {
	if !served || !l.version.waits {
		return nil
	}
	now := time.Now()
	return &engine.Patience{Began: now, Bound: response.Deadline(l.request.Context(), *cmp.Or(l.arrived, &now))}
}

// detached returns the context to call the store with for a caller that may go away.
// A memory store answers at once, and asks the context for nothing.
func (l *Limiter) detached(ctx context.Context) context.Context {
	if l.engine.InMemory {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// keys fills in the keys.
func (l *layer) keys(run *engine.Run) error {
	if len(run.Charges) == 0 && !l.version.set.IsLifted() {
		return errNoRules
	}
	l.version.fillKeys(run, l.value)
	return nil
}

// value returns the value of a key, or "" if there is none.
func (l *layer) value(k *KeyResolver) string {
	r := l.request
	var v string
	if l.given != nil {
		if v, ok := k.Given(l.given.Keys, l.version.limiter.options.Proxies.IPv6Prefix); ok {
			return v
		}
	}
	switch k.Kind() {
	case grammar.IP:
		return l.version.limiter.options.Proxies.config().Key(r.RemoteAddr, r.Header)
	case grammar.User:
		return l.who(door.User)
	case grammar.Header:
		v = r.Header.Get(k.Name())
	case grammar.Cookie:
		if c, err := r.Cookie(k.Name()); err == nil {
			v = c.Value
		}
	case grammar.Query:
		if r.URL != nil && r.URL.RawQuery != "" {
			v = r.URL.Query().Get(k.Name())
		}
	case grammar.Path:
		v = l.framework.PathValue(r, k.Name())
	case grammar.Func:
		v = k.Call(r)
	}
	return strings.TrimSpace(v)
}

// usualCost fills in the costs of rules that ask no function for them.
func (l *layer) usualCost(run *engine.Run) error {
	if l.given != nil {
		return l.costs(run)
	}
	for i := range run.Charges {
		run.Charges[i].Cost = 1
	}
	return nil
}

// costs fills in the costs of rules of which some ask a function. A strike of a ban is a
// cost of 1, so a request costs it nothing.
func (l *layer) costs(run *engine.Run) (err error) {
	var none Request
	of := cmp.Or(l.given, &none)
	for i := range run.Charges {
		c, rule := &run.Charges[i], &l.version.list[i]
		n, given := of.Costs[l.version.names[i]]
		switch {
		case given:
			c.Cost, err = validCost(n)
		case rule.Cost == (rules.Cost{}) && c.Quota.Bars():
			c.Cost = 0
		case of.Cost != 0:
			c.Cost, err = validCost(of.Cost)
		default:
			c.Cost, err = validCost(rule.Cost.Units(l.request))
		}
		if err != nil {
			return fmt.Errorf("%w: rule %q: %w", ErrUndecided, l.version.names[i], err)
		}
	}
	return nil
}

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
}

type passageKey struct{}

// Value implements [context.Context].
func (p *passage) Value(key any) any {
	if key == (passageKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// open makes the passage of l, with room for the values of its headers: more or longer values need
// another allocation.
func (l *layer) open() (values []string, text []byte) {
	switch style := l.version.limiter.options.Headers; {
	case style == NoHeaders:
		l.passage = new(passage)
	case style&^(XRateLimit|XRateLimitUnix) == 0 && style != 0:
		room := new(struct {
			passage
			values [3]string
			text   [24]byte
		})
		l.passage, values, text = &room.passage, room.values[:0], room.text[:0]
	default:
		room := new(struct {
			passage
			values [1]string
			text   [56]byte
		})
		l.passage, values, text = &room.passage, room.values[:0], room.text[:0]
	}
	p := l.passage
	p.Context, p.layer, p.mode, p.met, p.route = l.request.Context(), l, l.Decision.Mode, l.Decision.outcome, l.route
	return values, text
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
