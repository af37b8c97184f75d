package echolimit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
	"github.com/routelimit/limit/echolimit"
)

func TestMount(t *testing.T) {
	adaptertest.Mount(t, func() (http.Handler, func(any) error) {
		router := echo.New()
		return router, func(api any) error { return echolimit.New(limit.New(nil, nil)).Mount(router, api) }
	}, echo.HandlerFunc(ok), "/path/:id/*", "*")
}

// TestMountPathOfGroup checks that rules may name the path values of a group, whose
// prefix Echo does not export.
func TestMountPathOfGroup(t *testing.T) {
	api := struct {
		Item echo.HandlerFunc `route:"GET /items/:item" limit:"1/1m per path user and path item"`
	}{ok}
	router := echo.New()
	rl := echolimit.New(limit.New(nil, nil))
	require.NoError(t, rl.Mount(router.Group("/users/:user"), api))
	assert.Len(t, router.Routes(), 1)
	assert.ErrorContains(t, rl.Mount(router, api),
		`key "path user": the path "/items/:item" has no such value: write "path item"`)
	assert.Len(t, router.Routes(), 1)
}
