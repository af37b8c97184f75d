package policyfile

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/patterns"
)

// routed are routes that every router can have. In Echo, a parameter at the end takes all the
// rest if there are no routes below, as of users.
var routed = []string{"POST /login", "GET /users/{id...}", "GET /items/{id}", "GET /items/{id}/edit", "GET /items/new", "GET /items/{id}/notes/{note...}",
	"GET /files/{path...}", "/api/v1/{call...}", "CONNECT /api", "/a/{x}/b/{y}/{rest...}", "/{$}"}

// TestRouters sends random paths to routers that read them in different ways. Whatever
// handler runs, the policy of its route has decided.
func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	mux, echoRouter := http.NewServeMux(), echo.New()
	routers := map[string]http.Handler{"ServeMux": mux, "Echo": echoRouter}
	engines := make([]*gin.Engine, 1<<4)
	for i := range engines {
		e := gin.New()
		e.UseRawPath, e.UseEscapedPath, e.UnescapePathValues, e.RemoveExtraSlash = i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
		engines[i], routers[fmt.Sprintf("Gin %04b", i)] = e, e
	}
	one, rest := regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)
	for _, route := range routed {
		mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Ran", route) })
		methods, path := []string{"GET", "POST", "CONNECT"}, one.ReplaceAllString(strings.TrimSuffix(route, "{$}"), ":$1")
		if method, of, one := strings.Cut(path, " "); one {
			methods, path = []string{method}, of
		}
		for _, method := range methods {
			echoRouter.Add(method, rest.ReplaceAllString(strings.Replace(path, "{id...}", ":id", 1), "*"), func(c echo.Context) error {
				c.Response().Header().Set("Ran", route)
				return nil
			})
			for _, e := range engines {
				e.Handle(method, rest.ReplaceAllString(path, "*$1"), func(c *gin.Context) { c.Header("Ran", route) })
			}
		}
	}

	var text strings.Builder
	text.WriteString("version: 1\npolicies:\n")
	rule := make(map[string]string)
	for i, route := range routed {
		rule[route] = fmt.Sprintf("p%d", i)
		fmt.Fprintf(&text, "  p%d: {routes: [%q], rules: \"p%d: 1000000/1s global token-bucket\"}\n", i, route, i)
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	policies := must.Get(Open(path, nil))(t)
	require.NoError(t, policies.Follow(t.Context(), limit.New(nil, nil)))
	for name, next := range routers {
		random := rand.New(rand.NewPCG(1, 2))
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		part := func() string {
			return pick("login", "%6Cogin", "items", "new", "ne%77", "files", "7", "x", "", ".", "..", "%2e", "%2E.", "...", "%20", "%25", "%2e%2e%2F", "%00", "(", "é")
		}
		h, served := policies.Handler(next), make(map[string]int)
		for range 3000 {
			_, path, _ := strings.Cut(pick(routed...), "/")
			parts := strings.Split(path, "/")
			for i, p := range parts {
				if strings.HasPrefix(p, "{") || random.IntN(10) == 0 {
					parts[i] = part()
				}
			}
			for range random.IntN(3) {
				parts = slices.Insert(parts, random.IntN(len(parts)+1), part())
			}
			raw := ""
			for _, p := range parts {
				raw += pick("/", "/", "/", "/", "/", "//", "%2F") + p
			}
			u := must.Get(url.ParseRequestURI("/" + strings.TrimPrefix(raw, "/")))(t)
			r := &http.Request{Method: pick("GET", "GET", "POST", "CONNECT"), URL: u, Host: "example.com:80", RemoteAddr: "192.0.2.1:80", Header: http.Header{}}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if route := w.Header().Get("Ran"); route != "" {
				served[route]++
				decided := strings.Join(w.Header().Values("RateLimit-Policy"), ", ")
				if !assert.Contains(t, decided, `"`+rule[route]+`"`, "%s: %s %s was served by %s", name, r.Method, u, route) {
					break
				}
			}
		}
		assert.Len(t, served, len(routed), name)
	}
}

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
