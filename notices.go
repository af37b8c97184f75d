package limit

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
)

// notices are the warnings of a limiter, apart from those of its guard. Clients can
// cause the throttled ones as often as they like; declarations cause the others.
type notices struct {
	failures                  [len(failures)]notice.Throttle
	overflow, twice, override notice.Throttle
	forgiven, ended, unheld   notice.Throttle

	// Whether each of these was written, which is once.
	lateUser, unknownClass, freeAttempts atomic.Bool

	// How many requests had no user when a function asked: see noticeListedUsers.
	listedUsers atomic.Int32

	peers   clientip.Watch // what forwarding headers say
	look    atomic.Uint32  // what to look at after the next decision: see lookOnce
	changed atomic.Int64   // when operate.Change was called, in Unix nanoseconds
}

// A failure is what can go wrong with a request beside a refusal.
type failure int

const (
	undecidedRequest failure = iota
	unsettledRequest
	lostLease
)

var failures = [...]string{notice.Undecided, notice.Unsettled, notice.LeaseLost}

// failed logs the error of a request, and reports it to Observe.
func (l *Limiter) failed(f failure, r *http.Request, d Decision, err error) {
	l.notices.failures[f].Say(&l.lines, failures[f], "error", err)
	l.notify(r, &d, err)
}

// noticePathValue warns of rules keyed by a path value that a pattern does not have.
func (p *version) noticePathValue(pattern string) {
	for _, rule := range p.list {
		missing, _ := rule.PathValues(pattern)
		for _, name := range missing {
			p.limiter.lines.Say(notice.NoPathValue, "rule", rule.String(), "route", pattern, "value", name)
		}
	}
}

// noticeProxies warns if the forwarding headers of a request are not what [Proxies] says.
func (l *layer) noticeProxies() (decided bool) {
	limiter, r := l.version.limiter, l.request
	switch found, header := limiter.notices.peers.Look(limiter.options.Proxies.config(), r.RemoteAddr, r.Header); found {
	case clientip.UntrustedProxy:
		limiter.lines.Say(notice.UntrustedProxy, "header", header)
	case clientip.SilentProxy:
		limiter.lines.Say(notice.SilentProxy, "header", header)
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
	i := slices.IndexFunc(p.list, func(r Rule) bool { return r.Key.Kind() == grammar.User })
	if run.Charges[i].Key != "" {
		p.userless.Store(userlessAfter + 1)
		return nil
	}
	l.userless = true
	if p.userless.Add(1) == userlessAfter {
		p.limiter.lines.Say(notice.NoUsers, "rule", p.list[i].String(), "requests", userlessAfter)
	}
	return nil
}

// noticeLateUser warns if a request that had no user has one now that its handler
// has returned: authentication ran after the rules.
func (l *layer) noticeLateUser() {
	limiter := l.version.limiter
	if !limiter.notices.lateUser.Load() && l.who(door.User) != "" && !limiter.notices.lateUser.Swap(true) {
		l.version.userless.Store(userlessAfter + 1) // the same mistake
		limiter.lines.Say(notice.LateUser, "policy", l.Decision.Policy)
	}
}

// noticeFreeAttempts warns if a set around l, which gives back what the request took, stands
// before authentication, and rules by user behind it: those users are authenticated for
// nothing. Where the framework knows the user, it does not say who that was before.
func (l *layer) noticeFreeAttempts(o *layer) {
	limiter, ask := l.version.limiter, l.version.limiter.callerOf(door.User)
	if ask == nil || limiter.notices.freeAttempts.Load() || l.known[door.User] == "" || o.known[door.User] != "" {
		return
	}
	if _, plain := o.framework.(*exchange); !plain || strings.TrimSpace(ask(o.request)) != "" {
		return
	}
	if !limiter.notices.freeAttempts.Swap(true) {
		limiter.lines.Say(notice.FreeAttempts, "before", o.route.name, "behind", l.route.name)
	}
}

// noticeDecision looks at how a decision was made.
func (l *Limiter) noticeDecision(d *Decision) {
	if d.Mode == core.ModeOverflow {
		l.notices.overflow.SayOf(&l.lines, notice.Overflow, "policy", d.Policy)
	}
	if look := l.notices.look.Load(); look != 0 {
		l.lookOnce(look, d.Mode)
	}
}

// noticeTwice warns if the request was charged to a quota of this route before.
func (l *layer) noticeTwice() {
	for o := l.outer; o != nil; o = o.outer {
		if o.Decision.policy == nil || o.route.stored != l.route.stored || o.version.composed || l.version.composed {
			continue
		}
		if rule := l.route.shared(o.route); rule != "" {
			limiter := l.version.limiter
			limiter.notices.twice.Say(&limiter.lines, notice.ChargedTwice, "policy", l.route.name, "rule", rule,
				"first", o.version.set.String(), "second", l.version.set.String())
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
