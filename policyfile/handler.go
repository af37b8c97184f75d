package policyfile

import (
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
// none matches. A path such as "//login" counts as "/login". All routes of a policy
// share its quotas.
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
	targets map[string]target // by pattern
}

type target struct {
	policy http.Handler
	values []string // path values that its rules need
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
	t = &table{mux: s.mux, targets: make(map[string]target)}
	for i := range s.policies {
		policy := &s.policies[i]
		if len(policy.routes) == 0 {
			continue
		}
		limited := s.bound[policy.name].Handler(h.next)
		for _, r := range policy.routes {
			t.targets[r.pattern] = target{limited, r.values}
		}
	}
	return t, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := h.table.Load()
	found, pattern := t.mux.Handler(r)
	target, ok := t.targets[pattern]
	if !ok {
		h.next.ServeHTTP(w, r)
		return
	}
	if len(target.values) > 0 {
		_, clean := found.(matched)
		r = withValues(t.mux, r, pattern, target.values, clean)
	}
	target.policy.ServeHTTP(w, r)
}

// withValues returns the request with the path values of a pattern, which a router
// behind does not see.
func withValues(mux *http.ServeMux, r *http.Request, pattern string, values []string, clean bool) *http.Request {
	u := *r.URL
	if !clean {
		u = url.URL{Path: cleanPath(u.Path)}
	}
	probe := &http.Request{Method: r.Method, Host: r.Host, URL: &u, Header: http.Header{}}
	mux.ServeHTTP(discard{}, probe)
	with := r.WithContext(r.Context()) // a copy
	with.Pattern = pattern
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

// discard is a response that is not sent.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return io.Discard.Write(b) }
func (discard) WriteHeader(int)             {}
