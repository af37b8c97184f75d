package policyfile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
)

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
	h := &handler{next: next}
	t, err := h.tableOf(p.state.Load())
	if err != nil {
		panic(err)
	}
	h.table.Store(t)
	p.handlers = append(p.handlers, h)
	return h
}

type handler struct {
	next  http.Handler
	table atomic.Pointer[table]
}

// A table leads from patterns to policies. It does not change.
type table struct {
	mux     *http.ServeMux
	served  *atomic.Bool      // whether there was a request
	targets map[string]target // by pattern
}

type target struct {
	policy http.Handler // before the next handler
	first  http.Handler // before another policy: see handler.then
	values []string     // path values that its rules need
	met    *atomic.Bool // whether a request has matched
}

func (p *Policies) tables(s *state) (tables []*table, err error) {
	for _, h := range p.handlers {
		t, err := h.tableOf(s)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (h *handler) tableOf(s *state) (t *table, err error) {
	defer func() {
		if problem := recover(); problem != nil { // of Policy.Handler
			err = fmt.Errorf("%v", problem)
		}
	}()
	t = &table{mux: s.mux, served: &s.served, targets: make(map[string]target)}
	for i := range s.policies {
		policy := &s.policies[i]
		if len(policy.routes) == 0 {
			continue
		}
		bound := s.bound[policy.name]
		limited, first := bound.Handler(h.next), bound.Handler(http.HandlerFunc(then))
		for _, r := range policy.routes {
			t.targets[r.pattern] = target{limited, first, r.values, s.met[r.pattern]}
		}
	}
	return t, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := h.table.Load()
	once(t.served)
	m, ok := t.match(lookedUp(r))
	if r.URL.RawPath != "" {
		// Routers behind may read an encoded slash as one of a value, as a ServeMux does,
		// or as one between values. What is not limited by one reading is by the other.
		decoded := *r.URL
		decoded.RawPath = ""
		other := lookedUp(r).WithContext(r.Context())
		other.URL = &decoded
		switch second, also := t.match(other); {
		case !also || ok && second.pattern == m.pattern:
		case !ok:
			m, ok = second, true
		default:
			next := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				second.policy.ServeHTTP(w, second.withValues(t.mux, r))
			}))
			r = r.WithContext(context.WithValue(r.Context(), thenKey{}, next))
			m.policy = m.first
		}
	}
	if !ok {
		h.next.ServeHTTP(w, r)
		return
	}
	m.policy.ServeHTTP(w, m.withValues(t.mux, r))
}

type thenKey struct{}

// then calls the second of two policies that decide a request.
func then(w http.ResponseWriter, r *http.Request) {
	r.Context().Value(thenKey{}).(http.Handler).ServeHTTP(w, r)
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

// A match is what a table has for a request.
type match struct {
	target
	pattern string
	of      *http.Request // what was looked up
	clean   bool          // whether its path is as a ServeMux wants it
}

func (t *table) match(r *http.Request) (m match, ok bool) {
	m = matchOf(t.mux, r)
	if m.target, ok = t.targets[m.pattern]; ok {
		once(m.met)
	}
	return m, ok
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
func (m *match) withValues(mux *http.ServeMux, r *http.Request) *http.Request {
	if len(m.values) == 0 {
		return r
	}
	u := *m.of.URL
	if !m.clean {
		u = url.URL{Path: cleanPath(u.Path)}
	}
	probe := &http.Request{Method: r.Method, Host: m.of.Host, URL: &u, Header: http.Header{}}
	mux.ServeHTTP(discard{}, probe)
	with := r.WithContext(r.Context()) // a copy
	with.Pattern = m.pattern
	for _, name := range m.values {
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

// discard is a response that is not sent.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return io.Discard.Write(b) }
func (discard) WriteHeader(int)             {}
