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
	"context"
	"errors"
	"fmt"
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
	_, l.engine.InMemory = l.engine.Store.(*memstore.Store)
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

// problems is Check of package operate.
func (l *Limiter) problems(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	var found []error
	for _, err := range append(errorsOf(core.Check(ctx, l.engine.Store)), l.checkMemory()) {
		var d *core.Diagnosis
		if err != nil && !(errors.As(err, &d) && l.lines.Silent(d.Code)) {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// errorsOf returns the errors that errors.Join has joined.
func errorsOf(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// checkMemory returns an error if quotas are in memory, and the program says that it has
// several instances.
func (l *Limiter) checkMemory() error {
	if !l.engine.InMemory || l.options.Instances <= 1 {
		return nil
	}
	return &core.Diagnosis{Code: notice.SeveralMemories, Err: fmt.Errorf("limit: the quotas are in memory, and limit.Options.Instances is %d: "+
		"each instance admits the full limit; share the quotas with package redisstore, or leave out Instances", l.options.Instances)}
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
		l.lookAtStore()
	}
}

func (l *Limiter) lookAtStore() {
	if l.engine.InMemory {
		l.logProblems(l.checkMemory())
		return
	}
	go func() {
		defer func() { _ = recover() }() // a store's: a panic in this goroutine would end the program
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		l.logProblems(core.Check(ctx, l.engine.Store))
	}()
}

func (l *Limiter) logProblems(problems error) {
	for _, err := range errorsOf(problems) {
		var d *core.Diagnosis
		if errors.As(err, &d) && d.Code != notice.Unreachable { // which the lines of the guard say
			notice.Write(&l.lines, d.Code, "limit: a check has found a problem", 0, "error", d.Err)
		}
	}
}
