// Package operate is what operators and their tools ask of a limiter: whether its store works,
// which policies it has, the state of one key, a function that sees all decisions, and new rules
// while the program runs. The packages in ops are built on it. All functions are safe for
// concurrent use.
package operate

import (
	"context"
	"iter"
	"net/http"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
)

// What package limit does for this one.
var (
	engineOf  = door.Engine.(func(*limit.Limiter) *engine.Engine)
	proxies   = door.Proxies.(func(*limit.Limiter) limit.Proxies)
	policies  = door.Policies.(func(*limit.Limiter) iter.Seq2[string, limit.RuleSet])
	declared  = door.Declared.(func(*limit.Limiter) []string)
	peek      = door.Peek.(func(_ *limit.Limiter, _ context.Context, policy, rule, key, plan string) (limit.RuleDecision, error))
	account   = door.Account.(func(_ *limit.Limiter, _ context.Context, policy, rule, key, plan string) (core.Account, error))
	reset     = door.Reset.(func(_ *limit.Limiter, _ context.Context, policy, rule, key string) error)
	keyOf     = door.Key.(func(_ *limit.Policy, rule string, keys map[string]string) (string, error))
	observing = door.Observe.(func(*limit.Limiter, func(*http.Request, limit.Decision, error)) func())
	compared  = door.Compared.(func(limit.Decision) [][2]limit.RuleDecision)
	change    = door.Change.(func(*limit.Limiter, ...limit.RuleSet) error)
	lift      = door.Lift.(func(*limit.Limiter) error)
	check     = door.Check.(func(*limit.Limiter, context.Context) error)
	validate  = door.Validate.(func(*limit.Limiter, limit.RuleSet) error)
)

// Check returns what is wrong before the first request: a store that cannot be reached or written,
// evicts keys, or withholds information, and quotas in memory with several Instances of
// [limit.Options]. Call it before the program serves. It changes no quota, and waits for the store
// until ctx ends, at most 5 s.
//
// The error joins one [*core.Diagnosis], with a code of docs/diagnostics.md, for each problem that
// Silence of [limit.Options] does not name. Without a call of Check, they are logged when they
// happen or after the first decision.
func Check(ctx context.Context, l *limit.Limiter) error { return check(l, ctx) }

// Policies returns the policies that decide now, sorted by the name in [limit.Decision].Policy,
// with their rules: those that are [limit.Named], and each route that has had a request. A name
// comes twice if two sets are on one route. A set on a route without a request yet comes first,
// named "": only a request says where middleware is.
func Policies(l *limit.Limiter) iter.Seq2[string, limit.RuleSet] { return policies(l) }

// Peek returns the state of one key of a rule, as a request of cost 1 would find it, and takes
// nothing: see [limit.Policy.Peek], which asks all rules of a policy. The policy, the rule and the
// key are named as in a [limit.Decision]: the key of a global rule is "". Plan is that of the
// caller, if any. The limit is that of Override of [limit.Options], if it returns one. Peek calls
// the store. The error says what is wrong with a name or the key, or wraps [limit.ErrUndecided].
func Peek(ctx context.Context, l *limit.Limiter, policy, rule, key, plan string) (limit.RuleDecision, error) {
	return peek(l, ctx, policy, rule, key, plan)
}

// Account returns what one key of a rule owes, and what is held of it: see Debt of a [limit.Rule]
// and Hold of a [limit.Request]. The names, the plan and the errors are those of Peek. A key that
// owes is refused until it has paid: RetryAfter of Peek says when. Account calls the store, several
// times for a key with more than 1,000 holds.
func Account(ctx context.Context, l *limit.Limiter, policy, rule, key, plan string) (core.Account, error) {
	return account(l, ctx, policy, rule, key, plan)
}

// Reset makes the quota of one key of a rule full again, for all plans, and lifts a [limit.Ban]:
// see [limit.Policy.Reset], which resets all rules of a policy but the global ones. The names and
// errors are those of Peek. A rule of [limit.Concurrency] cannot be reset, since its leases live
// on.
func Reset(ctx context.Context, l *limit.Limiter, policy, rule, key string) error {
	return reset(l, ctx, policy, rule, key)
}

