package policyfile

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/patterns"
)

// A state is what is in force. It does not change.
type state struct {
	version
	since   time.Time
	targets map[string]*target // by pattern
	served  atomic.Bool        // whether a handler has had a request
}

// A target is what a route leads to.
type target struct {
	policy *limit.Policy
	values []string     // path values that its rules need
	met    *atomic.Bool // whether a request has matched, also of an earlier state
}

// prepare returns the state of a version, without the policies of its routes.
func prepare(v version, before *state) *state {
	s := &state{version: v, since: time.Now(), targets: make(map[string]*target)}
	for i := range v.policies {
		for _, r := range v.policies[i].routes {
			t := &target{values: r.values, met: new(atomic.Bool)}
			if before != nil && before.targets[r.pattern] != nil {
				t.met = before.targets[r.pattern].met
			}
			s.targets[r.pattern] = t
		}
	}
	return s
}

// Handler returns a handler that limits the routes of the policies, before next: a
// ServeMux, any other router, or a whole server. A request is decided by the policy of
// the pattern that matches it best, as a ServeMux chooses among patterns, and passes if
// none matches. Routers read a path with an encoded slash, or such as "//login" or
// "/x/../login", in different ways. If it matches several patterns then, the policies of
// all of them decide. All routes of a policy share its quotas.
//
// Call it where the program starts, after [Policies.Follow]; it panics before that. The
// handler follows the file.
func (p *Policies) Handler(next http.Handler) http.Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limiter == nil {
		panic("policyfile: Handler was called before Follow, which says what limiter decides")
	}
	p.handles.Store(true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.state.Load().handle(w, r, next) })
}

// handle serves a request by the policies of its matches.
func (s *state) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	once(&s.served)
	var one [1]patterns.Match
	matches := patterns.Append(one[:0], s.mux, r)
	for _, m := range matches {
		once(s.targets[m.Pattern].met)
	}
	switch len(matches) {
	case 0:
		next.ServeHTTP(w, r)
	case 1:
		s.serve(w, r, &matches[0], next)
	default:
		s.serveAll(w, r, slices.Clone(matches), next) // a clone, so that one stays on the stack
	}
}

// serve serves a request by the policy of a match.
func (s *state) serve(w http.ResponseWriter, r *http.Request, m *patterns.Match, next http.Handler) {
	t := s.targets[m.Pattern]
	_ = t.policy.Serve(w, withValues(s.mux, r, m, t.values), limit.Request{}, next) // which gives nothing that could be wrong
}

// serveAll serves a request by the policies of its matches, one inside the other.
func (s *state) serveAll(w http.ResponseWriter, r *http.Request, matches []patterns.Match, next http.Handler) {
	if len(matches) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	s.serve(w, r, &matches[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveAll(w, r, matches[1:], next)
	}))
}

// once sets a flag. A flag that is set is not written, since all processors read it.
func once(flag *atomic.Bool) {
	if !flag.Load() {
		flag.Store(true)
	}
}

// withValues returns r with the path values that the rules need, which a router behind
// does not see.
func withValues(mux *http.ServeMux, r *http.Request, m *patterns.Match, names []string) *http.Request {
	if len(names) == 0 {
		return r
	}
	value := m.Values(mux)
	with := r.WithContext(r.Context()) // a copy
	with.Pattern = m.Pattern
	for _, name := range names {
		with.SetPathValue(name, value(name))
	}
	return with
}
