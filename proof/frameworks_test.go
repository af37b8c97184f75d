package proof

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

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
