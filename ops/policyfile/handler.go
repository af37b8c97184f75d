package policyfile

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/access"
)

// A state is what is in force. It does not change.
type state struct {
	version
	since          time.Time
	exempt, barred *access.List
	targets        map[string]*target // by pattern
	served         atomic.Bool        // whether a handler has had a request
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
	s.exempt, _ = build(v.exempt) // they are valid
	s.barred, _ = build(v.barred)
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
// none matches. A path such as "//login" counts as "/login". If a path has an encoded
// slash, and matches different policies with and without decoding it, both decide. All
// routes of a policy share its quotas.
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
	return &handler{p, next}
}

type handler struct {
	policies *Policies
	next     http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, next := h.policies.state.Load(), h.next
	once(&s.served)
	first := s.match(lookedUp(r))
	if r.URL.RawPath != "" {
		// Routers behind may read an encoded slash as one of a value, as a ServeMux does,
		// or as one between values. What is not limited by one reading is by the other.
		decoded := *r.URL
		decoded.RawPath = ""
		other := lookedUp(r).WithContext(r.Context())
		other.URL = &decoded
		if second := s.match(other); second.pattern != first.pattern {
			next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { second.serve(s, w, r, h.next) })
		}
	}
	first.serve(s, w, r, next)
}

// serve serves a request by the policy of a match, if there is one.
func (m *match) serve(s *state, w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.target == nil {
		next.ServeHTTP(w, r)
		return
	}
	_ = m.policy.Serve(w, m.withValues(s.mux, r, m.values), limit.Request{}, next) // which gives nothing that could be wrong
}

// lookedUp returns r or, if its host has capitals or a dot at its end, a copy with the
// host as patterns write it: a ServeMux takes those for other hosts.
func lookedUp(r *http.Request) *http.Request {
	host := strings.TrimSuffix(strings.Replace(strings.ToLower(r.Host), ".:", ":", 1), ".")
	if host == r.Host {
		return r
	}
	with := r.WithContext(r.Context()) // a copy
	with.Host = host
	return with
}

// A match is what a ServeMux has for a request.
type match struct {
	*target
	pattern string        // "" if none matches
	of      *http.Request // what was looked up
	clean   bool          // whether its path is as a ServeMux wants it
}

func (s *state) match(r *http.Request) match {
	m := matchOf(s.mux, r)
	if m.target = s.targets[m.pattern]; m.target != nil {
		once(m.met)
	}
	return m
}

// once sets a flag. A flag that is set is not written, since all processors read it.
func once(flag *atomic.Bool) {
	if !flag.Load() {
		flag.Store(true)
	}
}

// matchOf returns a match without its target.
func matchOf(mux *http.ServeMux, r *http.Request) match {
	found, pattern := mux.Handler(r)
	_, clean := found.(matched)
	return match{pattern: pattern, of: r, clean: clean}
}

// withValues returns r with the path values that the rules need, which a router behind
// does not see.
func (m *match) withValues(mux *http.ServeMux, r *http.Request, values []string) *http.Request {
	if len(values) == 0 {
		return r
	}
	u := *m.of.URL
	if !m.clean {
		u = url.URL{Path: cleanPath(u.Path)}
	}
	probe := &http.Request{Method: r.Method, Host: m.of.Host, URL: &u}
	if found := matchOf(mux, probe); found.clean {
		mux.ServeHTTP(nil, probe) // by matched, which writes nothing
	}
	with := r.WithContext(r.Context()) // a copy
	with.Pattern = m.pattern
	for _, name := range values {
		with.SetPathValue(name, probe.PathValue(name))
	}
	return with
}

// cleanPath is what a ServeMux does to a path.
func cleanPath(p string) string {
	cleaned := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}
