package echov5limit_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

func noContent(c echoContext) error { return c.NoContent(http.StatusNoContent) }

// limited returns a server with a route, GET /, that admits one request.
func limited(v version, options *limit.Options) server {
	e := v.server()
	e.get("/", noContent, v.limiter(limit.New(nil, options), hooks{})(limit.Rules(limit.PerIP(time.Minute, 1))))
	return e
}

// TestErrorHandlers checks that programs with an error handler of their own learn what
// happened, and that what they answer has its own media type.
func TestErrorHandlers(t *testing.T) {
	logged := func(answer func(c echoContext, status int, body any) error) func(echoContext, int, any) error {
		return func(c echoContext, status int, body any) error {
			if _, err := json.Marshal(body); err != nil {
				return err
			}
			return answer(c, status, body)
		}
	}
	problem := func(c echoContext, status int, body any) error { return c.JSON(status, body) }
	page := func(c echoContext, status int, _ any) error {
		return c.HTML(status, "<h1>"+http.StatusText(status)+"</h1>")
	}
	each(t, func(t *testing.T, v version) {
		for name, test := range map[string]struct {
			contentType, body string
			answer            func(c echoContext, status int, body any) error
		}{
			"page": {"text/html; charset=UTF-8", "<h1>Too Many Requests</h1>", page},
			"document of its own": {"application/json", `{"error":429}`, func(c echoContext, status int, _ any) error {
				return c.JSON(status, map[string]int{"error": status})
			}},
			"the problem":                     {"application/problem+json", "", problem},
			"the problem, logged before":      {"application/problem+json", "", logged(problem)},
			"page, the problem logged before": {"text/html; charset=UTF-8", "", logged(page)},
			"nothing":                         {"", "", func(c echoContext, status int, _ any) error { return c.NoContent(status) }},
		} {
			var seen error
			e := limited(v, nil)
			e.onError(func(c echoContext, err error) {
				seen = err
				status, body := v.status(err)
				assert.NoError(t, test.answer(c, status, body))
			})
			require.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code)
			require.NoError(t, seen)

			w := routetest.Do(e, "GET", "/")
			assert.Equal(t, http.StatusTooManyRequests, w.Code, name)
			assert.Equal(t, test.contentType, w.Header().Get("Content-Type"), name)
			assert.Equal(t, "60", w.Header().Get("Retry-After"), name)
			if test.body != "" {
				assert.Equal(t, test.body, strings.TrimSuffix(w.Body.String(), "\n"), name)
			}
			var refused *limit.RefusedError
			require.ErrorAs(t, seen, &refused)
			assert.Equal(t, []string{"per-ip-1m"}, routetest.Refused(refused.Decision))
			assert.Regexp(t, `^`+v.logged+`limit: refused by per-ip-1m, retry after \S+s$`, seen.Error())
		}
	})
}

// TestDebug checks that a server that shows errors to clients does not change the answer.
func TestDebug(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		e := limited(v, nil)
		e.debug()
		routetest.Do(e, "GET", "/")
		w := routetest.Do(e, "GET", "/?pretty")
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.Regexp(t, `"violated-policies": ?\[\s*"per-ip-1m"\s*\]`, w.Body.String())
	})
}

// watch returns middleware that keeps the error of each request.
func watch(seen *error) middleware {
	return func(next handler) handler {
		return func(c echoContext) error {
			*seen = next(c)
			return *seen
		}
	}
}

// TestMiddleware checks that middleware around the limiter sees the error, and none
// where a function in Options.Refuse has answered.
func TestMiddleware(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		var seen error
		e := limited(v, nil)
		e.use(watch(&seen))
		routetest.Do(e, "GET", "/")
		require.NoError(t, seen)
		routetest.Do(e, "GET", "/")
		require.ErrorAs(t, seen, new(*limit.RefusedError))

		e = limited(v, &limit.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, _ limit.Decision) {
			w.WriteHeader(http.StatusTeapot)
		}})
		e.use(watch(&seen))
		routetest.Do(e, "GET", "/")
		assert.Equal(t, http.StatusTeapot, routetest.Do(e, "GET", "/").Code)
		assert.NoError(t, seen)
	})
}

