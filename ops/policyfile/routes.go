package policyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

// A route is a pattern of a policy.
type route struct {
	pattern string
	node    *yaml.Node
	values  []string // the path values that the rules need
}

// routes checks the patterns of all policies, and makes a ServeMux of them.
func (d *decoder) routes(f *File) {
	f.mux = http.NewServeMux()
	owners := make(map[string]owner)
	for i := range f.policies {
		p := &f.policies[i]
		values := pathValues(p.set)
		for j := range p.routes {
			r := &p.routes[j]
			r.values = values
			if len(owners) == maxRoutes {
				d.wrong(placeOf(r.node), "more than %d routes: write patterns that match several, such as /api/", maxRoutes)
				return
			}
			if offset, problem := d.route(f.mux, p.name, r, owners); problem != "" {
				d.wrongIn(r.node, offset, "route %s%s", quoted(r.pattern), problem)
			}
		}
	}
}

// An owner is the policy of a pattern.
type owner struct {
	policy string
	line   int
}

// route adds a pattern to a ServeMux, or returns what is wrong with it, and where.
func (d *decoder) route(mux *http.ServeMux, policy string, r *route, owners map[string]owner) (offset int, problem string) {
	if offset, problem := unmatchable(r.pattern); problem != "" {
		return offset, ": " + problem
	}
	offset, problem = handle(mux, r.pattern)
	switch first, known := owners[r.pattern]; {
	case known && first.policy == policy:
		return 0, " stands twice in the policy: remove one of them"
	case known:
		return 0, fmt.Sprintf(" is one of policy %q in line %d: a route has one policy: remove it here or there, or join the rules", first.policy, first.line)
	case problem != "":
		return offset, ": " + problem
	}
	owners[r.pattern] = owner{policy, r.node.Line}
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

// A matched is the handler of each pattern.
type matched struct{}

// ServeHTTP does nothing: it is asked for, and called for the path values.
func (matched) ServeHTTP(http.ResponseWriter, *http.Request) {}

// handle adds a pattern to a ServeMux, or returns why it panics at that, and at which
// byte of the pattern.
func handle(mux *http.ServeMux, pattern string) (offset int, problem string) {
	defer func() {
		if err := recover(); err != nil {
			problem = strings.TrimPrefix(fmt.Sprint(err), "http: ")
			if _, why, conflict := strings.Cut(problem, "\n"); conflict { // the first line names lines of this program
				problem = strings.Join(strings.Fields(strings.TrimSuffix(why, ".")), " ") + ": write one that is more specific"
				return
			}
			if _, why, found := strings.Cut(problem, `": at offset `); found { // behind the pattern
				_, problem, _ = strings.Cut(why, ": ")
				fmt.Sscan(why, &offset)
			}
			problem += ": write a pattern of net/http, such as POST /login or GET /items/{id}"
		}
	}()
	mux.Handle(pattern, matched{})
	return 0, ""
}
