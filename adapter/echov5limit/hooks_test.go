package echov5limit_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/echov5limit"
	"github.com/routelimit/limit/internal/routetest"
)

// TestHooks answers by the functions of the Limiter, in Echo's own form.
func TestHooks(t *testing.T) {
	errMine := errors.New("mine")
	for name, test := range map[string]struct {
		refuse func(*echo.Context, limit.Decision) error
		status int
		body   string
		err    error
	}{
		"a body": {func(c *echo.Context, d limit.Decision) error { return c.String(402, d.Refusing()[0]) }, 402, "per-ip-1m", nil},
		"a body alone": {func(c *echo.Context, _ limit.Decision) error {
			_, err := c.Response().Write([]byte("later"))
			return err
		}, 429, "later", nil},
		"nothing":        {func(*echo.Context, limit.Decision) error { return nil }, 429, "", nil},
		"an error":       {func(*echo.Context, limit.Decision) error { return errMine }, 500, `{"message":"Internal Server Error"}` + "\n", errMine},
		"an error of it": {func(*echo.Context, limit.Decision) error { return echo.NewHTTPError(403, "no") }, 403, `{"message":"no"}` + "\n", echo.NewHTTPError(403, "no")},
	} {
		var seen error
		rl := echov5limit.New(limit.New(nil, nil))
		rl.Refuse = test.refuse
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { seen = next(c); return seen }
		})
		e.GET("/", ok, rl.Limit(limit.Rules(limit.PerIP(time.Minute, 1))))
		require.Equal(t, http.StatusNoContent, routetest.Do(e, "GET", "/").Code, name)
		w := routetest.Do(e, "GET", "/")
		assert.Equal(t, test.status, w.Code, name)
		assert.Equal(t, test.body, w.Body.String(), name)
		assert.Equal(t, "60", w.Header().Get("Retry-After"), name)
		assert.Equal(t, test.err, seen, name)
	}

	rl := echov5limit.New(limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)}))
	rl.Fail = func(c *echo.Context, err error) error {
		assert.ErrorIs(t, err, limit.ErrUndecided)
		_, err = c.Response().Write([]byte("no limiter"))
		return err
	}
	e := echo.New()
	e.GET("/", ok, rl.Limit(limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Minute,
		Cost: limit.CostBy("units", func(*http.Request) int64 { return -1 })})))
	w := routetest.Do(e, "GET", "/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "no limiter", w.Body.String())
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}
