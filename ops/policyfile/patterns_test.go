package policyfile

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/patterns"
)

// TestReachable writes patterns of random parts, valid ones and ones of other routers. A
// pattern that a file may have matches the requests that it describes.
func TestReachable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	valid, refused := 0, 0
	for range 20_000 {
		var b strings.Builder
		b.WriteString(pick("", "", "", "GET ", "POST  ", "DELETE\t", "get ", "Put ", "GTE ", "ANY ", " ", "QUERY ", "M-SEARCH ", "GET,PUT "))
		b.WriteString(pick("", "", "", "", "api.example.com", "localhost", "192.0.2.1", "[2001:db8::1]", "api", "A.b", "a.b:80", "*.a.b", "https://a.b"))
		for range random.IntN(4) {
			b.WriteString("/" + pick("a", "b", "items:batch", "v1.2", "%2F", "%20", "caf%C3%A9", "é", "{x}", "{y}", "~", "(a)", "$a", "+",
				"", ".", "..", "%2e", "*", "**", "*z", "a*", ":id", ":", "<id>", "[id]", "}", "{", "{x", "x}", "a b", "a?b", "a#b", `\d`, "%", "%zz", "{id:[0-9]+}"))
		}
		b.WriteString(pick("", "", "/", "/{$}", "/{rest...}", "/{rest...}/b", "{$}", "?a=b", " "))
		pattern := b.String()
		if _, problem := unmatchable(pattern); problem != "" {
			refused++
			continue
		}
		mux := http.NewServeMux()
		if _, problem := patterns.Register(mux, pattern, patterns.Of{}); problem == "" {
			valid++
			assert.True(t, covers(mux, pattern), "%q matches no request", pattern)
		}
	}
	assert.Greater(t, valid, 1000)
	assert.Greater(t, refused, 1000)
}

// TestLegitimate checks patterns that look unusual, and match requests.
func TestLegitimate(t *testing.T) {
	for _, pattern := range []string{"/", "/{$}", "/{rest...}", "GET /v1/projects:search", "/v1/{id}/items:batch", "/a%2Fb", "/%2A", "/%3Aid", "/%7B",
		"PURGE /", "PROPFIND /dav/", "M-SEARCH /", "CONNECT /", "localhost/", "192.0.2.1/", "[::1]/", "a.example.com/x", "xn--bcher-kva.example/", "/wiki/C_(language)",
		"/a;b=c", "/@user", "/$metadata", "/a,b", "/~user/", "/.well-known/acme-challenge/{token}", "/a...", "/file.tar.gz", "GET\t/x", "GET   /x"} {
		_, problem := unmatchable(pattern)
		assert.Empty(t, problem, pattern)
		mux := http.NewServeMux()
		_, problem = patterns.Register(mux, pattern, patterns.Of{})
		assert.Empty(t, problem)
		assert.True(t, covers(mux, pattern), pattern)
	}
}

// covers reports whether a ServeMux has a handler for requests that a pattern matches. It
// tries some of them: one for each usual method, and for paths of several lengths.
func covers(mux *http.ServeMux, pattern string) bool {
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
			if _, matched := mux.Handler(&http.Request{Method: method, Host: host, URL: u}); matched == "" {
				return false
			}
		}
	}
	return true
}
