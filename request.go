package limit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/rules"
)

// A layer is one rule set on one HTTP request. Layers are used again: see passage.
type layer struct {
	RefusedError // the decision, and the error of one that is a refusal

	outer   *layer   // the set around this one, or nil
	passage *passage // to what is behind the rules, or nil

	version   *version
	route     *route
	request   *http.Request
	framework door.Framework
	given     *Request           // what a handler says of the request, or nil: see Policy.Serve
	known     [door.Parts]string // of the caller
	shared    bool               // whether something has it that may outlive the request
	userless  bool               // whether a rule by user met no user, and no request had one so far
	arrived   *time.Time         // when the request did, if a set has let it wait

	w        http.ResponseWriter // the response
	header   http.Header         // of it
	recorder *response.Recorder  // of it, once the handler runs, if rules settle by its status
	state    string              // of the quotas there, by this set
	held     engine.Hold         // what the set took
	spared   atomic.Bool         // whether a request with a response of its own was not charged again

	exchange exchange // of net/http
}

var layers = sync.Pool{New: func() any { return new(layer) }}

// enter makes l, which is new, the layer of a request on one more rule set.
func (l *layer) enter(p *version, r *http.Request, from door.Framework, given *Request) {
	l.version, l.route, l.request, l.framework, l.given = p, p.route(from), r, from, given
	if l.outer = layerOf(r.Context()); l.outer != nil {
		l.arrived, l.Decision.loss = l.outer.arrived, l.outer.Decision.loss
	}
}

// leave ends l. After a panic, leave it to the garbage collector instead.
func (l *layer) leave() {
	l.held.End()
	if l.passage == nil || l.passage.users.Leave() {
		l.free()
	}
}

// free gives l back, which has no users any more, and has no use for its outer one.
func (l *layer) free() {
	if l.shared {
		return
	}
	if l.outer != nil {
		l.outer.passage.done()
	}
	*l = layer{}
	layers.Put(l)
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
	run := plan.Begin() // not ended after a panic of the program's functions
	defer func() {
		if !served || !l.hold(run) {
			run.End()
		}
	}()
	d.terms = p.usual
	for _, step := range p.resolve {
		if err := step(l, run); err != nil {
			return err
		}
	}
	if overlaps {
		l.spare(run)
	}
	if run.Caller.Exempt == p.all {
		d.Policy, d.Allowed, d.Mode, d.At = l.route.name, true, core.ModeExempt, time.Now()
		return nil
	}
	ctx := l.request.Context()
	if err := run.Serve(ctx, p.limiter.detached(ctx), l.patience(served), &d.of); err != nil {
		return err
	}
	d.decided(run, p, l.route.name, d.terms)
	return nil
}

// patience returns how long the request may wait, or nil for not at all.
func (l *layer) patience(served bool) *engine.Patience {
	if !served || !l.version.waits {
		return nil
	}
	now := time.Now()
	arrived := now
	if l.arrived != nil {
		arrived = *l.arrived
	}
	return &engine.Patience{Began: now, Bound: response.Deadline(l.request.Context(), arrived)}
}

// detached returns the context to call the store with for a caller that may go away.
// A memory store answers at once, and asks the context for nothing.
func (l *Limiter) detached(ctx context.Context) context.Context {
	if l.engine.InMemory {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// keys fills in the keys. Each resolver is asked once.
func (l *layer) keys(run *engine.Run) error {
	if len(run.Charges) == 0 {
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

func (p *version) fillKeys(run *engine.Run, value func(*KeyResolver) string) {
	for i := range run.Charges {
		if first := p.keyOf[i]; first < i {
			run.Charges[i].Key = run.Charges[first].Key
		} else {
			run.Charges[i].Key = p.list[i].Key.Resolve(value)
		}
	}
}

// values fills in what is counted by rules of distinct values.
func (l *layer) values(run *engine.Run) error {
	l.version.fillValues(run, l.value)
	return nil
}

func (p *version) fillValues(run *engine.Run, value func(*KeyResolver) string) {
	for i := range run.Charges {
		if run.Charges[i].Quota.Algorithm == core.Distinct {
			values := p.list[i].Values()
			run.Charges[i].ID = engine.ValueID(values.Resolve(value))
		}
	}
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

// validCost returns n as a cost. A negative cost is an error, since it would give
// back quota that was never taken. One above what any store counts is more than
// any rule allows, and is capped.
func validCost(n int64) (int64, error) {
	if n < 0 {
		return 0, fmt.Errorf("cost %d: write 0 or more", n)
	}
	return min(n, core.MaxCost), nil
}

// A Client is the sender of a request, for [Options].Exempt and [Options].Bar. It has the
// address and the user that the rules are keyed by, so a function cannot take the client
// for another one than the rules do. That Client is valid until the function returns.
// Elsewhere, such as in logs and tests, set the two fields: limit.Client{Request: r, Limiter: limiter}.IP().
type Client struct {
	Request *http.Request
	Limiter *Limiter // that decides the request; nil means one without options

	of *layer
}

// IP returns the address that [ByIP] resolves, with all bits of an IPv6 address. IPv4-mapped
// addresses are IPv4, and the zone is removed. It is the zero Addr if the peer has no
// address, as on a Unix socket.
func (c Client) IP() netip.Addr {
	if c.Limiter == nil {
		return new(Proxies).config().Addr(c.Request.RemoteAddr, c.Request.Header)
	}
	return c.Limiter.options.Proxies.config().Addr(c.Request.RemoteAddr, c.Request.Header)
}

// User returns the user that [ByUser] resolves: by the [Caller] of the adapter or
// of [Options], without blanks around it. It is "" if the request has no user.
func (c Client) User() string {
	var user string
	switch {
	case c.of != nil:
		user = c.of.who(door.User)
	case c.Limiter != nil && c.Limiter.options.Caller.User != nil:
		user = strings.TrimSpace(c.Limiter.options.Caller.User(c.Request))
	}
	if c.Limiter != nil && c.Limiter.notices.listedUsers.Load() < userlessAfter {
		c.Limiter.noticeListedUsers(user)
	}
	return user
}

// noticeListedUsers warns once functions have asked for the users of so many requests,
// and none had one: what lists say of users has no effect.
func (l *Limiter) noticeListedUsers(user string) {
	n := &l.notices.listedUsers
	if user != "" {
		n.Store(userlessAfter + 1)
	} else if n.Add(1) == userlessAfter {
		l.lines.Say(notice.NoListedUsers, "requests", userlessAfter)
	}
}
