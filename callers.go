package limit

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/terms"
)

// A Caller says who sends a request. C is the context of a framework: [*http.Request] for
// [Options].Caller, and *gin.Context for ginlimit. A function that is nil there means that
// of Options. Each is called only if a rule asks for its answer, which is kept for the
// request; "" is asked again by the next set, since authentication may stand between. The
// answers must come from a verified source: a client that can choose its plan or class
// chooses its limit.
type Caller[C any] struct {
	// User returns the user, for [ByUser]: from a context value, a verified token or a
	// session. "" means that the request has no user.
	User func(C) string

	// Plan returns the plan of the caller: see [Rule].Plans. "" means no plan. Callers on
	// a plan that a rule does not name get the Limit of the rule.
	Plan func(C) string

	// Class returns the class of a request, one of [Options].Classes: see [Rule].Reserve.
	// "" and any other text mean "default". Waiting requests are served by class.
	Class func(C) string
}

// callerOf returns the function of Options for a part of the caller, or nil.
func (l *Limiter) callerOf(p door.Part) func(*http.Request) string {
	caller := &l.options.Caller
	return [...]func(*http.Request) string{door.User: caller.User, door.Plan: caller.Plan, door.Class: caller.Class}[p]
}

// who returns a part of the caller, or "". A handler may send requests for other callers.
func (l *layer) who(p door.Part) string {
	limiter, outer := l.version.limiter, ""
	for o := l; o != nil; o = o.outer {
		if answer := o.known[p]; answer != "" && o.version.limiter == limiter {
			if o == l || l.sends(o) && (l.w == nil || l.answers(o)) {
				return answer
			} else if outer == "" && l.answers(o) {
				outer = answer // middleware may have passed on a copy that does not say it
			}
		}
	}
	answer, asked := l.framework.Caller(p)
	if ask := limiter.callerOf(p); !asked && ask != nil {
		answer = ask(l.request)
	}
	l.known[p] = cmp.Or(strings.TrimSpace(answer), outer)
	return l.known[p]
}

// class returns the index of a class.
func (l *Limiter) class(name string) uint8 {
	i := slices.Index(l.options.Classes, name)
	if i < 0 {
		i = slices.Index(l.options.Classes, grammar.DefaultClass)
		if name != "" && !l.notices.unknownClass.Load() && !l.notices.unknownClass.Swap(true) {
			l.lines.Say(notice.UnknownClass, "class", strings.Clone(name[:min(len(name), grammar.MaxName)]), "classes", strings.Join(l.options.Classes, ", "))
		}
	}
	return uint8(i)
}

// callers is how the rules of a policy distinguish callers.
type callers struct {
	usual      *terms.Terms
	plans      map[string]*terms.Terms // nil if no rule has plans
	overridden *terms.Overrides        // of usual and plans, by Options.Override

	defaultClass  uint8 // the index of the class "default"
	distinguishes bool  // whether there is anything to ask about a caller
	asksPlan      bool  // whether its plan matters
	asksClass     bool  // whether its class does

	exemptions  []grammar.Exemption // of each rule; nil if no rule has any
	exemptsIP   bool                // whether a rule exempts addresses
	exemptsUser bool
}

func newCallers(l *Limiter, rules []Rule, waits bool) callers {
	classes := l.options.Classes
	c := callers{usual: terms.Of(rules, classes, nil), plans: terms.OfPlans(rules, classes), overridden: new(terms.Overrides),
		defaultClass: l.class(grammar.DefaultClass)}
	exempts, reserves := false, false
	for i := range rules {
		exempts = exempts || len(rules[i].Exempt) > 0
		reserves = reserves || len(rules[i].Reserve) > 0
	}
	c.asksPlan, c.asksClass = c.plans != nil, reserves || waits
	if exempts {
		c.exemptions = make([]grammar.Exemption, len(rules))
	}
	for i := range c.exemptions {
		e := &c.exemptions[i]
		*e = grammar.ParseExemption(rules[i].Exempt, l.class)
		c.asksPlan = c.asksPlan || e.Plans != nil
		c.asksClass = c.asksClass || e.Classes != 0
		c.exemptsIP = c.exemptsIP || e.Prefixes != nil
		c.exemptsUser = c.exemptsUser || e.Users != nil
	}
	c.distinguishes = c.asksPlan || c.asksClass || exempts || l.options.Override != nil
	return c
}