// TestHooks answers by the functions of the Limiter, in Echo's own form.
func TestHooks(t *testing.T) {
	errMine := errors.New("mine")
	each(t, func(t *testing.T, v version) {
		forbidden := v.httpError(403, "no")
		for name, test := range map[string]struct {
			refuse func(echoContext, limit.Decision) error
			status int
			body   string
			err    error
		}{
			"a body": {func(c echoContext, d limit.Decision) error { return c.String(402, routetest.Refused(d)[0]) }, 402, "per-ip-1m", nil},
			"a body alone": {func(c echoContext, _ limit.Decision) error {
				_, err := v.writer(c).Write([]byte("later"))
				return err
			}, 429, "later", nil},
			"nothing":        {func(echoContext, limit.Decision) error { return nil }, 429, "", nil},
			"an error":       {func(echoContext, limit.Decision) error { return errMine }, 500, `{"message":"Internal Server Error"}` + "\n", errMine},
			"an error of it": {func(echoContext, limit.Decision) error { return forbidden }, 403, `{"message":"no"}` + "\n", forbidden},
		} {
			var seen error
			e := v.server()
			e.use(watch(&seen))
			e.get("/", noContent, v.limiter(limit.New(nil, nil), hooks{refuse: test.refuse})(limit.Rules(limit.PerIP(time.Minute, 1))))
			require.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code, name)
			w := routetest.Do(e, "GET", "/")
			assert.Equal(t, test.status, w.Code, name)
			assert.Equal(t, test.body, w.Body.String(), name)
			assert.Equal(t, "60", w.Header().Get("Retry-After"), name)
			assert.Equal(t, test.err, seen, name)
		}

		limiter := limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		e := v.server()
		e.get("/", noContent, v.limiter(limiter, hooks{fail: func(c echoContext, err error) error {
			assert.ErrorIs(t, err, limit.ErrUndecided)
			_, err = v.writer(c).Write([]byte("no limiter"))
			return err
		}})(limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Minute,
			Cost: rules.CostBy("units", func(*http.Request) int64 { return -1 })})))
		w := routetest.Do(e, "GET", "/")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "no limiter", w.Body.String())
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
	})
}

// TestUser takes users from the context of Echo, where authentication put them.
func TestUser(t *testing.T) {
	authenticate := func(next handler) handler {
		return func(c echoContext) error {
			c.Set("user", c.Request().Header.Get("Test-User"))
			return next(c)
		}
	}
	rules := limit.Rules(limit.PerUser(time.Minute, 1))
	each(t, func(t *testing.T, v version) {
		assert.PanicsWithError(t, "limit: rule \"1/1m per user\": no user resolver: set Caller.User of limit.Options, or that of your adapter, such as rl.Caller.User",
			func() { v.limit(rules) })
		e := v.server()
		e.get("/", noContent, authenticate, v.limiter(limit.New(nil, nil), hooks{user: func(c echoContext) string {
			user, _ := c.Get("user").(string)
			return user
		}})(rules))
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/", "Test-User", "alice").Code)
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/", "Test-User", "bob").Code)
		assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/", "Test-User", "alice").Code)
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code)
		assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/").Code, "requests without a user share one quota")
	})
}

// TestPre checks that middleware that runs before the router counts requests as
// unmatched: the route is not known there.
func TestPre(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		e := v.server()
		e.pre(v.limit(limit.Rules(limit.PerIP(time.Minute, 2))))
		e.get("/a", noContent)
		e.get("/b", noContent)
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/a").Code)
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/b").Code)
		assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/a").Code)
	})
}

// TestGroupNotFound checks that paths invented below a group share one quota.
func TestGroupNotFound(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		e := v.server()
		get := e.group("/api", v.limit(limit.Rules(limit.PerIP(time.Minute, 2))))
		get("/real", noContent)
		assert.Equal(t, http.StatusNotFound, routetest.Do(e, "GET", "/api/1").Code)
		assert.Equal(t, http.StatusNotFound, routetest.Do(e, "GET", "/api/2").Code)
		assert.Equal(t, http.StatusTooManyRequests, routetest.Do(e, "GET", "/api/3").Code)
		assert.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/api/real").Code)
	})
}
