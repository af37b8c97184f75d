package docs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
)

// TestOverridableOnGin is the route of docs/policy-files.md on Gin. Limiter.Change stands
// for the file.
func TestOverridableOnGin(t *testing.T) {
	limiter := limit.New(nil, nil)
	rl := ginlimit.New(limiter)
	rl.User = func(c *gin.Context) string { return c.GetString("user") }
	router := gin.New()
	authenticate := func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }
	update := okGin

	orders := limit.Named("orders", limit.PerUser(time.Minute, 5)).Overridable()
	router.PUT("/orders/:id", authenticate, rl.Limit(orders), update)

	require.NoError(t, limiter.Change(limit.Named("orders", limit.MustParse("1/1m per user and path id").Rules()...)))
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
