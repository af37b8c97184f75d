package limit

import (
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// Package rules describes the fields of these types, the algorithms and the text grammar.
type (
	// A Rule allows Limit units a Window to all requests that share a key: by default,
	// at most Limit requests in any window of that length. [rules.Rule] describes its fields.
	Rule = rules.Rule

	// A RuleSet is rules that are decided together: a request is admitted only if every
	// rule has room, and is otherwise charged to none. It is an immutable value. The
	// function that makes it says which requests share its quotas: those of one route
	// ([Rules]), those of every place where the set stands ([Named]), or those of each
	// route separately ([EachRoute]).
	RuleSet = rules.Set

	// A Refusal says what happens to a request that a rule refuses: an answer with 429
	// or 503, a wait, a redirect, a degraded response, or a mark. The zero Refusal means
	// the one of the set, then that of [Options], then 429.
	Refusal = rules.Refusal
)

// The algorithms are values, such as TokenBucket{Burst: 5}; nil means at most Limit in any
// window, exactly. docs/algorithms.md compares them.

type (
	FixedWindow    = rules.FixedWindow    // at most Limit in each of its windows: of a length, or of a calendar
	SlidingCells   = rules.SlidingCells   // at most Limit in any window, for large limits
	SlidingCounter = rules.SlidingCounter // about Limit in a window, in little memory
	TokenBucket    = rules.TokenBucket    // a burst at once, then the rate
	LeakyBucket    = rules.LeakyBucket    // another name of TokenBucket
	Queue          = rules.Queue          // the rate, and requests wait for their slots
	Concurrency    = rules.Concurrency    // so many requests at once
	Ban            = rules.Ban            // bars a key for a time after so many refusals
	Distinct       = rules.Distinct       // so many different values of another key
)

// What a rule does while the store is unavailable. If the rules on a request differ, one that
// refuses refuses it. Errors that a request can cause do not count.
const (
	// Local ("on-error local") lets this process decide, by what it has admitted.
	// See [Options].Instances.
	Local = core.Local

	// Allow ("on-error allow") admits every request to the rule, and charges none.
	Allow = core.Allow

	// Refuse ("on-error refuse") refuses every request with 503 and a Retry-After,
	// until the store is asked the next time. It is for rules that protect a login.
	Refuse = core.Refuse
)

// PerIP returns a rule for each client address. See [ByIP].
func PerIP(window time.Duration, limit int64) Rule { return Per(ByIP, window, limit) }

// PerUser returns a rule for each user. See [ByUser].
func PerUser(window time.Duration, limit int64) Rule { return Per(ByUser, window, limit) }

// Per returns a rule that allows limit requests in any window to all requests
// that share a key.
func Per(key KeyResolver, window time.Duration, limit int64) Rule {
	return Rule{Key: key, Limit: limit, Window: window}
}

// Global returns a rule that all requests of the policy share.
func Global(window time.Duration, limit int64) Rule { return Per(Everyone, window, limit) }

// Rules returns rules for one route ("POST /update"), which names their quotas. On
// several routes each would count alone, which admits more than the rules say for
// all of them: this is an error where the routes are known at declaration, and a
// logged warning where they are not. Write [Named] or [EachRoute] there.
func Rules(list ...Rule) RuleSet { return rules.New(rules.ScopeRoute, "", list) }

// Named returns rules whose quotas go by a name. All routes that use it, on all
// frameworks and in all processes on one store, share them, and so do calls of
// [Policy.Take]. The name follows the rules for the Name of a [Rule].
//
// Another set of the name on the same [Limiter] must have the same rules, and functions
// made by the same calls of [By], [rules.CostBy] and [rules.SettleBy], or no rules: then it is the set
// that was declared before.
func Named(policy string, list ...Rule) RuleSet { return rules.New(rules.ScopeNamed, policy, list) }

// EachRoute returns rules for several routes, such as all routes of a group. Each
// route has quotas of its own, and all requests without a route share one. On
// net/http it is for handlers behind the router, which knows the route, and not for
// middleware before it.
func EachRoute(list ...Rule) RuleSet { return rules.New(rules.ScopeEach, "", list) }

// Parse reads rules in the text grammar, which [rules.Parse] describes:
//
//	5/2s per ip; 1000/1m global; login: 20/1h per user or ip
//
// The error joins one [*rules.Error] for each thing wrong with the rules, with the place in
// the text and what to write there. [rules.Functions] reads texts that name functions.
func Parse(text string) (RuleSet, error) { return rules.Parse(text) }

// MustParse is [Parse], but panics instead of returning an error. Use it for
// rules that are written in the program.
func MustParse(text string) RuleSet {
	set, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return set
}
