package echov5limit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echov5limit"
)

// TestMountReportsEverything checks that one error hides no other.
func TestMountReportsEverything(t *testing.T) {
	router := echo.New()
	err := echov5limit.New(limit.New(nil, nil)).Mount(router, struct {
		Text echo.HandlerFunc `route:"GET /text" limit:"5/2x per ip"`
		Type http.Handler     `route:"GET /type" limit:"5/2x per ip"`
		User echo.HandlerFunc `route:"GET /user" limit:"5/2s per user"`
		Path echo.HandlerFunc `route:"GET /path/:id/*" limit:"5/2s per path nope or path id or path *"`
		None echo.HandlerFunc `route:"GET /none" limit:"5/2s per path id"`
		Nil  http.Handler     `route:"GET /nil" limit:"-"`
	}{Text: ok, Type: http.NotFoundHandler(), User: ok, Path: ok, None: ok})
	require.Error(t, err)
	for _, want := range []string{
		`field Text: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: http.HandlerFunc is not a handler: write an echo.HandlerFunc`,
		`field User: limit: rule "5/2s per user": `,
		`field Path: limit: rule "5/2s per path nope or path id or path *": key "path nope": the path "/path/:id/*" has no such value: write "path id" or "path *"`,
		`field None: limit: rule "5/2s per path id": key "path id": the path "/none" has no values`,
		`field Nil: limit: the handler is nil`,
	} {
		assert.Equal(t, 1, strings.Count(err.Error(), want), want)
	}
	assert.Equal(t, 7, 1+strings.Count(err.Error(), "\nfield "))
	assert.Empty(t, router.Router().Routes())
}

// TestMountPathOfGroup checks that rules may name the path values of a group, though
// Echo does not export its prefix.
func TestMountPathOfGroup(t *testing.T) {
	api := struct {
		Item echo.HandlerFunc `route:"GET /items/:item" limit:"1/1m per path user and path item"`
	}{ok}
	router := echo.New()
	rl := echov5limit.New(limit.New(nil, nil))
	require.NoError(t, rl.Mount(router.Group("/users/:user"), api))
	assert.Len(t, router.Router().Routes(), 1)
	assert.ErrorContains(t, rl.Mount(router, api),
		`key "path user": the path "/items/:item" has no such value: write "path item"`)
	assert.Len(t, router.Router().Routes(), 1)
}
