package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// Store keeps the state of rules: package memstore in this process, package
// redisstore on Redis.
type Store = core.Store

// A Limiter decides requests by rules, with the quotas kept in one store. It
// is safe for concurrent use. Make it with [New], once for a program.
type Limiter struct {
	store   Store
	options Options
	lines   lines
	notices notices

	mu    sync.RWMutex
	named map[string]*Policy
}

// Options configures a [Limiter]. The zero Options is ready to use.
type Options struct {
	// User returns the user of a request, for [ByUser]: from a context value,
	// a verified token or a session. "" means that there is none. Rules by
	// user are refused at declaration while it is nil.
	User func(*http.Request) string

	// Proxies says which forwarding headers to believe for [ByIP]. The zero
	// value believes none.
	Proxies Proxies

	// Instances is how many processes share the store; 0 means 1. While it is
	// out of reach, each admits at most that part of a limit, rounded up. See
	// package guard, whose other options are for a guard of your own.
	Instances int

	// MaxKeys is how many keys this process remembers, of all rules together;
	// 0 means 131,072, which take about 60 MB. A key counts for as long as its
	// quota is not whole: for a window after its last request. Beyond it new
	// keys share quotas, on Redis too, and newcomers may be refused early
	// ([ModeOverflow]): so write more than the clients that come in the longest
	// window, and watch the modes in Observe.
	MaxKeys int

	// Headers says which headers tell clients of their quotas. The zero value
	// means [Draft11].
	Headers Headers

	// Jitter is added at random, up to the whole of it, to what refused clients are
	// told to wait in Retry-After, so that those who were refused together do not come
	// back together; at most 24 h. [Decision].RetryAfter stays exact. The rules of a
	// [Queue] tell each client a time of its own, and need none.
	Jitter time.Duration

	// Refuse answers a refused request, after the headers are set. Nil means
	// 429 Too Many Requests with a problem details body.
	Refuse func(http.ResponseWriter, *http.Request, Decision)

	// Observe is called once for each decision, before the request goes on. It
	// must not block. A non-nil error says why the request could not be decided;
	// the decision is then the zero one. It is called again at the end of an
	// admitted request, with both, that could not be settled, and once for one
	// that has lost what it held: see [ErrLeaseLost]. Of a [Throttler], which decides many
	// times for a body, it is called for the errors alone.
	Observe func(*http.Request, Decision, error)

	// Log gets what somebody should look at: the times in which rules are decided
	// without the store, and why; requests that could not be decided or settled, or
	// have lost what they held; more keys than MaxKeys; rule sets that charge one quota twice; a
	// Limiter that is made while a request is served. Of each kind at most a line a
	// minute, but for the first, see package guard, and the last; with no more of a request than is in an error. Nil means [slog.Default];
	// slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger
}

const maxJitter = 24 * time.Hour

// New returns a Limiter that keeps its quotas in store. A nil store means a
// memory store, which knows only this process; a nil options means the zero
// Options. Other stores can fail, and cost a call: New puts a guard around them, and
// a memory of what they refused, as far as these are not there already. See packages
// guard and refusals. New panics if the options contradict each other.
func New(store Store, options *Options) *Limiter {
	l := &Limiter{named: make(map[string]*Policy)}
	if options != nil {
		l.options = *options
	}
	l.store = surrounded(store, &l.options)
	if err := l.options.Proxies.validate(); err != nil {
		panic(err)
	}
	if l.options.Jitter < 0 || l.options.Jitter > maxJitter {
		panic(fmt.Sprintf("limit: Jitter %v: write one of 0 to %v", l.options.Jitter, maxJitter))
	}
	l.noticeHandler()
	return l
}

// ErrUndecided is wrapped by the errors of requests that could not be decided:
// the store failed, or a Cost was negative. They are answered with 503 Service
// Unavailable.
var ErrUndecided = errors.New("limit: could not decide")

// Policy binds rules to the limiter, for adapters. It returns an error that
// joins one [*RuleError] for each thing wrong with the rules.
func (l *Limiter) Policy(rules RuleSet) (*Policy, error) {
	return l.policy(rules, l.options.User != nil)
}

// PolicyWithUser is [Limiter.Policy] for an adapter that sets [Call].User.
func (l *Limiter) PolicyWithUser(rules RuleSet) (*Policy, error) {
	return l.policy(rules, true)
}

func (l *Limiter) policy(rules RuleSet, hasUser bool) (*Policy, error) {
	if err := rules.check(hasUser); err != nil {
		return nil, err
	}
	return l.bind(rules)
}

