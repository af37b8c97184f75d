package proof

import (
	"context"
	"net/http"
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
)

// between is middleware that hides what it wraps, as that of logging does.
func between(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), idKey{}, "x")))
	})
}

// TestScopeOfMiddleware covers routers of net/http and chi by one policy, which has
// one quota wherever it stands.
func TestScopeOfMiddleware(t *testing.T) {
	mux := http.NewServeMux()
	for _, path := range []string{"GET /a", "GET /b", "POST /b", "/c/{id}"} {
		mux.Handle(path, ok)
	}
	chiRouter := func(configure func(chi.Router)) http.Handler {
		router := chi.NewRouter()
		configure(router)
		return router
	}
	routes := func(r chi.Router) {
		r.Get("/a", ok)
		r.Get("/b", ok)
		r.Get("/c/{id}", ok)
	}
	for name, serve := range map[string]func(*limit.Policy) http.Handler{
		"mux":                    func(p *limit.Policy) http.Handler { return p.Middleware(mux) },
		"mux, handler":           func(p *limit.Policy) http.Handler { return p.Handler(mux) },
		"mux, behind a logger":   func(p *limit.Policy) http.Handler { return between(p.Middleware(mux)) },
		"mux, before a logger":   func(p *limit.Policy) http.Handler { return p.Middleware(between(mux)) },
		"mux, between loggers":   func(p *limit.Policy) http.Handler { return between(p.Middleware(between(mux))) },
		"mux, handler, a logger": func(p *limit.Policy) http.Handler { return p.Handler(between(mux)) },
		"chi, use": func(p *limit.Policy) http.Handler {
			return chiRouter(func(r chi.Router) {
				r.Use(middleware.RequestID, p.Middleware, middleware.Recoverer)
				routes(r)
			})
		},
		"chi, group": func(p *limit.Policy) http.Handler {
			return chiRouter(func(r chi.Router) {
				r.Group(func(r chi.Router) {
					r.Use(p.Middleware)
					routes(r)
				})
			})
		},
		"chi, with": func(p *limit.Policy) http.Handler {
			return chiRouter(func(r chi.Router) { routes(r.With(p.Middleware)) })
		},
		"chi, mount": func(p *limit.Policy) http.Handler {
			return chiRouter(func(r chi.Router) { r.Mount("/", p.Middleware(chiRouter(routes))) })
		},
	} {
		book := new(logbook.Book)
		limiter := limit.New(nil, &limit.Options{Log: book.Log()})
		policy := bind(limiter, limit.Named("app", limit.PerIP(time.Minute, 3)))
		assert.Equal(t, []int{200, 200, 200, 429, 429, 429}, statuses(t, serve(policy), "/a", "/b", "/c/1", "/c/2", "/a", "/b"), name)
		assert.Empty(t, codes(book), name)
	}
}

// TestScopeIsDeclared checks what net/http can tell at declaration.
func TestScopeIsDeclared(t *testing.T) {
	limiter, rule := limit.New(nil, nil), limit.PerIP(time.Minute, 3)
	for _, rules := range []limit.RuleSet{limit.Rules(rule), limit.EachRoute(rule)} {
		assert.Panics(t, func() { bind(limiter, rules).Middleware(ok) }, "middleware without a name")
		assert.Panics(t, func() { bind(limiter, rules).Handler(http.NewServeMux()) }, "a route that is a ServeMux")
		assert.Panics(t, func() { chi.NewRouter().With(bind(limiter, rules).Middleware).Get("/", ok) }, "chi")
	}
	assert.Panics(t, func() {
		limited := limiter.Limit(limit.Rules(rule))
		limited(ok)
		limited(ok)
	}, "two routes")
	limited := limiter.Limit(limit.EachRoute(rule))
	limited(ok)
	limited(ok)
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

// TestChargedTwice puts one middleware value on the application and on a route: a
// limit of 4 admits 2 requests, and a warning says why.
func TestChargedTwice(t *testing.T) {
	for name, serve := range map[string]func(*limit.Limiter, limit.RuleSet) http.Handler{
		"gin": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
			router, limited := gin.New(), ginlimit.New(l).Limit(rules)
			router.Use(limited)
			router.GET("/a", limited, func(*gin.Context) {})
			return router
		},
		"echo": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
			server, limited := echo.New(), echolimit.New(l).Limit(rules)
			server.Use(limited)
			server.GET("/a", func(echo.Context) error { return nil }, limited)
			return server
		},
		"http": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
			mux, policy := http.NewServeMux(), bind(l, limit.Named("app", rules.Rules()...))
			mux.Handle("GET /a", policy.Handler(ok))
			return policy.Middleware(mux)
		},
		"chi": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
			router, policy := chi.NewRouter(), bind(l, limit.Named("app", rules.Rules()...))
			router.Use(policy.Middleware)
			router.With(policy.Middleware).Get("/a", ok)
			return router
		},
	} {
		book := new(logbook.Book)
		h := serve(limit.New(nil, &limit.Options{Log: book.Log()}), limit.Rules(limit.PerIP(time.Minute, 4)))
		assert.Equal(t, []int{200, 200, 429, 429}, statuses(t, h, "/a", "/a", "/a", "/a"), name)
		assert.Equal(t, []string{"LIMIT-102"}, codes(book), name)
	}
}
