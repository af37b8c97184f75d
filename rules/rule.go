// Package rules describes what a rule can say: its key, limit and window, the algorithm that
// counts, what a refused request meets, and the text in which all of that can be written.
//
// Programs write the names of package limit, which are the same types: limit.Rule,
// limit.TokenBucket, limit.Parse. Its functions make the usual rules, keys and sets:
// limit.PerIP, limit.ByHeader, limit.Named. This package has what they leave out, such as
// [CostBy], [OnStatus] and [Shadow], and decides nothing.
//
// A new attribute of a rule is a field and a row in attributes.go. Text, checks, equality
// and error messages follow from the row.
package rules

import (
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// A Rule allows Limit units a Window to all requests that share a key: by
// default, at most Limit requests in any window of that length. The zero Rule is
// invalid: Key, Limit and, but for a [core.Calendar] and a [Concurrency], Window are required.
//
// limit.PerIP, limit.PerUser, limit.Per and limit.Global make the usual rules.
type Rule struct {
	// Name appears in headers, logs and the key of the stored state: letters,
	// digits, '.', '_' and '-', at most 64, unique among the rules of a policy. ""
	// means the key and the window, such as "per-ip-2s", or the key and the calendar's
	// unit, such as "per-user-month". For Concurrency, Ban and Distinct it means the
	// key and the algorithm, such as "per-user-concurrency". A rule keeps its state
	// as long as it keeps its name: a default name changes with the key and the window.
	Name string

	// Key says which requests share the quota.
	Key KeyResolver

	// Limit is how many units a window admits: 1 to 100,000 for a SlidingLog, which remembers each,
	// and to 10^12 for the others. For Concurrency it is how many units are in flight at once, 1 to
	// 10,000. A request is one unit unless Cost says otherwise.
	Limit int64

	// Window is a whole number of microseconds from 1 ms to 366 days. Leave it out
	// with a [core.Calendar]. For Concurrency it is how long a lease lives that is not
	// renewed: from 1 s, and 0 means 30 s.
	Window time.Duration

	// Algorithm is how units are counted, with the options that it takes, such as
	// TokenBucket{Burst: 5}. Nil means [SlidingLog]. A rule that changes its algorithm keeps
	// what was spent, except to and from [Concurrency], [Ban] and [Distinct].
	Algorithm Algorithm

	// OnStoreError is what the rule does while the store is unavailable. The zero
	// value means limit.Local.
	OnStoreError core.OnError

	// Cost says how many units a request costs: see [CostBy]. The zero value means 1, and 0 for a
	// [Ban], where each unit is a strike. A request of cost 0 takes nothing and passes the rule,
	// unless a ban bars its key. For [Distinct], any other cost means 1. A cost above what the rule
	// can ever hold is refused without a Retry-After. A negative cost is a mistake of the function:
	// the request is answered as undecided, with 503, and is charged nothing. A panic passes on to
	// the server, before anything is charged. The function must not read the body.
	Cost Cost

	// Settle says what a request cost, once it has been answered with a status: see [SettleBy],
	// [AsUsed] for what its handler says, and [OnStatus] for attempts that count only if they fail.
	// The zero value keeps the charge. A lower cost refunds the rest. A higher one takes what there
	// is room for, and Debt: see limit.Decision.Settle. The status is the one that was sent: by the
	// handler, or later, by middleware around the rules that their adapter sees (docs/login.md). It
	// is 200 if the handler wrote nothing, and 101 if it hijacked the connection. A request whose
	// handler panics before it answers keeps its charge, unless something answers. A negative cost
	// is a mistake of the function: the charge stays, and Options.Observe is called.
	Settle Settlement

	// Debt is how many units above the limit a key may owe, up to 10^12, for requests that turn out
	// to cost more than they reserved. A settlement is charged in full up to that, and the rest is
	// forgiven and counted. A request that reserves a unit or more is refused until the key has
	// repaid, which RetryAfter includes. 0 means that a settlement takes what there is room for.
	//
	// Only [TokenBucket], [LeakyBucket], [FixedWindow] and [SlidingCells] have debts, the same for
	// callers on all plans. A bucket repays as it refills; its debt is at most what it refills in
	// ten years. A fixed window, such as a calendar month, carries at most a Limit of the debt into
	// the next one. In sliding cells the units leave the window instead, so a window, and the mean,
	// can reach Limit + Debt. While the store is unavailable, each process bounds the debt by its
	// share. When the store answers again, it is charged for that debt, which no window carries on.
	Debt int64

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

	// Attempts counts a request even if a rule set behind this one refuses it. Otherwise the rule
	// gives back what the request took. Set it on rules before authentication, and before other
	// work that comes before the last rule set: a user who is over the limit could otherwise make
	// the program check credentials forever, since the address would never be charged.
	Attempts bool

	// Plans has the limits of callers on plans, at most 64, by the name of the plan: see
	// limit.Options.Caller. Other callers have Limit. A Burst of 0 and a bucket that begins empty
	// follow the limit of the caller. Callers that share a key share its quota, except that each
	// plan has buckets and queues of its own. See docs/plans.md and docs/changing-limits.md.
	Plans map[string]int64

	// Reserve has, for up to 64 classes, how many units of the limit are kept for the
	// class and those above it: see limit.Caller. The sum must leave at least one
	// unit. For a caller with another limit, Reserve is the same share of that limit,
	// rounded up. [Ban] and [Distinct] have no reserves.
	Reserve map[string]int64

	// Exempt lists up to 64 callers that the rule neither charges nor refuses, such as
	// "ip 10.0.0.0/8", "user root", "plan enterprise" or "class critical". Each value is
	// one word. Addresses are those of limit.Client.IP. The headers of an exempt
	// request leave out the rule. If all rules exempt an HTTP request, its decision has
	// core.ModeExempt, and the store is not called. Package access has longer lists.
	Exempt []string
}

// A Shadow makes a rule that only watches. It counts and reports, but it refuses and
// delays no request, and appears in no header. It decides as if it were the only rule,
// so it charges requests that other rules refuse. [Concurrency], [Ban] and [Distinct]
// cannot be shadows. The zero Shadow is enforced for no key. See docs/roll-out.md.
type Shadow struct {
	// Enforced is the percentage of keys, 1 to 99, for which the rule is enforced. The keys are the
	// same in all processes, and a higher percentage adds to them. 0 means none.
	Enforced int

	// Replaces is the name of the enforced rule of the same set that the shadow may
	// replace. Metrics compare the two: see docs/roll-out.md.
	Replaces string
}

// shadow returns the Shadow of r, or the zero Shadow.
func (r *Rule) shadow() Shadow {
	if r.Shadow == nil {
		return Shadow{}
	}
	return *r.Shadow
}

// A Set is rules that are decided together: a request is admitted only if every rule has
// room, and is otherwise charged to none. It is an immutable value, made by the functions
// of package limit or read by [Parse], and used by binding it to a limiter or an adapter.
type Set struct {
	scope Scope
	name  string // of Named
	rules []Rule

	overridable bool
	lifted      bool // whether it admits all requests if it has no rules

	with []Set    // see With
	from []origin // of the last rules, which are of other sets: see Join

	text       string // that the rules were read from, or ""
	at, withAt []int  // the offsets of the rules in the text, and of what with says
}

// A Scope says which requests share the quotas of a set.
type Scope uint8

// The scopes, as the functions Rules, Named and EachRoute of package limit make them.
const (
	ScopeRoute Scope = iota // those of the one route that the set stands on
	ScopeNamed              // those of every place that uses the name
	ScopeEach               // those of each route
)

// New returns a set of a scope. The name is for Named.
func New(scope Scope, name string, rules []Rule) Set {
	return Set{scope: scope, name: name, rules: cloned(rules)}
}

// Scope returns the scope of s.
func (s Set) Scope() Scope { return s.scope }

// Name returns the name of s, or "" if it has none.
func (s Set) Name() string { return s.name }

// Declared returns the rules as they were declared, for package limit. Do not change them.
func (s Set) Declared() []Rule { return s.rules }

// Named returns the set, which was read from text, under a name.
func (s Set) Named(policy string) Set {
	s.scope, s.name = ScopeNamed, policy
	return s
}

// Overridable returns the set as a default, whose rules a policy file or another change
// may replace. The set must be Named. It may have no rules, for a policy that only the
// change defines: until then, its requests are undecided and answered with 503.
func (s Set) Overridable() Set {
	s.overridable = true
	return s
}

// IsOverridable reports whether s was made by [Set.Overridable].
func (s Set) IsOverridable() bool { return s.overridable }

// Lifted returns s, which has no rules, as one that admits all requests, for package limit.
func (s Set) Lifted() Set {
	s.lifted = true
	return s
}

// IsLifted reports whether s admits all requests if it has no rules.
func (s Set) IsLifted() bool { return s.lifted }

// Rules returns the rules, with the names that they go by:
//
//	limit.EachRoute(parsed.Rules()...)
func (s Set) Rules() []Rule {
	rules := cloned(s.rules)
	for i := range rules {
		rules[i].Name = rules[i].name()
	}
	return rules
}

// Derive returns a set of the same scope in which f has changed each rule. The
// suffix is added to the names of the set and of its rules, so that the new set has
// quotas of its own, and so are the sets that it is With. The error is what is wrong with
// the original. Package throttle derives rules of bytes from rules.
func (s Set) Derive(suffix string, f func(Rule) Rule) (Set, error) {
	derived := Set{scope: s.scope, name: s.name, rules: make([]Rule, len(s.rules))}
	for _, other := range s.with {
		other, err := other.Derive(suffix, f)
		if err != nil && len(other.rules) > 0 {
			return derived, err
		}
		derived.with = append(derived.with, other)
	}
	if s.scope == ScopeNamed {
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
	if r.Key.kind == grammar.Global {
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
