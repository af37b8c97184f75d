// Package limit limits the rate of requests by rules that are decided together:
// either every rule admits a request, or none is charged.
//
// Rules are declared on a route:
//
//	limiter := limit.New(nil, nil)
//	mux.Handle("POST /update", limiter.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000)))(update))
//
// or for a whole application, whatever its router:
//
//	policy, err := limiter.Policy(limit.Named("all", limit.PerIP(time.Minute, 100)))
//	…
//	http.ListenAndServe(addr, policy.Middleware(app))
//
// Packages ginlimit and echolimit do the same on Gin and Echo, and package
// redisstore shares the quotas between processes. A [Policy] is a rule set bound to
// a limiter. It resolves the keys of a request to charges, the store decides all of
// them at once, and the [Decision] becomes headers and either the next handler or a
// 429. Outside HTTP, a policy decides by [Policy.Take], which refuses, or
// [Policy.Wait], which waits.
//
// A rule counts by an exact sliding window unless it names another algorithm.
// [Concurrency] limits requests in flight, and package throttle limits bandwidth.
//
// The package does not authenticate: a key is only as trustworthy as its source.
package limit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/refusals"
)

// A Limiter keeps the quotas of policies in one store. Make it with [New], once
// for a program. It is safe for concurrent use.
type Limiter struct {
	engine    engine.Engine
	options   Options
	lines     notice.Log
	notices   notices
	made      atomic.Uint64               // routes, so far
	observers atomic.Pointer[[]*observer] // nil if nothing observes: see Observe

	mu      sync.Mutex
	named   map[string]*Policy       // that were declared
	changes map[string]RuleSet       // by Change
	routes  map[string][]policyRoute // by the name in the store
}