// Key returns the key that a rule, named as in a [limit.Decision], has for values of
// [limit.Request].Keys: the one that Override of [limit.Options] receives. The error says which
// rules there are, or which key is missing.
func Key(p *limit.Policy, rule string, keys map[string]string) (string, error) {
	return keyOf(p, rule, keys)
}

// Stats is what a limiter does at a moment, and what it has done since it was made.
type Stats struct {
	// Waiters is how many requests wait for room now, over all policies: calls of
	// [limit.Policy.Wait], and HTTP requests whose rules let them wait. Those that have a slot in a
	// [limit.Queue] are not counted.
	Waiters int64

	core.Condition // of the store; the zero Condition of a memory store

	// Reserved is how many requests whose [limit.Request] says Settle were admitted, and Settled
	// how many of them were settled or given back. The difference is in use or was never settled,
	// and stays charged.
	Reserved, Settled int64

	// Ended is how many holds this process has given back because they ended unsettled, such as
	// those of processes that died: see Hold of a [limit.Request].
	Ended int64

	// Unheld is how many admitted requests with Hold could not be held.
	Unheld int64

	// Forgiven is how many units requests cost beyond what they reserved and what their rules may
	// owe: see the Debt of a [limit.Rule]. They were not charged.
	Forgiven int64
}

// ReadStats returns the state of a limiter. It does not block, and reads the fields one after the
// other.
func ReadStats(l *limit.Limiter) Stats {
	e := engineOf(l)
	reserved, settled := e.Reservations()
	return Stats{Waiters: e.Queues.Len(), Condition: core.ConditionOf(e.Store), Reserved: reserved, Settled: settled, Ended: e.Ended.Load(), Unheld: e.Unheld.Load(), Forgiven: e.Forgiven.Load()}
}

// Observe has a function called with each decision from now on, as Observe of [limit.Options] is
// and after it, until the program calls stop, once or more. A decision that is being made then may
// still be observed.
func Observe(l *limit.Limiter, observe func(*http.Request, limit.Decision, error)) (stop func()) {
	if observe == nil {
		panic("operate: Observe with nil: write a function")
	}
	return observing(l, observe)
}

// A Comparison is what a shadow (New) and the rule that it may replace (Old) say about one request.
// New decides as if it were the only rule. A request that a third rule refuses charges only New,
// which then refuses more requests than it would in place of Old.
type Comparison struct{ Old, New limit.RuleDecision }

// Comparisons returns one Comparison for each Replaces of a rules.Shadow that was not enforced for
// the request. Packages promlimit and otellimit count them. A decision that is GivenBack has been
// compared, and has none.
func Comparisons(d limit.Decision) (list []Comparison) {
	for _, pair := range compared(d) {
		list = append(list, Comparison{Old: pair[0], New: pair[1]})
	}
	return list
}

// Declared returns the names of the policies that the program has declared, sorted.
func Declared(l *limit.Limiter) []string { return declared(l) }

// Proxies returns the Proxies of [limit.Options]. Do not change its Trusted.
func Proxies(l *limit.Limiter) limit.Proxies { return proxies(l) }

// Validate returns what is wrong with a set on a limiter that Validate of [limit.RuleSet] does not
// know: classes, and functions of the options that rules need where no adapter has them, as behind
// a ServeMux. It declares nothing.
func Validate(l *limit.Limiter, rules limit.RuleSet) error { return validate(l, rules) }

// Change replaces the rules of policies while the program runs, such as those of a policy file.
// Each set must be [limit.Named], and replaces the rules of the policy of that name, which the
// program declares, before or later, as a [limit.RuleSet] that is Overridable. A policy that this
// call does not name returns to its declared rules, so Change without sets undoes all changes.
//
// All sets take effect, or none does. The error joins one *rules.Error for each thing wrong with
// them. Requests that have begun, waiting ones included, end under the rules that they began with.
//
// A rule keeps the state of its keys if it keeps its name. A default name follows the key and the
// window. docs/changing-limits.md says what each algorithm keeps. A rule without a Cost, Settle or
// Fallback gets that of the declared rule of the same name, so that rules in text do not lose what
// only code can say. A set that leaves such a rule out is an error.
func Change(l *limit.Limiter, sets ...limit.RuleSet) error { return change(l, sets...) }

// Lift undoes all changes, and has policies that were declared without rules admit all requests.
// Until the next Change, those declared later do too.
func Lift(l *limit.Limiter) error { return lift(l) }
