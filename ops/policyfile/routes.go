package policyfile

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/patterns"
)

// A route is a pattern of a policy.
type route struct {
	policy  string
	pattern string
	node    *yaml.Node
	values  []string // the path values that the rules need
}

// routes checks the patterns of all policies, and makes a ServeMux of them.
func (d *decoder) routes(f *File) {
	f.mux = http.NewServeMux()
	first := make(map[string]*route) // by pattern
	for i := range f.policies {
		p := &f.policies[i]
		joined, err := f.joined(p)
		d.misread(p.rules, err)
		values := pathValues(joined)
		for j := range p.routes {
			r := &p.routes[j]
			r.values = values
			if len(first) == maxRoutes {
				d.wrong(r.node, "more than %d routes: write patterns that match several, such as /api/", maxRoutes)
				return
			}
			if offset, problem := r.add(f.mux, first); problem != "" {
				d.wrongIn(r.node, offset, "route %s%s", quoted(r.pattern), problem)
			}
		}
	}
}

// add adds the pattern to a ServeMux, or returns what is wrong with it, and where. It notes the
// first route of each pattern.
func (r *route) add(mux *http.ServeMux, first map[string]*route) (offset int, problem string) {
	if offset, problem := unmatchable(r.pattern); problem != "" {
		return offset, ": " + problem
	}
	offset, problem = patterns.Register(mux, r.pattern, patterns.Of{Policy: r.policy, Valued: len(r.values) > 0})
	switch other := first[r.pattern]; {
	case other != nil && other.policy == r.policy:
		return 0, " stands twice in the policy: remove one of them"
	case other != nil:
		return 0, fmt.Sprintf(" is one of policy %q in line %d: a route has one policy: remove it here or there, or join the rules",
			other.policy, other.node.Line)
	case problem != "":
		return offset, ": " + problem
	}
	first[r.pattern] = r
	for _, value := range r.values {
		if !slices.Contains(wildcards(r.pattern), value) {
			return 0, fmt.Sprintf(" has no {%s}, by which a rule of the policy is keyed (path %s): add it, or key the rule by something else", value, value)
		}
	}
	return 0, ""
}

// pathValues returns the path values that rules are keyed by.
func pathValues(set limit.RuleSet) (names []string) {
	of := func(k limit.KeyResolver) {
		key, _ := grammar.ParseKey(k.String())
		for _, name := range key.Names(grammar.Path) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, r := range set.Rules() {
		of(r.Key)
		if distinct, ok := r.Algorithm.(limit.Distinct); ok {
			of(distinct.Values)
		}
	}
	return names
}

var wildcard = regexp.MustCompile(`\{([^{}.$]+)(?:\.\.\.)?\}`)

// wildcards returns the names of the path values of a pattern.
func wildcards(pattern string) (names []string) {
	for _, found := range wildcard.FindAllStringSubmatch(pattern, -1) {
		names = append(names, found[1])
	}
	return names
}

// methods are those that are registered, except ones that no service has, and some that
// caches and UPnP use. A route for another one is more likely a mistake: a pattern without
// a method matches it too.
var methods = strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS CONNECT TRACE QUERY PURGE BAN REFRESH " +
	"ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE " +
	"NOTIFY ORDERPATCH PROPFIND PROPPATCH REBIND REPORT SEARCH M-SEARCH SUBSCRIBE UNBIND UNCHECKOUT UNLINK UNLOCK UNSUBSCRIBE UPDATE UPDATEREDIRECTREF VERSION-CONTROL")

var (
	patternParts = regexp.MustCompile(`^(?:([^ \t]+)[ \t]+)?([^/]*)(.*)$`) // method, host and path
	hostPort     = regexp.MustCompile(`^([^:]*):\d*$`)
	validHost    = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
)

