package limit

import (
	"cmp"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
)

// notices are the warnings of a limiter, apart from those of its guard. Clients can
// cause the throttled ones as often as they like; declarations cause the others.
type notices struct {
	failures        [len(failures)]notice.Throttle
	overflow, twice notice.Throttle
	override        notice.Throttle

	// Whether each of these was written, which is once.
	untrusted, silentProxy, lateUser, unknownClass atomic.Bool

	// How many requests had no user when a function asked: see noticeListedUsers.
	listedUsers atomic.Int32

	look    atomic.Uint32 // what to look at after the next decision: see lookOnce
	changed atomic.Int64  // when operate.Change was called, in Unix nanoseconds
}

// A failure is what can go wrong with a request beside a refusal.
type failure int

const (
	undecidedRequest failure = iota
	unsettledRequest
	lostLease
)

var failures = [...]struct{ code, text string }{
	undecidedRequest: {notice.Undecided, "limit: a request could not be decided"},
	unsettledRequest: {notice.Unsettled, "limit: an admitted request could not be settled"},
	lostLease:        {notice.LeaseLost, "limit: a request lost a lease that it held"},
}

func (l *Limiter) log() *notice.Log { return &l.lines }

// failed logs the error of a request, and reports it to Observe.
func (l *Limiter) failed(f failure, r *http.Request, d Decision, err error) {
	l.notices.failures[f].Warn(l.log(), failures[f].code, failures[f].text, "error", err)
	l.notify(r, &d, err)
}

func (n *notices) overflowed(l *Limiter, policy string) {
	// The arguments of a line that is not due would cost each request an allocation.
	if skipped, due := n.overflow.Due(time.Now(), notice.Every); due {
		notice.Write(l.log(), notice.Overflow, "limit: more keys than MaxKeys: new keys share quotas, and may be refused early",
			skipped, "policy", policy)
	}
}

func (n *notices) badOverride(log *notice.Log, policy, rule string, limit int64, used any) {
	n.override.Warn(log, notice.BadOverride, "limit: Options.Override returned a limit that the rule cannot have", "policy", policy, "rule", rule, "limit", limit, "instead", used)
}

func (n *notices) chargedTwice(log *notice.Log, policy, rule string, first, second *version) {
	n.twice.Warn(log, notice.ChargedTwice, "limit: one request was charged to one quota twice: remove one of the two rule sets, "+
		"or give the rule another Name in one of them", "policy", policy, "rule", rule, "first", first.set.String(), "second", second.set.String())
}

func (n *notices) secondRoute(log *notice.Log, p *version, first, second string) {
	notice.Write(log, notice.SecondRoute, "limit: a rule set made by limit.Rules covers several routes or methods: "+
		"write limit.Named for one quota of all, or limit.EachRoute if each is meant to count alone", 0,
		"rules", p.set.String(), "first", first, "second", second)
}

func (n *notices) noRoute(log *notice.Log, p *version) {
	notice.Write(log, notice.NoRoute, "limit: a rule set without a name met a request without a route: "+
		"all such requests share one quota; write limit.Named, and Policy.Middleware on net/http", 0, "rules", p.set.String())
}

// sharedPattern warns that two sets name their quotas after one pattern without a
// method: on chi, those of GET and of POST.
func (n *notices) sharedPattern(log *notice.Log, pattern string, first, second *version) {
	notice.Write(log, notice.SharedPattern, "limit: two rule sets are on one pattern, which has no method, so they share the quotas of "+
		"equal rules: where they are on two methods, write limit.Named for each", 0,
		"pattern", pattern, "first", first.set.String(), "second", second.set.String())
}

func (n *notices) differentRules(log *notice.Log, route, rule string, first, second *version) {
	notice.Write(log, notice.DifferentRules, "limit: two rule sets on one route have different rules of one name: each counts alone; "+
		"give one of the rules another Name, or write limit.Named", 0,
		"route", route, "rule", rule, "first", first.set.String(), "second", second.set.String())
}

func (n *notices) noPathValue(log *notice.Log, p *version, pattern string) {
	for _, rule := range p.list {
		missing, _ := rule.PathValues(pattern)
		for _, name := range missing {
			notice.Write(log, notice.NoPathValue, "limit: a rule is keyed by a path value that its route does not have: "+
				"all requests of the route share one quota", 0, "rule", rule.String(), "route", pattern, "value", name)
		}
	}
}

