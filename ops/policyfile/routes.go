package policyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

// A route is a pattern of a policy.
type route struct {
	pattern string
	node    *node
	values  []string // the path values that the rules need
}

// routes checks the patterns of all policies, and makes a ServeMux of them.
func (d *decoder) routes(f *File) {
	f.mux = http.NewServeMux()
	type owner struct {
		policy string
		at     int
	}
	owners := make(map[string]owner)
	for i := range f.policies {
		p := &f.policies[i]
		values := pathValues(p.set)
		for j := range p.routes {
			r := &p.routes[j]
			if len(owners) == maxRoutes {
				d.wrongf(r.node.at, "more than %d routes: write patterns that match several, such as /api/", maxRoutes)
				return
			}
			at := d.inside(r.node, 0)
			if offset, problem := unmatchable(r.pattern); problem != "" {
				d.wrongf(d.inside(r.node, offset), "route %s: %s", quoted(r.pattern), problem)
				continue
			}
			problem := handle(f.mux, r.pattern, p.name)
			switch first, known := owners[r.pattern]; {
			case known && first.policy == p.name:
				d.wrongf(at, "route %s stands twice in the policy: remove one of them", quoted(r.pattern))
				continue
			case known:
				line, _ := d.line(first.at)
				d.wrongf(at, "route %s is one of policy %q in line %d: a route has one policy: remove it here or there, or join the rules", quoted(r.pattern), first.policy, line+1)
				continue
			case problem.conflict != "":
				first := owners[problem.conflict]
				line, _ := d.line(first.at)
				d.wrongf(at, "route %s conflicts with %s of policy %q in line %d: %s: write one that is more specific", quoted(r.pattern), quoted(problem.conflict), first.policy, line+1, problem.why)
				continue
			case problem.why != "":
				d.wrongf(d.inside(r.node, problem.offset), "route %s: %s: write a pattern of net/http, such as POST /login or GET /items/{id}", quoted(r.pattern), problem.why)
				continue
			}
			owners[r.pattern] = owner{p.name, at}
			r.values = values
			for _, value := range values {
				if !slices.Contains(wildcards(r.pattern), value) {
					d.wrongf(at, "route %s has no {%s}, by which a rule of the policy is keyed (path %s): add it, or key the rule by something else", quoted(r.pattern), value, value)
				}
			}
		}
	}
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

// A patternProblem is why a ServeMux does not take a pattern.
type patternProblem struct {
	why      string // "" if it takes it
	conflict string // the other pattern, if they conflict
	offset   int    // in the pattern
}

var (
	invalidPattern = regexp.MustCompile(`(?s)^parsing ".*": at offset (\d+): (.*)$`)
	conflicting    = regexp.MustCompile(`(?s)^pattern ".*" \(registered at .*\) conflicts with pattern (".*") \(registered at [^)]*\):\n(.*)$`)
)

// A matched is the handler of a pattern, which names its policy.
type matched string

// ServeHTTP does nothing: it is asked for, and not called.
func (matched) ServeHTTP(http.ResponseWriter, *http.Request) {}

// handle adds a pattern to a ServeMux, which panics if it does not take it.
func handle(mux *http.ServeMux, pattern, policy string) (problem patternProblem) {
	defer func() {
		err := recover()
		if err == nil {
			return
		}
		text := fmt.Sprint(err)
		if found := conflicting.FindStringSubmatch(text); found != nil {
			fmt.Sscanf(found[1], "%q", &problem.conflict)
			problem.why = strings.Join(strings.Fields(strings.TrimSuffix(found[2], ".")), " ")
			return
		}
		if found := invalidPattern.FindStringSubmatch(text); found != nil {
			fmt.Sscan(found[1], &problem.offset)
			text = found[2]
		}
		problem.why = strings.TrimPrefix(text, "http: ")
	}()
	mux.Handle(pattern, matched(policy))
	return patternProblem{}
}
