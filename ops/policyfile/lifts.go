package policyfile

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Lifts describes the limits of an earlier file that are not in force with this one: its
// policies that this file does not have, and its routes that no pattern of this file
// matches. Policies with other rules are not described.
func (f *File) Lifts(earlier *File) (lifted []string) {
	kept := make(map[string]bool)
	for i := range f.policies {
		kept[f.policies[i].name] = true
	}
	for i := range earlier.policies {
		policy := &earlier.policies[i]
		if !kept[policy.name] {
			lifted = append(lifted, fmt.Sprintf("policy %s (%s)", policy.name, policy.set))
			continue
		}
		for _, r := range policy.routes {
			if !f.covers(r.pattern) {
				lifted = append(lifted, fmt.Sprintf("route %s of policy %s", r.pattern, policy.name))
			}
		}
	}
	return lifted
}

// covers reports whether requests that a pattern matches have policies. It tries some of
// them: one for each usual method, and for paths of several lengths.
func (f *File) covers(pattern string) bool {
	tried := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		tried, pattern = []string{pattern[:i]}, strings.TrimLeft(pattern[i:], " \t")
	}
	host, path, _ := strings.Cut(pattern, "/")
	const part = "policyfile-part"
	segments := strings.Split(strings.TrimSuffix(path, "{$}"), "/")
	for i, segment := range segments {
		switch {
		case strings.HasSuffix(segment, "...}"):
			segments[i] = ""
		case strings.HasPrefix(segment, "{"):
			segments[i] = part
		default:
			plain, _ := url.PathUnescape(segment)
			segments[i] = url.PathEscape(plain)
		}
	}
	path = "/" + strings.Join(segments, "/")
	paths := []string{path}
	if strings.HasSuffix(path, "/") && !strings.HasSuffix(pattern, "{$}") {
		paths = append(paths, path+part, path+part+"/", path+part+"/"+part)
	}
	for _, method := range tried {
		for _, path := range paths {
			u, err := url.Parse(path)
			if err != nil {
				continue
			}
			if _, matched := f.mux.Handler(&http.Request{Method: method, Host: host, URL: u}); matched == "" {
				return false
			}
		}
	}
	return true
}
