package limit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/adaptertest"
)

func TestMount(t *testing.T) {
	adaptertest.Mount(t, func() (http.Handler, func(any) error) {
		mux := http.NewServeMux()
		return mux, func(api any) error { return limit.New(nil, nil).Mount(mux, api) }
	}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "/path/{id}/{rest...}", "rest")
}

// TestMountOnServeMux checks the errors that a ServeMux and the policies of a limiter have
// beside those of every adapter.
func TestMountOnServeMux(t *testing.T) {
	h := status(http.StatusOK)
	limiter, mux := limit.New(nil, nil), http.NewServeMux()
	mustPolicy(limiter, limit.Named("login", limit.PerIP(time.Hour, 1)))
	err := limiter.Mount(mux, struct {
		Good   http.HandlerFunc `route:"GET /good" limit:"-"`
		None   http.HandlerFunc `route:"GET /none/{$}" limit:"5/2s per path id"`
		Colon  http.HandlerFunc `route:"GET /colon/:id" limit:"5/2s per path id"`
		Route  http.HandlerFunc `route:"GET nil" limit:"5/2s per path id and user"`
		Policy http.HandlerFunc `route:"GET /policy" limit:"5/2s per path id" policy:"a b"`
		First  http.HandlerFunc `route:"GET /{" limit:"-"`
		Second http.HandlerFunc `route:"GET /{" limit:"-"`
		Login  http.HandlerFunc `route:"GET /login" limit:"2/h per ip" policy:"login"`
		Third  http.HandlerFunc `route:"GET /a/{x}" limit:"-"`
		Fourth http.HandlerFunc `route:"GET /{x}/a" limit:"-"`
		Router *http.ServeMux   `route:"GET /sub/{path...}" limit:"5/2s per ip"`
	}{h, h, h, h, h, h, h, h, h, h, http.NewServeMux()})
	require.Error(t, err)
	wants := []string{
		`field None: limit: rule "5/2s per path id": key "path id": the path "GET /none/{$}" has no values`,
		`field Colon: limit: rule "5/2s per path id": key "path id": the path "GET /colon/:id" has no values`,
		`field Route: limit: route "GET nil": write a method`,
		`field Route: limit: rule "5/2s per path id and user": `,
		`field Policy: limit: policy name "a b": write`,
		`field First: limit: route "GET /{": parsing`,
		`field Second: limit: route "GET /{" is also declared by field First`,
		`field Login: limit: policy "login": already has other rules`,
		`field Fourth: limit: route "GET /{x}/a": pattern`,
		`field Router: limit: a router has many routes`,
	}
	for _, want := range wants {
		assert.Equal(t, 1, strings.Count(err.Error(), want), "%s\n%v", want, err)
	}
	assert.Equal(t, len(wants), 1+strings.Count(err.Error(), "\nfield "), err)
	_, pattern := mux.Handler(httptest.NewRequest("GET", "/good", nil))
	assert.Empty(t, pattern, "mounted in spite of errors")

	assert.Error(t, limiter.Mount(mux, nil))
	one := struct {
		Good http.HandlerFunc `route:"GET /good" limit:"-"`
	}{h}
	require.NoError(t, limiter.Mount(mux, one), "after errors")
	assert.Panics(t, func() { _ = limiter.Mount(mux, one) }, "twice on one mux")
}

// TestMountWith names other sets in tags.
func TestMountWith(t *testing.T) {
	h := status(http.StatusOK)
	limiter, mux := limit.New(nil, nil), http.NewServeMux()
	mustPolicy(limiter, limit.Named("app", limit.Global(time.Hour, 3)))
	require.NoError(t, limiter.Mount(mux, struct {
		Login http.HandlerFunc `route:"GET /login" limit:"2/h per ip; with app" policy:"login"`
		Order http.HandlerFunc `route:"GET /order" limit:"with login; with app"`
	}{h, h}))
	var got []int
	for _, path := range []string{"/login", "/order", "/order", "/login"} {
		got = append(got, send(mux, "GET", path).Code)
	}
	assert.Equal(t, []int{200, 200, 429, 429}, got)
	assert.ErrorContains(t, limiter.Mount(mux, struct {
		Other http.HandlerFunc `route:"GET /other" limit:"2/h per ip; with nobody"`
	}{h}), `field Other: limit: with nobody: no policy has that name: declare limit.Named("nobody", rules…) before`)
}