// callerProblems returns which functions of a Caller a rule needs and does not have.
func (l *Limiter) callerProblems(r *Rule, at door.Place) (list []string) {
	exempts := func(kind string) bool {
		return slices.ContainsFunc(r.Exempt, func(entry string) bool { return strings.HasPrefix(entry, kind+" ") })
	}
	values := r.Values()
	needs := [door.Parts]bool{door.User: r.Key.Uses(grammar.User) || values.Uses(grammar.User) || exempts("user"),
		door.Plan: len(r.Plans) > 0 || exempts("plan"), door.Class: len(r.Reserve) > 0 || exempts("class")}
	for p, name := range [...]string{door.User: "user", door.Plan: "plan", door.Class: "class"} {
		if needs[p] && !at.Caller[p] && l.callerOf(door.Part(p)) == nil {
			list = append(list, fmt.Sprintf("no %s resolver: set Caller.%s of limit.Options, or that of your adapter, such as rl.Caller.%[2]s",
				name, strings.ToUpper(name[:1])+name[1:]))
		}
	}
	return list
}

// A profile is what rules ask about the caller of a request. What they do not ask for
// is not filled in.
type profile struct {
	plan, class, user string
	address           netip.Addr
}

// caller fills in what the rules know of the caller.
func (l *layer) caller(run *engine.Run) error {
	var from profile
	p := l.version
	if p.asksPlan {
		from.plan = l.who(door.Plan)
	}
	if p.asksClass {
		from.class = l.who(door.Class)
	}
	if p.exemptsIP {
		from.address = Client{l.request, p.limiter, l}.IP()
	}
	if p.exemptsUser {
		from.user = l.value(&ByUser)
	}
	l.Decision.terms = p.distinguish(run, l.route, &from)
	return nil
}

// profile returns that of a request outside HTTP.
func (r *Request) profile(p *version) profile {
	from := profile{plan: r.Plan, class: r.Class}
	if p.exemptsIP {
		from.address = clientip.Parse(r.Keys["ip"])
	}
	if p.exemptsUser {
		from.user = strings.TrimSpace(r.Keys["user"])
	}
	return from
}

// distinguish makes a run, whose keys are known, that of a caller, and returns the terms.
func (p *version) distinguish(run *engine.Run, route *route, from *profile) *terms.Terms {
	t, c := p.usual, &run.Caller
	if of := p.plans[from.plan]; of != nil {
		t = of
	}
	c.Class = p.defaultClass
	if from.class != "" {
		c.Class = p.limiter.class(from.class)
	}
	for i := range p.exemptions {
		if p.exemptions[i].Matches(from.address, from.user, from.plan, c.Class) {
			c.Exempt |= 1 << i
		}
	}
	if p.limiter.options.Override != nil {
		t = p.override(run, route, t)
	}
	c.Terms = &t.Terms
	return t
}

// override returns the terms of a caller whose keys have an override.
func (p *version) override(run *engine.Run, route *route, usual *terms.Terms) *terms.Terms {
	var limits terms.Limits
	for i := range run.Charges {
		if run.Caller.Exempts(i) {
			continue
		}
		policy, name := p.set.Origin(i)
		if policy == "" {
			policy, name = route.name, p.names[i]
		}
		said := p.limiter.options.Override(policy, name, run.Charges[i].Key)
		if said == 0 {
			continue
		}
		rule := &p.list[i]
		limit := min(said, run.Charges[i].Quota.Algorithm.MaxLimit())
		given := rule.WithLimit(limit)
		quota := given.Quota()
		if quota.Validate() != nil {
			limit = 0
		}
		if limit != said {
			p.limiter.notices.override.Say(&p.limiter.lines, notice.BadOverride, "policy", policy, "rule", name,
				"limit", said, "instead", cmp.Or(limit, usual.Limits[i]))
		}
		limits[i] = limit
	}
	if limits == (terms.Limits{}) {
		return usual
	}
	return p.overridden.Of(p.set.Rules(), p.limiter.options.Classes, usual, limits)
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
	if c.of != nil && c.of.given != nil {
		if ip, said := c.of.given.Keys["ip"]; said {
			return clientip.Parse(ip)
		}
	}
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
		user = c.of.value(&ByUser)
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
