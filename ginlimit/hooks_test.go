package ginlimit_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// TestHooks answers by the functions of the Limiter, in Gin's own form.
func TestHooks(t *testing.T) {
	for name, test := range map[string]struct {
		refuse func(*gin.Context, limit.Decision)
		status int
		body   string
	}{
		"a body":       {func(c *gin.Context, d limit.Decision) { c.String(402, routetest.Refused(d)[0]) }, 402, "per-ip-1m"},
		"a body alone": {func(c *gin.Context, _ limit.Decision) { c.Writer.WriteString("later") }, 429, "later"},
		"a status":     {func(c *gin.Context, _ limit.Decision) { c.AbortWithStatus(403) }, 403, ""},
		"nothing":      {func(*gin.Context, limit.Decision) {}, 429, ""},
	} {
		var seen []*gin.Error
		rl := ginlimit.New(limit.New(nil, nil))
		rl.Refuse = test.refuse
		engine := gin.New()
		engine.Use(func(c *gin.Context) { c.Next(); seen = c.Errors })
		engine.GET("/", rl.Limit(limit.Rules(limit.PerIP(time.Minute, 1))), func(c *gin.Context) { c.Status(http.StatusNoContent) })
		require.Equal(t, http.StatusNoContent, routetest.Do(engine, "GET", "/").Code, name)
		require.Empty(t, seen, name)
		w := routetest.Do(engine, "GET", "/")
		assert.Equal(t, test.status, w.Code, name)
		assert.Equal(t, test.body, w.Body.String(), name)
		assert.Equal(t, "60", w.Header().Get("Retry-After"), name)
		require.Len(t, seen, 1, name)
		assert.ErrorAs(t, seen[0], new(*limit.RefusedError), name)
	}

	rl := ginlimit.New(limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)}))
	rl.Fail = func(c *gin.Context, err error) {
		assert.ErrorIs(t, err, limit.ErrUndecided)
		c.Writer.WriteString("no limiter")
	}
	engine := gin.New()
	engine.GET("/", rl.Limit(limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Minute,
		Cost: rules.CostBy("units", func(*http.Request) int64 { return -1 })})), func(*gin.Context) { t.Error("the handler runs uncounted") })
	w := routetest.Do(engine, "GET", "/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "no limiter", w.Body.String())
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}
