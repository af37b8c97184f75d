package policyfile

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/excerpt"
	"github.com/routelimit/limit/internal/grammar"
)

// Explain returns in words what applies to a request, and why: the entry that exempts or
// bars it, the policy and the route that matches it, and for each rule the key, the limit
// of this caller, what is reserved for higher classes, what a refused request meets, or
// that the rule exempts the request. It charges nothing.
//
// The options are those of the limiter. Explain uses User, Plan, Class, Classes, Override,
// Proxies and OnRefusal. It panics if they are invalid, as [limit.New] does. Nil
// means the zero Options.
func (f *File) Explain(r *http.Request, options *limit.Options) string {
	if options == nil {
		options = new(limit.Options)
	}
	e := explanation{File: f, options: limit.Options{Caller: limit.Caller[*http.Request]{User: none(options.Caller.User), Plan: none(options.Caller.Plan), Class: none(options.Caller.Class)},
		Classes: options.Classes, Override: options.Override, Proxies: options.Proxies, OnRefusal: options.OnRefusal, Log: slog.New(slog.DiscardHandler)}}
	if e.options.Classes == nil {
		e.options.Classes = grammar.DefaultClasses
	}
	e.client = limit.Client{Request: r, Limiter: limit.New(nil, &e.options)}
	e.caller(r)
	for _, text := range f.exemptProxies(e.options.Proxies) {
		e.line("exempt %s: requests that it sends without the address of a client are exempt", text)
	}
	if entry, ok := e.entry(f.exempt); ok {
		e.line("exempt by %s: no rule is charged, whatever the policy", entry)
		return e.String()
	}
	e.line("exempt: no entry matches")
	if entry, ok := e.entry(f.barred); ok {
		if matchOf(e.mux, lookedUp(r)).pattern == "" {
			e.line("barred by %s, but no route of the file matches: answered with 403 only if code attaches a policy there", entry)
		} else {
			e.line("barred by %s: answered with 403", entry)
		}
		return e.String()
	}
	e.line("barred: no entry matches")
	e.policy(r)
	return e.String()
}

// none returns f, or a function that returns "".
func none(f func(*http.Request) string) func(*http.Request) string {
	if f == nil {
		return func(*http.Request) string { return "" }
	}
	return f
}

type explanation struct {
	*File
	strings.Builder
	options limit.Options
	client  limit.Client

	// What the request has.
	address           netip.Addr
	user, plan, class string
}

func (e *explanation) line(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		e.WriteString(excerpt.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
}

// caller describes the request.
func (e *explanation) caller(r *http.Request) {
	e.address, e.user = e.client.IP(), e.client.User()
	e.plan, e.class = e.options.Caller.Plan(r), e.options.Caller.Class(r)
	peer := new(limit.Proxies).ClientIP(r)
	text := fmt.Sprintf("%s %s from %s", r.Method, r.URL.RequestURI(), e.address)
	if e.address != peer {
		text += fmt.Sprintf(" through the proxy %s", peer)
	}
	if e.user == "" {
		text += ", no user"
	} else {
		text += ", user " + e.user
	}
	if e.plan != "" {
		text += ", plan " + e.plan
	}
	if e.class != "" {
		text += ", class " + e.class
		if !slices.Contains(e.options.Classes, e.class) {
			text += ", which is none of " + strings.Join(e.options.Classes, ", ") + " and counts as default"
		}
	}
	e.line("%s", text)
	for _, name := range []string{"X-Forwarded-For", "Forwarded", e.options.Proxies.Header} {
		if e.address == peer && r.Header.Get(name) != "" {
			e.line("%s does not name the client: %s is no trusted proxy, or the header no address", name, peer)
			break
		}
	}
	if !slices.Contains(e.options.Classes, e.class) {
		e.class = grammar.DefaultClass
	}
}

// entry returns the first entry that matches a request, and its place.
func (e *explanation) entry(entries []entry) (string, bool) {
	for i, entry := range entries {
		if l, err := build(entries[i : i+1]); err != nil || !l.Matches(e.client) {
			continue
		}
		text := entry.String()
		if entry.list != "" {
			text += ", in list " + entry.list
		}
		return fmt.Sprintf("%s (%s)", text, e.source.at(entry.node, 0)), true
	}
	return "", false
}

// policy explains the policy of a request.
func (e *explanation) policy(r *http.Request) {
	m := matchOf(e.mux, lookedUp(r))
	for i := range e.policies {
		policy := &e.policies[i]
		for _, route := range policy.routes {
			if route.pattern == m.pattern {
				e.line("policy %s, by its route %s (%s)", policy.name, route.pattern, e.source.at(route.node, 0))
				e.rules(policy, m.withValues(e.mux, r, route.values))
				return
			}
		}
	}
	e.line("policy: none of the routes of the file matches")
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		if other.Method = method; method != r.Method {
			if _, pattern := e.mux.Handler(other); pattern != "" {
				e.line("  %s of the same path matches %s", method, pattern)
			}
		}
	}
	for i := range e.policies {
		if policy := &e.policies[i]; len(policy.routes) == 0 {
			e.line("  policy %s has no routes: the program may attach it by its name (%s)", policy.name, e.source.error(policy.at, "").place())
		}
	}
}
