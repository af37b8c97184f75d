package echov5limit_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echov5limit"
	"github.com/routelimit/limit/internal/routetest"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)})
}

var errPassword = errors.New("wrong password")

// unauthorized is an error handler of a program.
func unauthorized(c *echo.Context, err error) {
	if errors.Is(err, errPassword) {
		_ = c.JSON(http.StatusUnauthorized, map[string]string{"error": err.Error()})
		return
	}
	echo.DefaultHTTPErrorHandler(false)(c, err)
}

// TestSettlesByTheAnswer answers outside the limiter, as error handlers do.
func TestSettlesByTheAnswer(t *testing.T) {
	wrong := func(*echo.Context) error { return errPassword }
	for name, test := range map[string]struct {
		outside echo.MiddlewareFunc
		handler echo.HandlerFunc
	}{
		"error handler": {func(next echo.HandlerFunc) echo.HandlerFunc { return next }, wrong},
	} {
		for _, served := range []bool{false, true} {
			e := echo.New()
			e.HTTPErrorHandler = unauthorized
			e.Use(test.outside)
			e.GET("/login", test.handler, echov5limit.New(limit.New(nil, nil)).Limit(failed("login")))
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, e, served, 100, "/login"), "%s, served: %v", name, served)
		}
	}
}
