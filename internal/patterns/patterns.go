// Package patterns finds the patterns of a ServeMux that a request matches, in each way in
// which a router may read its path.
//
// A ServeMux cleans a path before it looks it up, and takes an encoded slash as part of a
// value. Gin looks up the decoded path as it is, Echo the encoded one, and a plain handler
// any. What one of them takes for /login must not pass as something else.
package patterns

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Of is the handler of each pattern. It is asked for, and called for the path values.
type Of struct {
	Policy any  // whose pattern it is, to compare
	Valued bool // whether its rules need path values, which differ by pattern
}

func (Of) ServeHTTP(http.ResponseWriter, *http.Request) {}

// Register adds a pattern to a ServeMux, or returns why it panics at that, and at which
// byte of the pattern.
func Register(mux *http.ServeMux, pattern string, of Of) (offset int, problem string) {
	defer func() {
		if err := recover(); err != nil {
			problem = strings.TrimPrefix(fmt.Sprint(err), "http: ")
			if _, why, conflict := strings.Cut(problem, "\n"); conflict { // the first line names lines of this program
				problem = strings.Join(strings.Fields(strings.TrimSuffix(why, ".")), " ") + ": write one that is more specific"
				if strings.HasSuffix(strings.TrimSuffix(why, "."), " as "+pattern) {
					problem = "it stands there twice: leave one out"
				}
				return
			}
			if _, why, found := strings.Cut(problem, `": at offset `); found { // behind the pattern
				_, problem, _ = strings.Cut(why, ": ")
				fmt.Sscan(why, &offset)
			}
			problem += ": write a pattern of net/http, such as POST /login or GET /items/{id}"
		}
	}()
	mux.Handle(pattern, of)
	return 0, ""
}

// A Match is a pattern that a request matches.
type Match struct {
	Of
	Pattern string
	as      *http.Request // as the ServeMux finds the pattern
}

// Append appends the matches of a request: first the one of the ServeMux itself, if there
// is one, and then those of other patterns, by which a router behind may serve the
// request. A policy without path values has one match. All patterns of the ServeMux must
// have the handler [Of].
//
// Other routers read the decoded path, or an encoded one without decoding it, and the
// parts "", "." and ".." as any others. A path without such a part, and without an
// encoding that is not needed, has one match.
func Append(found []Match, mux *http.ServeMux, r *http.Request) []Match {
	host, encoded := hostOf(r.Host), r.URL.EscapedPath()
	port, bare := strings.CutPrefix(r.Host, host)
	bare = bare && (port == "" || port[0] == ':')
	if bare && r.URL.RawPath == "" && r.Method != http.MethodConnect && Clean(encoded) == encoded {
		h, pattern := mux.Handler(r)
		if pattern == "" {
			return found
		}
		if of, ok := h.(Of); ok {
			return append(found, Match{of, pattern, r})
		}
	}
	readings := []string{encoded}
	if r.URL.RawPath != "" {
		readings = append(readings, (&url.URL{Path: r.URL.Path}).EscapedPath(), (&url.URL{Path: r.URL.RawPath}).EscapedPath())
	}
	for _, reading := range readings {
		found = add(found, mux, r.Method, host, Clean(reading))
	}
	for _, reading := range readings {
		if reading != Clean(reading) {
			found = add(found, mux, r.Method, host, written(reading))
		}
	}
	return found
}

// add appends the match of an encoded path that is clean, unless its pattern is known.
func add(found []Match, mux *http.ServeMux, method, host, encoded string) []Match {
	r := &http.Request{Method: method, Host: host, URL: &url.URL{Host: host}} // for CONNECT, a ServeMux looks at both hosts
	look := func(encoded string) (http.Handler, string) {
		r.URL.Path, _ = url.PathUnescape(encoded)
		r.URL.RawPath = encoded
		return mux.Handler(r)
	}
	h, pattern := look(encoded)
	of, ok := h.(Of)
	if !ok && pattern != "" { // it would redirect, since a slash is missing at the end
		h, pattern = look(encoded + "/")
		of, ok = h.(Of)
	}
	if !ok || slices.ContainsFunc(found, func(m Match) bool {
		return m.Pattern == pattern || m.Policy == of.Policy && !of.Valued
	}) {
		return found
	}
	return append(found, Match{of, pattern, r})
}

// Decoded returns a path value as the request means it. Frameworks that return it as it was
// written would give "a" and "%61" a quota each.
func Decoded(value string) string {
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// Clean is what a ServeMux does to a path.
func Clean(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	cleaned := path.Clean(p)
	switch {
	case !strings.HasSuffix(p, "/") || cleaned == "/":
		return cleaned
	case len(p) == len(cleaned)+1:
		return p
	}
	return cleaned + "/"
}

// hostOf returns a host as patterns write it: a ServeMux takes one with capitals or a dot
// at its end for another one and, for CONNECT, one with a port.
func hostOf(host string) string {
	if strings.Contains(host, ":") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// empty stands for a part of a path that is empty, which no ServeMux would leave there.
const empty = "\x00"

// written returns an encoded path such that a ServeMux looks it up as it is.
func written(encoded string) string {
	parts := strings.Split(strings.TrimPrefix(encoded, "/"), "/")
	for i, part := range parts {
		switch {
		case part == "" && i < len(parts)-1:
			parts[i] = url.PathEscape(empty)
		case part == "." || part == "..":
			parts[i] = strings.ReplaceAll(part, ".", "%2e")
		}
	}
	return "/" + strings.Join(parts, "/")
}

// Values returns what the wildcards of the pattern stand for.
func (m *Match) Values(mux *http.ServeMux) (value func(name string) string) {
	r := &http.Request{Method: m.as.Method, Host: m.as.Host, URL: m.as.URL}
	mux.ServeHTTP(nil, r) // by Of, which writes nothing
	return func(name string) string { return strings.ReplaceAll(r.PathValue(name), empty, "") }
}
