package proof

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
)

// statuses serves h, sends it GET requests, and returns their statuses.
func statuses(t *testing.T, h http.Handler, paths ...string) (list []int) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range paths {
		list = append(list, get(t, server, path).StatusCode)
	}
	return list
}

// get sends a request and returns the response, with its body read.
func get(t *testing.T, server *httptest.Server, path string, headers ...string) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequest("GET", server.URL+path, nil))(t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response := must.Get(server.Client().Do(r))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	return response
}

// codes returns the codes of the warnings in a book.
func codes(book *logbook.Book) (list []string) {
	for _, line := range book.Lines() {
		_, after, _ := strings.Cut(line, "code=")
		code, _, _ := strings.Cut(after, " ")
		list = append(list, code)
	}
	return list
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// frameworks serve a handler at a pattern such as "POST /login", or at a path for all
// methods, behind rule sets.
var frameworks = map[string]func(l *limit.Limiter, pattern string, h http.HandlerFunc, sets ...limit.RuleSet) http.Handler{
	"http": func(l *limit.Limiter, pattern string, h http.HandlerFunc, sets ...limit.RuleSet) http.Handler {
		var limited http.Handler = h
		for _, rules := range slices.Backward(sets) {
			limited = l.Limit(rules)(limited)
		}
		mux := http.NewServeMux()
		mux.Handle(pattern, limited)
		return mux
	},
	"gin": func(l *limit.Limiter, pattern string, h http.HandlerFunc, sets ...limit.RuleSet) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		var handlers []gin.HandlerFunc
		for _, rules := range sets {
			handlers = append(handlers, ginlimit.New(l).Limit(rules))
		}
		router := gin.New()
		if method, path, ok := strings.Cut(pattern, " "); ok {
			router.Handle(method, path, append(handlers, gin.WrapF(h))...)
		} else {
			router.Any(pattern, append(handlers, gin.WrapF(h))...)
		}
		return router
	},
	"echo": func(l *limit.Limiter, pattern string, h http.HandlerFunc, sets ...limit.RuleSet) http.Handler {
		var middleware []echo.MiddlewareFunc
		for _, rules := range sets {
			middleware = append(middleware, echolimit.New(l).Limit(rules))
		}
		router := echo.New()
		if method, path, ok := strings.Cut(pattern, " "); ok {
			router.Add(method, path, echo.WrapHandler(h), middleware...)
		} else {
			router.Any(pattern, echo.WrapHandler(h), middleware...)
		}
		return router
	},
}

// TestScopeOfMiddleware covers routers of chi by one policy, which has one quota wherever it
// stands.
func TestScopeOfMiddleware(t *testing.T) {
	routes := func(r chi.Router) {
		r.Get("/a", ok)
		r.Get("/b", ok)
		r.Get("/c/{id}", ok)
	}
	for name, serve := range map[string]func(chi.Router, *limit.Policy){
		"use": func(r chi.Router, p *limit.Policy) {
			r.Use(middleware.RequestID, p.Handler, middleware.Recoverer)
			routes(r)
		},
		"group": func(r chi.Router, p *limit.Policy) {
			r.Group(func(r chi.Router) {
				r.Use(p.Handler)
				routes(r)
			})
		},
		"with": func(r chi.Router, p *limit.Policy) { routes(r.With(p.Handler)) },
		"mount": func(r chi.Router, p *limit.Policy) {
			below := chi.NewRouter()
			routes(below)
			r.Mount("/", p.Handler(below))
		},
	} {
		book, router := new(logbook.Book), chi.NewRouter()
		limiter := limit.New(nil, &limit.Options{Log: book.Log()})
		serve(router, bind(limiter, limit.Named("app", limit.PerIP(time.Minute, 3))))
		assert.Equal(t, []int{200, 200, 200, 429, 429, 429}, statuses(t, router, "/a", "/b", "/c/1", "/c/2", "/a", "/b"), name)
		assert.Empty(t, codes(book), name)
	}
	assert.Panics(t, func() {
		bind(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Minute, 3))).Handler(chi.NewRouter())
	}, "one set around a router")
}

// A plainRouter routes by path and sets no pattern, as gorilla/mux does.
type plainRouter map[string]http.Handler

func (p plainRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) { p[r.URL.Path].ServeHTTP(w, r) }

// TestRouterWithoutPatterns limits routes whose router does not name them. Their
// requests share one quota, which a warning says. Named sets keep them apart.
func TestRouterWithoutPatterns(t *testing.T) {
	rule := limit.PerIP(time.Minute, 2)
	book := new(logbook.Book)
	limiter := limit.New(nil, &limit.Options{Log: book.Log()})
	unnamed := plainRouter{"/a": limiter.Limit(limit.Rules(rule))(ok), "/b": limiter.Limit(limit.Rules(rule))(ok)}
	assert.Equal(t, []int{200, 200, 429, 429}, statuses(t, unnamed, "/a", "/a", "/b", "/b"))
	assert.Equal(t, []string{"LIMIT-103", "LIMIT-103"}, codes(book), "once for each set")

	named := plainRouter{"/a": limiter.Limit(limit.Named("a", rule))(ok), "/b": limiter.Limit(limit.Named("b", rule))(ok)}
	assert.Equal(t, []int{200, 200, 429, 200, 200, 429}, statuses(t, named, "/a", "/a", "/a", "/b", "/b", "/b"))
	assert.Empty(t, codes(book))
}