// Options configures a [Limiter]. The zero Options is ready to use.
type Options struct {
	// Caller says who sends a request: its user, its plan and its class. A rule by user is
	// an error at declaration if neither Caller.User nor that of the adapter is set.
	Caller Caller[*http.Request]

	// Override returns the limit of one key of a rule. It replaces the limit of the plan
	// and that of the rule; 0 means no override. The policy and the rule are named as in
	// a [Decision], and the key is what operate.Key returns. Each rule of each decision
	// calls Override, outside HTTP too, so it must answer from memory. Package overrides
	// shares overrides between instances.
	Override func(policy, rule, key string) int64

	// Classes lists the classes, from the highest to the lowest: at most 16, and
	// "default" must be one of them. Nil means critical, default and background.
	Classes []string

	// Proxies says which forwarding headers to believe for [ByIP]. The zero
	// value believes none.
	Proxies Proxies

	// Instances is how many processes share the store; 0 means 1. While the
	// store is unavailable, each process admits at most its share of a limit,
	// rounded up. Package guard has more options. In memory, each process has
	// quotas of its own: a number above 1 is logged as a mistake, and 1 tells
	// [Limiter.Check] that no other instance runs.
	Instances int

	// MaxKeys is how many partly used keys this process tracks, over all rules;
	// 0 means [memstore.DefaultMaxKeys]. Set it above the number of clients you
	// expect in the longest window. Beyond it, new clients share an overflow
	// quota, on Redis too, and may be refused early: their decisions have
	// [core.ModeOverflow].
	MaxKeys int

	// Headers says which headers tell clients their quotas. The zero value means
	// [Draft11].
	Headers Headers

	// Jitter adds a random time, up to Jitter, to the Retry-After of refused
	// clients, so that clients refused together do not return together. At most
	// 24 hours. [Decision].RetryAfter stays exact. Rules of a [Queue] need no
	// jitter: they give each client its own time.
	Jitter time.Duration

	// Exempt reports whether a request passes without being charged: a health check, or
	// a request from your own office. Its response has no quota headers, and its
	// decision has [core.ModeExempt]. Bar is not called for it, so that no ban locks out the
	// clients that you exempt. Nil exempts no request.
	//
	// Exempt and Bar are for HTTP requests and RPC calls: handlers, middleware and
	// adapters call them; [Policy.Take], [Policy.Wait], [Policy.Reserve] and
	// [Policy.Peek] do not. They are called once for each policy on a request, and once
	// for each part of a body that package throttle slows. So they must be fast, have no
	// side effects, and be safe for concurrent use. Package access has lists for both.
	Exempt func(Client) bool

	// Bar returns how much longer the client of a request is barred: 0 or less if it is
	// not barred, and [Never] if it is barred for good. A barred request is refused with
	// 403, charges no rule and does not call the store. Its decision has [core.ModeBarred],
	// and the time as RetryAfter, without Jitter. Nil bars no client.
	Bar func(Client) time.Duration

	// Refuse answers a refused request, after the headers are set. A function
	// that does not call WriteHeader answers with 429, or with 403 if the client
	// is barred. Nil means that status with a problem details document (RFC 9457).
	// Adapters have a Refuse of their own, in the form of their framework.
	Refuse func(http.ResponseWriter, *http.Request, Decision)

	// OnRefusal says what happens to a request that a rule refuses, if neither the rule
	// nor its set says so. The zero value means an answer with 429, which Refuse can
	// write.
	OnRefusal Refusal

	// Functions are those that rules in tags, and in texts that [Limiter.Parse] reads,
	// can name.
	Functions Functions

	// Waiters is how many requests may wait at once, over all rules: see
	// [Refusal].Wait. 0 means 10,000. Further requests are refused at once.
	Waiters int

	// Fail answers a request that could not be decided. The error wraps
	// [ErrUndecided]. A function that does not call WriteHeader answers with 503.
	// Nil means 503 with a problem details document that does not name the cause.
	Fail func(http.ResponseWriter, *http.Request, error)

	// Observe is called once for each decision, before the request goes on. It must
	// not block. The request is nil outside HTTP, for [Policy.Take], [Policy.Wait]
	// and [Policy.Reserve]; Peek, and Decide of an adapter, are not observed. A non-nil
	// error says why the request could not be decided; the decision is then the
	// zero Decision. Observe is called again, with decision and error, at the end of
	// an admitted request that could not be settled or that lost a lease: see
	// [ErrLeaseLost].
	Observe func(*http.Request, Decision, error)

	// Log receives warnings for operators: outages of the store, requests that
	// could not be decided or settled, lost leases, more keys than MaxKeys,
	// declarations that probably mean something else, and what [Limiter.Check]
	// finds after the first decision. Each has a stable code and is logged at most
	// once a minute, or once in all for declarations and Check. The lines
	// contain no request data beyond the error text. Nil means [slog.Default];
	// slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger

	// Silence lists codes of lines that are not written to Log, and of problems that
	// [Limiter.Check] does not return, such as "LIMIT-112". docs/diagnostics.md
	// explains each. An unknown code is an error.
	Silence []string
}

const (
	maxJitter           = 24 * time.Hour
	defaultTotalWaiters = 10_000

	// How often in a second callers that wait for leases of other processes ask the
	// store: those of this limiter, and those of all instances.
	mostPolls, allPolls = 100, 10_000
)

// ErrUndecided is wrapped by the errors of requests that could not be decided:
// the store failed, or a Cost was negative.
var ErrUndecided = engine.ErrUndecided

// New returns a Limiter that keeps its quotas in store. A nil store means a
// memory store, which only this process uses. Nil options mean the zero Options.
//
// A store other than memory can fail, and costs a round trip. New puts a guard
// and a memory of refusals around it, unless they are there already: see packages
// guard and refusals. A store that has a guard inside says so by a method Guarded() bool,
// as one of package prefetch does, and is used as it is.
//
// New panics if the options are invalid.
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
	l.engine.Store = decorated(store, &l.options)
	_, l.engine.InMemory = l.engine.Store.(*memstore.Store)
	l.notices.look.Store(lookAtStore)
	return l
}

