package limit

import (
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// A Rule allows Limit units a Window to all requests that share a key: by
// default, at most Limit requests in any window of that length. The zero Rule is
// invalid: Key, Limit and, without a [Calendar], Window are required.
//
// [PerIP], [PerUser], [Per], [Global] and [Concurrent] make the usual rules.
type Rule struct {
	// Name appears in headers, logs and the key of the stored state: letters,
	// digits, '.', '_' and '-', at most 64, unique among the rules of a policy. ""
	// means the key and the window, such as "per-ip-2s", or the key and the calendar's
	// unit, such as "per-user-month". For Concurrency, Ban and Distinct it means the
	// key and the algorithm, such as "per-user-concurrency". A rule keeps its state
	// when its limit changes and, under a Name of its own, when its window changes.
	Name string

	// Key says which requests share the quota.
	Key KeyResolver

	// Limit is how many units a window admits: 1 to 100,000 for a SlidingLog,
	// which remembers each, and to 10^12 for the others. For Concurrency it is how
	// many units are in flight at once, 1 to 10,000. A request is one unit unless
	// Cost says otherwise.
	Limit int64

	// Window is a whole number of microseconds from 1 ms to 366 days. Leave it out
	// with a [Calendar]. For Concurrency it is how long a lease lives that is not
	// renewed, from 1 s.
	Window time.Duration

	// Algorithm is how units are counted, with the options that it takes, such as
	// TokenBucket{Burst: 5}. Nil means [SlidingLog]. A rule that changes its kind needs
	// another Name, since one algorithm cannot read the state of another.
	Algorithm Algorithm

	// OnStoreError is what the rule does while the store is unavailable. The zero
	// value means [Local].
	OnStoreError core.OnError

	// Cost says how many units a request costs: see [CostBy]. The zero value means 1,
	// and 0 for a [Ban], where each unit is a strike. A request of cost 0 takes nothing and passes the
	// rule, unless a ban bars its key. For [Distinct], any other cost means 1. A cost
	// above what the rule can ever hold is refused without a Retry-After. A negative
	// cost is a mistake of the function: the request is answered as undecided, with
	// 503, and is charged nothing. A panic passes on to the server, before anything is
	// charged. The function must not read the body.
	Cost Cost

	// Settle says what a request really cost, once it has been answered with a status:
	// see [SettleBy]. The zero value keeps the charge. A lower cost refunds the rest, and a
	// higher one takes what there is room for: see [Decision.Settle], and [OnStatus]
	// for attempts that count only if they fail. The status is the one that was sent:
	// by the handler, or later, by middleware around the rules that their adapter sees
	// (docs/login.md). It is 200 if the handler wrote nothing, and 101 if it hijacked
	// the connection. A request whose handler panics before it answers keeps its charge,
	// unless something answers. A negative cost is a mistake of the function: the charge
	// stays, and Options.Observe is called.
	Settle Settlement

	// OnRefusal says what happens to a request that the rule refuses. The zero value
	// is inherited: see [Refusal].
	OnRefusal Refusal

	// Message is the text that a refused client reads, in place of "Try again in 9 s.":
	// at most 200 bytes of printable characters. If several rules refuse a request, it
	// is that of the rule whose outcome the request meets. "" means the usual text.
	Message string

	// Shadow makes a rule that only watches. Nil means a rule that refuses.
	Shadow *Shadow

	// Hidden leaves the rule out of all quota headers. It still affects Retry-After,
	// and the body of a refusal names it.
	Hidden bool

	// Plans has the limits of callers on plans, at most 64, by the name of the plan: see
	// [Options].Caller. Other callers have Limit. A Burst of 0 and a bucket that begins
	// empty follow the limit of the caller. Callers that share a key share what is
	// spent, except that each plan has buckets and queues of its own. See docs/plans.md.
	Plans map[string]int64

	// Reserve has, for up to 64 classes, how many units of the limit are kept for the
	// class and those above it: see [Caller]. The sum must leave at least one
	// unit. For a caller with another limit, Reserve is the same share of that limit,
	// rounded up. [Ban] and [Distinct] have no reserves.
	Reserve map[string]int64

	// Exempt lists up to 64 callers that the rule neither charges nor refuses, such as
	// "ip 10.0.0.0/8", "user root", "plan enterprise" or "class critical". Each value is
	// one word. Addresses are those of [Limiter.ClientIP]. The headers of an exempt
	// request leave out the rule. If all rules exempt an HTTP request, its decision has
	// [ModeExempt], and the store is not called. Package access has longer lists.
	Exempt []string
}

// A Shadow makes a rule that only watches. It counts and reports, but it refuses and
// delays no request, and appears in no header. It decides as if it were the only rule,
// so it charges requests that other rules refuse. [Concurrency], [Ban] and [Distinct]
// cannot be shadows. The zero Shadow is enforced for no key. See docs/roll-out.md.
type Shadow struct {
	// Enforced is the percentage of keys, 1 to 99, for which the rule is enforced. The
	// keys are the same in all processes, and a higher percentage adds to them. 0 means
	// none.
	Enforced int

	// Replaces is the name of the enforced rule of the same set that the shadow may
	// replace. Metrics compare the two: see [Decision.Comparisons].
	Replaces string
}

// shadow returns the Shadow of r, or the zero Shadow.
func (r *Rule) shadow() Shadow {
	if r.Shadow == nil {
		return Shadow{}
	}
	return *r.Shadow
}

// Per returns a rule that allows limit requests in any window to all requests
// that share a key.
func Per(key KeyResolver, window time.Duration, limit int64) Rule {
	return Rule{Key: key, Limit: limit, Window: window}
}

// PerIP returns a rule for each client address. See [ByIP].
func PerIP(window time.Duration, limit int64) Rule { return Per(ByIP, window, limit) }

// PerUser returns a rule for each user. See [ByUser].
func PerUser(window time.Duration, limit int64) Rule { return Per(ByUser, window, limit) }

// Global returns a rule that all requests of the policy share.
func Global(window time.Duration, limit int64) Rule { return Per(Everyone, window, limit) }

// A RuleSet is rules that are decided together: a request is admitted only if
// every rule has room, and is otherwise charged to none. A RuleSet is an immutable
// value, and is used by binding it to a [Limiter] or an adapter.
//
// The function that makes it says which requests share its quotas: those of one
// route ([Rules]), those of every place where the set stands ([Named]), or those of
// each route separately ([EachRoute]).
type RuleSet struct {
	scope scope
	name  string // of scopeNamed
	rules []Rule

	overridable bool // by Limiter.Change

	text string // that the rules were read from, or ""
	at   []int  // the offsets of the rules in the text
}

// A scope is which requests share the quotas of a set.
type scope uint8

const (
	scopeRoute scope = iota // those of the one route that the set stands on
	scopeNamed              // those of every place that uses the name
	scopeEach               // those of each route
)

// Rules returns rules for one route ("POST /update"), which names their quotas. On
// several routes each would count alone, which admits more than the rules say for
// all of them: this is an error where the routes are known at declaration, and a
// logged warning where they are not. Write [Named] or [EachRoute] there.
func Rules(rules ...Rule) RuleSet { return RuleSet{rules: cloned(rules)} }

// Named returns rules whose quotas go by a name. All routes that use it, on all
// frameworks and in all processes on one store, share them, and so do calls of
// [Policy.Take]. The name follows the rules for the Name of a [Rule].
//
// Another set of the name on the same [Limiter] must have the same rules, or none: then
// it is the set that was declared before. Their
// functions are the same if one call of [By], [CostBy] or [SettleBy] made them, so keep
// what it returned in a variable. A Fallback is the same if the two handlers are equal
// in Go. An http.HandlerFunc is equal to none, so share the set.
func Named(policy string, rules ...Rule) RuleSet {
	return RuleSet{scope: scopeNamed, name: policy, rules: cloned(rules)}
}

// Named returns the set, which was read from text, under a name: see the function [Named].
func (s RuleSet) Named(policy string) RuleSet {
	s.scope, s.name = scopeNamed, policy
	return s
}

// EachRoute returns rules for several routes, such as all routes of a group. Each
// route has quotas of its own, and all requests without a route share one. On
// net/http it is for handlers behind the router, which knows the route, and not for
// middleware before it.
func EachRoute(rules ...Rule) RuleSet {
	return RuleSet{scope: scopeEach, rules: cloned(rules)}
}

// Rules returns the rules, with the names that they go by:
//
//	limit.EachRoute(parsed.Rules()...)
func (s RuleSet) Rules() []Rule {
	rules := cloned(s.rules)
	for i := range rules {
		rules[i].Name = rules[i].name()
	}
	return rules
}

// Derive returns a set of the same scope in which f has changed each rule. The
// suffix is added to the names of the set and of its rules, so that the new set has
// quotas of its own. The error is what is wrong with the original. Package throttle
// derives rules of bytes from rules.
func (s RuleSet) Derive(suffix string, f func(Rule) Rule) (RuleSet, error) {
	derived := RuleSet{scope: s.scope, name: s.name, rules: make([]Rule, len(s.rules))}
	if s.scope == scopeNamed {
		derived.name += suffix
	}
	for i, r := range cloned(s.rules) {
		derived.rules[i] = f(r)
		derived.rules[i].Name = r.name() + suffix
		if shadow := derived.rules[i].Shadow; shadow != nil && shadow.Replaces != "" {
			derived.rules[i].Shadow = &Shadow{shadow.Enforced, shadow.Replaces + suffix}
		}
	}
	derived.rules = cloned(derived.rules)
	return derived, s.Validate()
}

// name returns the name that r goes by.
func (r *Rule) name() string {
	if r.Name != "" {
		return r.Name
	}
	name := "per-" + r.Key.String()
	if r.Key.kind == everyone {
		name = r.Key.String()
	}
	switch {
	case r.leases() || r.noQuota():
		name += "-" + r.algorithm().String()
	case r.calendar().Unit != 0:
		name += "-" + grammar.UnitWord(r.calendar().Unit)
	default:
		name += "-" + grammar.FormatWindow(r.Window)
	}
	return strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case c == 'µ':
			return 'u'
		case grammar.ValidName(string(c)):
			return c
		}
		return '-'
	}, name)
}
