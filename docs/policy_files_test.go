package docs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/operate"
)

// TestOverridableOnGin is the route of docs/policy-files.md on Gin. operate.Change stands
// for the file.
func TestOverridableOnGin(t *testing.T) {
	limiter := limit.New(nil, nil)
	rl := ginlimit.New(limiter)
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	router := gin.New()
	authenticate := func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }
	update := okGin

	orders := limit.Named("orders", limit.PerUser(time.Minute, 5)).Overridable()
	router.PUT("/orders/:id", authenticate, rl.Limit(orders), update)

	require.NoError(t, operate.Change(limiter, limit.Named("orders", limit.MustParse("1/1m per user and path id").Rules()...)))
	seesUserAndPath(t, router)
}

// TestOverridableOnEcho is the same on Echo.
func TestOverridableOnEcho(t *testing.T) {
	limiter := limit.New(nil, nil)
	rl := echolimit.New(limiter)
	rl.Caller.User = func(c echo.Context) string { return c.Request().Header.Get("X-User") }
	router := echo.New()
	orders := limit.Named("orders", limit.PerUser(time.Minute, 5)).Overridable()
	router.PUT("/orders/:id", func(c echo.Context) error { return c.NoContent(http.StatusOK) }, rl.Limit(orders))
	require.NoError(t, operate.Change(limiter, limit.Named("orders", limit.MustParse("1/1m per user and path id").Rules()...)))
	seesUserAndPath(t, router)
}

// seesUserAndPath checks that each user has a quota for each order.
func seesUserAndPath(t *testing.T, router http.Handler) {
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{"alice", "/orders/1", http.StatusOK}, {"alice", "/orders/1", http.StatusTooManyRequests},
		{"alice", "/orders/2", http.StatusOK}, {"bob", "/orders/1", http.StatusOK},
	} {
		assert.Equal(t, c.want, send(router, "PUT", c.path, "X-User", c.user).Code, c)
	}
}