// validate returns an error that joins one for each invalid option.
func (o *Options) validate() error {
	errs := []error{o.Proxies.validate(), o.OnRefusal.validate(), validClasses(o.Classes)}
	if o.Waiters < 0 {
		errs = append(errs, fmt.Errorf("limit: Waiters %d: write how many requests may wait at once, or 0 for %d", o.Waiters, defaultTotalWaiters))
	}
	if o.Instances < 0 {
		errs = append(errs, fmt.Errorf("limit: Instances %d: write how many processes share the store, or 0 for one", o.Instances))
	}
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("limit: MaxKeys %d: write how many keys to track, or 0 for %d", o.MaxKeys, memstore.DefaultMaxKeys))
	}
	if o.Jitter < 0 || o.Jitter > maxJitter {
		errs = append(errs, fmt.Errorf("limit: Jitter %v: write 0 to %v", o.Jitter, maxJitter))
	}
	if o.Headers&NoHeaders != 0 && o.Headers != NoHeaders || o.Headers > NoHeaders || o.Headers&XRateLimit != 0 && o.Headers&XRateLimitUnix != 0 {
		errs = append(errs, errors.New("limit: Headers: NoHeaders cannot be combined, and XRateLimit and XRateLimitUnix exclude each other"))
	}
	for _, code := range o.Silence {
		if !slices.Contains(notice.Codes, code) {
			errs = append(errs, fmt.Errorf("limit: Silence %q: write one of %s", code, strings.Join(notice.Codes, ", ")))
		}
	}
	return errors.Join(errs...)
}

// decorated returns the store with the decorators that it needs and does not
// have: a guard for outages, and a memory of refusals.
func decorated(store core.Store, o *Options) core.Store {
	if v := reflect.ValueOf(store); v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("limit: the store is a nil %T: write nil for a memory store, or make the store with its New", store))
	}
	if s, ok := store.(interface{ Guarded() bool }); ok && s.Guarded() {
		if o.Instances != 0 || o.MaxKeys != 0 {
			panic("limit: Instances and MaxKeys have no effect on your own guard: set them in guard.Options")
		}
		return store
	}
	switch store.(type) {
	case nil:
		return memstore.New(&memstore.Options{MaxKeys: o.MaxKeys})
	case *memstore.Store:
		if o.MaxKeys != 0 {
			panic("limit: MaxKeys has no effect on your own memory store: set memstore.Options.MaxKeys")
		}
		return store
	case *guard.Store, *refusals.Store:
		if o.Instances != 0 || o.MaxKeys != 0 {
			panic("limit: Instances and MaxKeys have no effect on your own guard: set them in guard.Options")
		}
	default:
		log := (&notice.Log{To: o.Log, Silenced: o.Silence}).Logger()
		store = guard.New(store, &guard.Options{Instances: o.Instances, MaxKeys: o.MaxKeys, Log: log})
	}
	if _, ok := store.(*refusals.Store); ok {
		return store
	}
	return refusals.New(store)
}

// Policy binds rules to the limiter. The error joins one [*RuleError] for each
// thing wrong with the rules.
//
// Bind a set once, where the program starts, and keep the policy. Sets of the
// same name share their quotas, and must have the same rules: see [Named].
func (l *Limiter) Policy(rules RuleSet) (*Policy, error) { return l.policy(rules, nil) }

// Limit returns net/http middleware for one route:
//
//	mux.Handle("POST /update", limiter.Limit(rules)(update))
//
// It is [Policy.Handler] of the policy of rules, and panics if the rules are
// invalid, as [http.ServeMux.Handle] does for an invalid pattern.
func (l *Limiter) Limit(rules RuleSet) func(http.Handler) http.Handler {
	p, err := l.policy(rules, &door.Place{})
	if err != nil {
		panic(err)
	}
	return p.Handler
}

// ClientIP returns the address of the client that sent r, as [ByIP] resolves it:
// the peer, or the client that trusted proxies name in their headers. IPv4-mapped
// addresses are IPv4, and the zone is removed. It is the zero Addr if the peer has
// no address, as on a Unix socket.
func (l *Limiter) ClientIP(r *http.Request) netip.Addr {
	return l.options.Proxies.ClientIP(r)
}
