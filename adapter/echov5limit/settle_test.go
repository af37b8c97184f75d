package echov5limit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/echov5limit"
	"github.com/routelimit/limit/internal/routetest"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)})
}

var (
	errPassword  = errors.New("wrong password")
	errForbidden = echo.NewHTTPError(http.StatusForbidden, "forbidden")
)

// unauthorized is an error handler of a program.
func unauthorized(c *echo.Context, err error) {
	if errors.Is(err, errPassword) {
		_ = c.JSON(http.StatusUnauthorized, map[string]string{"error": err.Error()})
		return
	}
	echo.DefaultHTTPErrorHandler(false)(c, err)
}

// TestSettlesByTheAnswer answers outside the limiter, as error handlers do, with
// middleware that replaces writers on either side of it. Each handler fails with a wrong
// password, lets in a right one, and forbids one: these two are never charged.
func TestSettlesByTheAnswer(t *testing.T) {
	wrong := func(c *echo.Context) error {
		switch c.Request().Header.Get("Password") {
		case "right":
			return c.NoContent(http.StatusNoContent)
		case "forbidden":
			return errForbidden
		}
		return errPassword
	}
	after := func(answer func(*echo.Context) error) echo.MiddlewareFunc {
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				if err := next(c); !errors.Is(err, errPassword) {
					return err
				}
				return answer(c)
			}
		}
	}
	toJSON := after(func(c *echo.Context) error {
		return c.JSON(http.StatusUnauthorized, map[string]string{"error": "wrong"})
	})
	toError := after(func(*echo.Context) error { return echo.NewHTTPError(http.StatusUnauthorized, "wrong") })
	// Middleware of net/http gives the handlers behind it a response of their own.
	wrapped := echo.WrapMiddleware(func(next http.Handler) http.Handler { return next })
	kept := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			w := c.Response()
			switch err := next(c); {
			case errors.Is(err, errPassword):
				w.WriteHeader(http.StatusUnauthorized)
			case errors.Is(err, errForbidden):
				w.WriteHeader(http.StatusForbidden)
			default:
				return err
			}
			return nil
		}
	}
	swapped := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			response, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			own := response.ResponseWriter
			response.ResponseWriter = struct{ http.ResponseWriter }{own}
			defer func() { response.ResponseWriter = own }()
			return next(c)
		}
	}
	chain := func(m ...echo.MiddlewareFunc) []echo.MiddlewareFunc { return m }
	gzip := middleware.Gzip()
	for name, test := range map[string]struct {
		outside []echo.MiddlewareFunc
		inside  []echo.MiddlewareFunc
		handler echo.HandlerFunc
	}{
		"error handler":           {nil, nil, wrong},
		"another error":           {chain(toError), nil, wrong},
		"another error inside":    {nil, chain(toError), wrong},
		"JSON":                    {chain(toJSON), nil, wrong},
		"JSON inside":             {nil, chain(toJSON), wrong},
		"a status alone":          {chain(after(func(c *echo.Context) error { return c.NoContent(http.StatusUnauthorized) })), nil, wrong},
		"gzip, error handler":     {chain(gzip), nil, wrong},
		"gzip inside, a handler":  {nil, chain(gzip), wrong},
		"gzip outside":            {chain(gzip, toJSON), nil, wrong},
		"gzip between":            {chain(toJSON, gzip), nil, wrong},
		"gzip inside":             {chain(toJSON), chain(gzip), wrong},
		"a kept writer":           {chain(kept), nil, wrong},
		"a kept writer, net/http": {chain(kept, wrapped), nil, wrong},
		"a restored writer":       {chain(swapped), nil, wrong},
		"bodies dumped":           {chain(middleware.BodyDump(func(*echo.Context, []byte, []byte, error) {})), nil, wrong},
		"net/http":                {chain(wrapped), nil, wrong},
		"net/http first":          {chain(wrapped, toJSON), nil, wrong},
		"net/http last":           {chain(toJSON, wrapped), nil, wrong},
		"recovery": {chain(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})), nil, func(c *echo.Context) error {
			if err := wrong(c); err != nil {
				panic(err)
			}
			return nil
		}},
	} {
		for _, served := range []bool{false, true} {
			rl := echov5limit.New(limit.New(nil, nil))
			e := echo.New()
			e.Logger = slog.New(slog.DiscardHandler)
			e.HTTPErrorHandler = unauthorized
			e.Use(test.outside...)
			e.GET("/login", test.handler, append([]echo.MiddlewareFunc{rl.Limit(failed("outer")), rl.Limit(failed("inner"))}, test.inside...)...)
			headers := []string{"Accept-Encoding", "gzip"}
			for password, status := range map[string]int{"right": 204, "forbidden": 403} {
				statuses := routetest.Statuses(t, e, served, 20, "/login", append(headers, "Password", password)...)
				assert.Equal(t, map[int]int{status: 20}, statuses, "%s, served: %v", name, served)
			}
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, e, served, 100, "/login", headers...), "%s, served: %v", name, served)
		}
	}
}

// TestSettlesNothingWritten checks that a handler that writes nothing has answered with
// 200 when the request ends, and that an answer that comes before counts instead.
func TestSettlesNothingWritten(t *testing.T) {
	statuses := make(chan int, 1)
	rules := limit.Rules(limit.Rule{Name: "answers", Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: limit.SettleBy("statuses", func(_ *http.Request, status int) int64 { statuses <- status; return 0 })})
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				err := next(c)
				if err == nil && want != http.StatusOK {
					return c.NoContent(want)
				}
				return err
			}
		})
		e.GET("/", func(*echo.Context) error { return nil }, echov5limit.New(limit.New(nil, nil)).Limit(rules))
		server := httptest.NewServer(e)
		defer server.Close()
		for range 7 {
			response, err := server.Client().Get(server.URL)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, want, response.StatusCode)
			require.Equal(t, want, <-statuses)
		}
	}
}

// TestSettlesMiddlewareOfNetHTTP puts rules of net/http in the chain of Echo, whose error
// handler answers outside them.
func TestSettlesMiddlewareOfNetHTTP(t *testing.T) {
	e := echo.New()
	e.HTTPErrorHandler = unauthorized
	e.GET("/login", func(*echo.Context) error { return errPassword }, echo.WrapMiddleware(limit.New(nil, nil).Limit(failed("login"))))
	assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, e, true, 20, "/login"))
}

// TestSettlesAfterDeadlines answers after a middleware has ended the context of a request,
// whose handler has written nothing.
func TestSettlesAfterDeadlines(t *testing.T) {
	e := echo.New()
	ended := make(chan struct{})
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if err := next(c); err != nil {
				return err
			}
			<-ended
			return c.NoContent(http.StatusUnauthorized)
		}
	}, middleware.ContextTimeout(time.Hour))
	e.GET("/login", func(c *echo.Context) error {
		context.AfterFunc(c.Request().Context(), func() { ended <- struct{}{} })
		return nil
	}, echov5limit.New(limit.New(nil, nil)).Limit(failed("login")))
	assert.Equal(t, map[int]int{401: 5, 429: 15}, routetest.Statuses(t, e, true, 20, "/login"))
}
