package proof

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
)

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
