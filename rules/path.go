package rules

import (
	"slices"
	"strings"

	"github.com/routelimit/limit/internal/grammar"
)

// PathValues returns the path values that r needs and a pattern does not have, and those
// that it has. An empty pattern is one that is not known yet.
func (r *Rule) PathValues(pattern string) (missing, has []string) {
	if pattern == "" {
		return nil, nil
	}
	has = pathValues(pattern)
	for _, name := range append(r.Key.syntax().Names(grammar.Path), r.Values().syntax().Names(grammar.Path)...) {
		if !slices.Contains(has, name) {
			missing = append(missing, name)
		}
	}
	return missing, has
}

// pathValues returns the names in a pattern: "id" in "/users/:id", "/users/{id}" and
// "/users/{id...}", and "path" in "/files/*path". A bare "*" is Echo's name for the rest of a path.
func pathValues(pattern string) (names []string) {
	serveMux := strings.Contains(pattern, " ") // a method, and no colons
	for segment := range strings.SplitSeq(pattern, "/") {
		if serveMux || strings.Contains(segment, "{") {
			for _, part := range strings.Split(segment, "{")[1:] {
				name, _, _ := strings.Cut(part, "}")
				name, _, _ = strings.Cut(name, ":") // chi: {id:[0-9]+}
				if name != "$" {                    // a ServeMux's end of the path
					names = append(names, strings.TrimSuffix(name, "..."))
				}
			}
			continue
		}
		switch i := strings.IndexAny(segment, ":*"); {
		case i >= 0 && segment[i:] == "*":
			names = append(names, "*")
		case i >= 0:
			names = append(names, segment[i+1:])
		}
	}
	return names
}

// CheckPattern returns an error for each path value that a rule needs and a pattern does not have.
func (s Set) CheckPattern(rule int, pattern string) (errs []error) {
	missing, has := s.rules[rule].PathValues(pattern)
	for _, name := range missing {
		if len(has) == 0 {
			errs = append(errs, s.Errorf(rule, "key \"path %s\": the path %q has no values: add one, or write another key", name, pattern))
		} else {
			errs = append(errs, s.Errorf(rule, "key \"path %s\": the path %q has no such value: write \"path %s\"",
				name, pattern, strings.Join(has, `" or "path `)))
		}
	}
	return errs
}