// forwardingHeaders are what proxies write, and what clients forge.
var forwardingHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip"}

// noticeProxies warns if a request has a forwarding header and its peer is not
// trusted, or comes from a trusted proxy that names no client.
func (of *layer) noticeProxies() (decided bool) {
	l, r := of.version.limiter, of.request
	p, n := &l.options.Proxies, &l.notices
	if n.untrusted.Load() && n.silentProxy.Load() || len(p.Trusted) == 0 && p.Hops > 0 {
		return false
	}
	if len(p.Trusted) > 0 && p.trusts(r.RemoteAddr) {
		header := cmp.Or(p.Header, "X-Forwarded-For")
		if len(r.Header.Values(header)) == 0 && !n.silentProxy.Swap(true) {
			notice.Write(l.log(), notice.SilentProxy, "limit: a trusted proxy sent no client address: its clients share the quota of its own "+
				"address; configure the proxy to send the header. Ignore this line for health checks by the proxy itself", 0, "header", header)
		}
		return false
	}
	if n.untrusted.Load() {
		return false
	}
	for _, name := range forwardingHeaders {
		if len(r.Header[name]) > 0 && !n.untrusted.Swap(true) {
			notice.Write(l.log(), notice.UntrustedProxy, "limit: a request has a forwarding header, and limit.Options.Proxies does not trust its peer: "+
				"if the peer is your proxy, add it to Proxies.Trusted: until then all its clients share one quota, and what exempts its address exempts them all. "+
				"Otherwise a client sent the header, and the line can be ignored", 0,
				"header", name)
		}
	}
	return false
}

// noticeUsers warns once a rule by user has met so many requests, and none had a user.
// Once it has seen a user, or has warned, userless stays above.
const userlessAfter = 100

func (l *layer) noticeUsers(run *engine.Run) error {
	p := l.version
	if p.userless.Load() >= userlessAfter {
		return nil
	}
	for i := range run.Charges {
		if p.list[i].Key.Kind() != grammar.User {
			continue
		}
		if run.Charges[i].Key != "" {
			p.userless.Store(userlessAfter + 1)
			return nil
		}
		l.userless = true
		if p.userless.Add(1) == userlessAfter {
			notice.Write(p.limiter.log(), notice.NoUsers, "limit: a rule by user has met no user so far, so all requests share its quota: "+
				"put authentication before the rules, have the User function return its user, or write \"per user or ip\"", 0,
				"rule", p.list[i].String(), "requests", userlessAfter)
		}
		return nil
	}
	return nil
}

// noticeLateUser warns if a request that had no user has one now that its handler
// has returned: authentication ran after the rules.
func (l *layer) noticeLateUser() {
	limiter := l.version.limiter
	if !limiter.notices.lateUser.Load() && l.who(door.User) != "" && !limiter.notices.lateUser.Swap(true) {
		l.version.userless.Store(userlessAfter + 1) // the same mistake
		notice.Write(limiter.log(), notice.LateUser, "limit: a rule by user was decided before authentication, so all users share one quota: "+
			"put authentication before the rules", 0, "policy", l.decision.Policy())
	}
}

// noticeDecision looks at how a decision was made.
func (l *Limiter) noticeDecision(d *Decision) {
	if d.Mode == core.ModeOverflow {
		l.notices.overflowed(l, d.route.name)
	}
	if look := l.notices.look.Load(); look != 0 {
		l.lookOnce(look, d.Mode)
	}
}

// noticeTwice warns if the request was charged to a quota of this route before.
func (l *layer) noticeTwice() {
	for o := l.outer; o != nil; o = o.outer {
		if o.decision.policy == nil || o.route.stored != l.route.stored {
			continue
		}
		if rule := l.route.shared(o.route); rule != "" {
			l.version.limiter.notices.chargedTwice(l.version.limiter.log(), l.route.name, rule, o.version, l.version)
			return
		}
	}
}

// shared returns a rule with which both routes charge one quota, or "".
func (r *route) shared(other *route) string {
	others := other.plan.Load().Rules()
	for _, mine := range r.plan.Load().Rules() {
		if slices.ContainsFunc(others, func(o engine.Rule) bool {
			return o.Charge.Rule == mine.Charge.Rule && o.Charge.Variant == mine.Charge.Variant
		}) {
			return mine.Charge.Rule
		}
	}
	return ""
}
