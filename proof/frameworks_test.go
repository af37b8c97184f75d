package proof

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/rules"
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
	r, err := http.NewRequest("GET", server.URL+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
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

// TestUserOfFramework reads users that authentication has put into the context of
// the framework.
func TestUserOfFramework(t *testing.T) {
	rules := limit.MustParse("1/1h per user or ip")
	quiet := &limit.Options{Log: slog.New(slog.DiscardHandler)}
	for name, serve := range map[string]func(user bool) http.Handler{
		"gin": func(user bool) http.Handler {
			rl, router := ginlimit.New(limit.New(nil, quiet)), gin.New()
			if user {
				rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
			}
			router.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) })
			router.GET("/a", rl.Limit(rules), func(*gin.Context) {})
			return router
		},
		"echo": func(user bool) http.Handler {
			rl, server := echolimit.New(limit.New(nil, quiet)), echo.New()
			if user {
				rl.Caller.User = func(c echo.Context) string { return c.Get("user").(string) }
			}
			server.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					c.Set("user", c.Request().Header.Get("X-User"))
					return next(c)
				}
			})
			server.GET("/a", func(echo.Context) error { return nil }, rl.Limit(rules))
			return server
		},
	} {
		server := httptest.NewServer(serve(true))
		var got []int
		for _, user := range []string{"alice", "bob", "alice", "", "", "bob"} {
			got = append(got, get(t, server, "/a", "X-User", user).StatusCode)
		}
		server.Close()
		assert.Equal(t, []int{200, 200, 429, 200, 429, 429}, got, name)

		problem := func() (problem any) {
			defer func() { problem = recover() }()
			serve(false)
			return nil
		}()
		require.Error(t, problem.(error), name)
		assert.ErrorContains(t, problem.(error), "rl.Caller.User", "the error names where to write the function")
	}
}

// TestAnswersWithoutStatus has the program's answers leave the status out: a refusal
// is still 429, and an undecided request 503.
func TestAnswersWithoutStatus(t *testing.T) {
	write := func(text string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
	}
	rule := limit.Global(time.Minute, 1)
	rule.Cost = rules.CostBy("units", func(r *http.Request) int64 {
		if r.Header.Get("Fail") != "" {
			return -1
		}
		return 1
	})
	for name, serve := range frameworksByGet {
		server := httptest.NewServer(serve(limit.New(nil, &limit.Options{
			Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) { write("refused")(w) },
			Fail:   func(w http.ResponseWriter, _ *http.Request, _ error) { write("failed")(w) },
			Log:    slog.New(slog.DiscardHandler),
		}), limit.Rules(rule)))
		for _, want := range []struct {
			fail   string
			status int
			body   string
		}{{"", 200, ""}, {"", 429, "refused"}, {"yes", 503, "failed"}} {
			response := get(t, server, "/a", "Fail", want.fail)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			assert.Equal(t, want.status, response.StatusCode, name)
			assert.Equal(t, want.body, string(body), name)
		}
		server.Close()
	}
}

// frameworksByGet have a route GET /a behind a set.
var frameworksByGet = map[string]func(*limit.Limiter, limit.RuleSet) http.Handler{
	"http": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /a", l.Limit(rules)(ok))
		return mux
	},
	"gin": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
		router := gin.New()
		router.GET("/a", ginlimit.New(l).Limit(rules), func(*gin.Context) {})
		return router
	},
	"echo": func(l *limit.Limiter, rules limit.RuleSet) http.Handler {
		server := echo.New()
		server.GET("/a", func(echo.Context) error { return nil }, echolimit.New(l).Limit(rules))
		return server
	},
}

// TestPathValueThatIsMissing limits by a path value that the route does not have:
// all clients share a quota, and a warning says so.
func TestPathValueThatIsMissing(t *testing.T) {
	for name, serve := range frameworksByGet {
		book := new(logbook.Book)
		h := serve(limit.New(nil, &limit.Options{Log: book.Log()}), limit.MustParse("1/1m per path uid"))
		assert.Equal(t, []int{200, 429}, statuses(t, h, "/a", "/a"), name)
		assert.Equal(t, []string{"LIMIT-106"}, codes(book), name)
	}
}
