// Package limit limits the rate of requests by rules that are decided together:
// either every rule admits a request, or none is charged.
//
//	limiter := limit.New(nil, nil)
//	mux.Handle("POST /update", limiter.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000)))(update))
//
// # Rules
//
// [PerIP], [PerUser], [Per] and [Global] make rules, and the functions that begin with By
// make keys. A rule counts by an exact sliding window unless it names another algorithm,
// such as TokenBucket{Burst: 5}. [Rules], [Named] and [EachRoute] say which requests share
// the quotas. Package rules describes every field and has what some of them take, such as
// [rules.OnStatus]. [Parse] reads rules from text.
//
// # Routes
//
// [Limiter.Limit] and [Policy.Handler] put rules on a route of net/http, or before
// everything. Packages ginlimit and echolimit do the same on Gin and Echo, and package
// adapter has what adapters for other frameworks need. A refused request is answered with 429 and the headers of its quotas, unless
// [Options] or a [Refusal] say otherwise. [DecisionFrom] tells a handler what was decided.
// Package operate is for tools of operators.
//
// # Jobs
//
// Outside HTTP, [Policy.Take] refuses and [Policy.Wait] waits. [Decision.Settle] corrects
// what a request took, once its true cost is known.
//
// # Stores
//
// Quotas are in memory, or in Redis for several processes: package redisstore. While
// Redis is unavailable, each process decides by its share of the limits: package guard.
//
// # Security
//
// The package does not authenticate: a key is only as trustworthy as its source. Name
// your proxies in [Options].Proxies, and put authentication before rules by user.
package limit

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/decorate"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/listeners"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/storecheck"
	"github.com/routelimit/limit/stores/memstore"
)

// A Limiter keeps the quotas of policies in one store. Make it with [New], once
// for a program. It is safe for concurrent use.
type Limiter struct {
	engine    engine.Engine
	options   Options
	lines     notice.Log
	notices   notices
	made      atomic.Uint64 // routes, so far
	observers listeners.List[func(*http.Request, Decision, error)]

	mu       sync.Mutex
	named    map[string]*Policy       // that were declared
	nameless []weak.Pointer[Policy]   // others, as long as the program has them
	changes  map[string]RuleSet       // by Change
	lifted   bool                     // by Lift
	routes   map[string][]policyRoute // by the name in the store
}

// ErrUndecided is wrapped by the errors of requests that could not be decided:
// the store failed, or a Cost was negative.
var ErrUndecided = engine.ErrUndecided

// New returns a Limiter that keeps its quotas in store. A nil store means a
// memory store, which only this process uses. Nil options mean the zero Options.
//
// New puts a guard for outages and a memory of refusals around a store other than memory,
// unless they are there already: see packages guard and refusals. New panics if the options
// are invalid.
func New(store core.Store, options *Options) *Limiter {
	l := &Limiter{named: make(map[string]*Policy), routes: make(map[string][]policyRoute)}
	if options != nil {
		l.options = *options
	}
	if err := l.options.validate(); err != nil {
		panic(err)
	}
	if l.options.Classes == nil {
		l.options.Classes = grammar.DefaultClasses
	}
	l.options.Classes, l.options.Proxies.Trusted = slices.Clone(l.options.Classes), slices.Clone(l.options.Proxies.Trusted)
	l.lines = notice.Log{To: l.options.Log, Silenced: slices.Clone(l.options.Silence)}
	if l.options.Observe != nil {
		l.observe(l.options.Observe)
	}
	l.engine.Queues.Requests = cmp.Or(l.options.Waiters, defaultTotalWaiters)
	l.engine.Queues.Polls = min(mostPolls, allPolls/max(1, l.options.Instances))
	l.engine.Store = decorate.Store(store, decorate.Options{Instances: l.options.Instances, MaxKeys: l.options.MaxKeys, Log: l.lines.Logger()})
	if memory, ok := l.engine.Store.(*memstore.Store); ok { // a type that embeds one decides by its own Take
		l.engine.InMemory, l.engine.Bind = true, memory.Bind
	}
	l.engine.Holder = core.HolderOf(l.engine.Store)
	l.notices.look.Store(lookAtStore)
	return l
}

// Policy binds rules to the limiter. Bind a set once, where the program starts, and keep
// the policy. The error joins one [*rules.Error] for each thing wrong with the rules.
func (l *Limiter) Policy(rules RuleSet) (*Policy, error) { return l.policy(rules, nil) }

// Limit returns net/http middleware. It is [Policy.Handler] of the policy of rules, and
// panics if they are invalid, as [http.ServeMux.Handle] does for an invalid pattern.
func (l *Limiter) Limit(rules RuleSet) func(http.Handler) http.Handler {
	p, err := l.policy(rules, &door.Place{})
	if err != nil {
		panic(err)
	}
	return p.Handler
}

// storeCheck returns the check of the store, for package operate and lookOnce.
func (l *Limiter) storeCheck() storecheck.Check {
	return storecheck.Check{Store: l.engine.Store, InMemory: l.engine.InMemory, Instances: l.options.Instances, Lines: &l.lines}
}

// What to look at after the next decision.
const (
	lookAtStore   uint32 = 1 << iota // if the store has made it
	lookAtChanges                    // if the last change was a second ago
)

// lookOnce looks for problems after a decision, and logs them. A store that fails has its
// own lines.
func (l *Limiter) lookOnce(look uint32, mode core.Mode) {
	n := &l.notices
	if look&lookAtChanges != 0 && time.Now().UnixNano()-n.changed.Load() > int64(time.Second) && n.look.And(^lookAtChanges)&lookAtChanges != 0 {
		l.noticeUndeclared()
	}
	if look&lookAtStore != 0 && mode == core.ModeExact && n.look.And(^lookAtStore)&lookAtStore != 0 {
		l.storeCheck().Log()
	}
}