// check is Validate for a limiter that knows users, or does not.
func (s RuleSet) check(hasUser bool) error {
	errs := []error{s.Validate()}
	for _, r := range s.rules {
		if r.Key.uses(byUser) && !hasUser {
			errs = append(errs, &RuleError{Rule: r.String(),
				Problem: "who is the user? write a function in limit.Options.User"})
		}
	}
	return errors.Join(errs...)
}

// bind returns the policy of rules in which nothing is wrong.
func (l *Limiter) bind(rules RuleSet) (*Policy, error) {
	if rules.name == "" {
		return newPolicy(l, rules), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := rules.bytes + rules.name
	p := l.named[name]
	switch {
	case p == nil:
		p = newPolicy(l, rules)
		l.named[name] = p
	case !slices.EqualFunc(p.set.rules, rules.rules, Rule.equal):
		return nil, &RuleError{Problem: fmt.Sprintf("policy %q has other rules elsewhere (%s, here %s): "+
			"declare the set once and use it twice, or give one of them another name", rules.name, p.set, rules)}
	}
	return p, nil
}

// MustPolicy is [Limiter.Policy], but panics instead of returning an error, as
// http.ServeMux does for a bad pattern.
func (l *Limiter) MustPolicy(rules RuleSet) *Policy {
	p, err := l.Policy(rules)
	if err != nil {
		panic(err)
	}
	return p
}

// Take decides by rules outside HTTP: in a job, a consumer, a gRPC
// interceptor. The rules are a set made by [Named], and keys has a value for
// each key that they name. It costs 1, and so no rule may have a Cost, which
// asks an HTTP request: see [Limiter.TakeN].
//
// A refusal is a Decision, not an error; so is a turn in a [Queue] that would
// come after the deadline of ctx. Behind a Queue, call [Decision.Wait]; after
// [Concurrency], call [Decision.Release]. An error says what is wrong with the
// rules or the keys, or wraps [ErrUndecided].
func (l *Limiter) Take(ctx context.Context, rules RuleSet, keys Keys) (Decision, error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, err
	}
	if err := p.costless(); err != nil {
		return Decision{}, err
	}
	return p.decide(ctx, ctx, p.named, keysSource{keys, l.options.Proxies.IPv6Prefix, 1})
}

// bound returns the policy of a named set, for which keys has all values.
func (l *Limiter) bound(rules RuleSet, keys Keys) (*Policy, error) {
	l.mu.RLock()
	p := l.named[rules.name]
	l.mu.RUnlock()
	if p == nil || !p.set.same(rules) {
		if rules.name == "" {
			return nil, &RuleError{Problem: "outside HTTP a policy needs a name: write limit.Named(\"…\", rules…)"}
		}
		var err error
		if p, err = l.policy(rules, true); err != nil {
			return nil, err
		}
	}
	return p, p.missing(keys)
}

// Handler returns a handler that calls next with the requests that rules
// admit, and answers the others. It panics if the rules are invalid. What a
// request holds under [Concurrency] is released when next returns or panics.
// Behind a [Queue] it calls next when the turn of the request comes, or never if
// its client goes away before.
//
// Unless the rules are [Named], each pattern of the ServeMux that next is
// registered on, or that next is, is a policy of its own.
//
// Around a ServeMux, which has not parsed the path yet, [ByPathValue] finds no
// value: put such rules on its handlers.
func (l *Limiter) Handler(rules RuleSet, next http.Handler) http.Handler {
	p := l.MustPolicy(rules)
	patternOf := patterns(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := p.Decide(Call{Request: r, Pattern: patternOf(r)})
		defer d.Release()
		SetHeaders(w.Header(), d)
		switch {
		case err != nil:
			(&UndecidedError{Err: err}).ServeHTTP(w, r)
		case d.Allowed:
			if d.Wait(r.Context()) != nil {
				w.WriteHeader(statusGone)
				return
			}
			r = d.Request(r)
			if p.settles {
				d.serve(next, w, r)
				return
			}
			next.ServeHTTP(w, r)
		case l.options.Refuse != nil:
			l.options.Refuse(w, r, d)
		default:
			(&RefusedError{Decision: d}).ServeHTTP(w, r)
		}
	})
}

// patterns returns the function that names the routes of requests to next: that
// which it is registered on or, if it is a ServeMux, those that it has.
func patterns(next http.Handler) func(*http.Request) string {
	mux, _ := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	})
	return func(r *http.Request) string {
		if r.Pattern == "" && mux != nil {
			_, pattern := mux.Handler(r)
			return pattern
		}
		return r.Pattern
	}
}
