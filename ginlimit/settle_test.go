package ginlimit_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/internal/routetest"
)

// failed admits five requests that are answered with 401.
func failed(name string) limit.RuleSet {
	return limit.Named(name, limit.Rule{Name: name, Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)})
}

var errPassword = errors.New("wrong password")

// TestSettlesByTheAnswer answers outside the limiter, as error middleware does.
func TestSettlesByTheAnswer(t *testing.T) {
	wrong := func(c *gin.Context) { _ = c.Error(errPassword) }
	for name, test := range map[string]struct {
		outside gin.HandlerFunc
		handler gin.HandlerFunc
	}{
		"JSON for an error": {func(c *gin.Context) {
			c.Next()
			if len(c.Errors) > 0 {
				c.JSON(http.StatusUnauthorized, gin.H{"error": c.Errors.String()})
			}
		}, wrong},
	} {
		for _, served := range []bool{false, true} {
			engine := gin.New()
			engine.Use(test.outside)
			engine.GET("/login", ginlimit.New(limit.New(nil, nil)).Limit(failed("login")), test.handler)
			assert.Equal(t, map[int]int{401: 5, 429: 95}, routetest.Statuses(t, engine, served, 100, "/login"), "%s, served: %v", name, served)
		}
	}
}
