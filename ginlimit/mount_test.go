package ginlimit_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/ginlimit"
)

func TestMount(t *testing.T) {
	adaptertest.Mount(t, func() (http.Handler, func(any) error) {
		router := gin.New()
		return router, func(api any) error { return ginlimit.New(limit.New(nil, nil)).Mount(router, api) }
	}, gin.HandlerFunc(ok), "/path/:id/*rest", "rest")
}

// TestMountPathOfGroup checks that rules find the path values of a group.
func TestMountPathOfGroup(t *testing.T) {
	api := struct {
		Item gin.HandlerFunc `route:"GET /items/:item" limit:"1/1m per path user and path item"`
	}{ok}
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil))
	require.NoError(t, rl.Mount(router.Group("/users/:user"), api))
	assert.Len(t, router.Routes(), 1)
	assert.ErrorContains(t, rl.Mount(router.Group("/teams/:team"), api),
		`key "path user": the path "/teams/:team/items/:item" has no such value: write "path team" or "path item"`)
	assert.Len(t, router.Routes(), 1)
}
