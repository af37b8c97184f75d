package echolimit_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/internal/routetest"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)})
}

var errPassword = errors.New("wrong password")

// unauthorized is an error handler of a program.
func unauthorized(err error, c echo.Context) {
	if errors.Is(err, errPassword) && !c.Response().Committed {
		_ = c.JSON(http.StatusUnauthorized, map[string]string{"error": err.Error()})
		return
	}
	c.Echo().DefaultHTTPErrorHandler(err, c)
}

// TestSettlesByTheAnswer answers outside the limiter, as error handlers do.
func TestSettlesByTheAnswer(t *testing.T) {
	wrong := func(echo.Context) error { return errPassword }
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
			e.GET("/login", test.handler, echolimit.New(limit.New(nil, nil)).Limit(failed("login")))
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, e, served, 100, "/login"), "%s, served: %v", name, served)
		}
	}
}