// foreign are the parts of paths that a ServeMux takes as literal text, although no
// client sends such a path: those of other routers, for example. The first group of an
// expression is the part, which the problem may name.
var foreign = []struct {
	path    *regexp.Regexp
	problem string
}{
	{regexp.MustCompile(`^(?:[^{?#]|\{[^}]*\})*([?#])`), "a route matches paths, without a query: write the path alone"},
	{regexp.MustCompile(`(%)(?:[^0-9A-Fa-f]|$|[0-9A-Fa-f](?:[^0-9A-Fa-f]|$))`), "%s begins no byte such as %%20: write %%25 for a percent sign"},
	{regexp.MustCompile(`(?i)/((?:\.|%2e){1,2})(?:/|$)`), "paths are matched without . and ..: remove them"},
	{regexp.MustCompile(`/()/`), "paths are matched without empty parts: remove them"},
	{regexp.MustCompile(`/[^/{ \t]*([ \t])[^/{]*(?:/|$)`), "a path has no blank: write %20 for a blank"},
	{regexp.MustCompile(`/([^/]*[\\^][^/]*)`), "%s is literal text, and no regular expression: write a whole part, or {name} for any"},
	{regexp.MustCompile(`/[^/{*]*(\*)[^/{]*(?:/|$)`), "%s is literal text, and no wildcard: write {name} for one part of the path, {name...} for the rest, or %%2A for a star"},
	{regexp.MustCompile(`/(:[^/]+)`), "%s is literal text, and no wildcard: write {name}, or %%3A for a colon"},
	{regexp.MustCompile(`/([<\[][^/<>\[\]]+[>\]])(?:/|$)`), "%s is literal text, and no wildcard: write {name}"},
	{regexp.MustCompile(`/[^/{}]*(\})[^/{]*(?:/|$)`), "%s without {: write {name}, or %%7D for a brace"},
}

// unmatchable returns why hardly any request can match a pattern, although a ServeMux
// takes it as it takes any literal text, and what to write instead. The problem is "" if
// there is none.
func unmatchable(pattern string) (offset int, problem string) {
	trimmed := strings.TrimRight(pattern, " \t")
	switch {
	case trimmed == "":
		return 0, "" // the ServeMux says it
	case strings.TrimLeft(pattern, " \t") != pattern:
		return 0, "a blank before the pattern is read as a part of it: remove it"
	case trimmed != pattern:
		return len(trimmed), "a blank behind the pattern is read as a part of it: remove it"
	}
	parts := patternParts.FindStringSubmatchIndex(pattern)
	if parts == nil {
		return 0, "" // the ServeMux says it
	}
	hostAt, pathAt := parts[4], parts[6]
	host, path := pattern[hostAt:pathAt], pattern[pathAt:]
	if parts[2] >= 0 {
		if problem := unknownMethod(pattern[:parts[3]]); problem != "" {
			return 0, problem
		}
	}
	switch {
	case path == "":
		return hostAt, "a path begins with a slash: begin the path with /"
	case strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//"):
		return hostAt, "a pattern has no scheme: write the host and the path"
	}
	if problem := unknownHost(host); problem != "" {
		return hostAt, problem
	}
	for _, f := range foreign {
		if found := f.path.FindStringSubmatchIndex(path); found != nil {
			if problem = f.problem; strings.Contains(problem, "%s") {
				problem = fmt.Sprintf(problem, quoted(path[found[2]:found[3]]))
			}
			return pathAt + found[2], problem
		}
	}
	return 0, ""
}

func unknownMethod(method string) string {
	upper := strings.ToUpper(method)
	switch {
	case upper == "ANY" || upper == "ALL" || upper == "*":
		return "a pattern for all methods has none: leave the method out"
	case !slices.Contains(methods, upper):
		return quoted(method) + " is no method of requests: write one method such as GET, or the path alone for all methods"
	case method != upper:
		return "no request has the method " + quoted(method) + ": write " + upper
	}
	return ""
}

func unknownHost(host string) string {
	name := strings.TrimSuffix(hostPort.ReplaceAllString(strings.ToLower(host), "$1"), ".")
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case host == "" || err == nil:
		return ""
	case name != host:
		return "a host has no capitals, no port, and no dot at its end here: write " + quoted(name)
	case !validHost.MatchString(host):
		return quoted(host) + " is no host: write a whole host such as api.example.com, in ASCII, or the path alone"
	case !strings.Contains(host, ".") && host != "localhost":
		return "without a slash before it, " + quoted(host) + " is read as a host: begin with /"
	}
	return ""
}
