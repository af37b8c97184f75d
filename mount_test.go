package limit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/rules"
)

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

type sampleAdmin struct {
	Drop http.Handler `route:"DELETE /items/{id}" limit:"login: 5/1m per user"`
	//lint:ignore U1000 a field without tags is not a route
	secret string
}

type SampleHealth struct {
	Health func(http.ResponseWriter, *http.Request) `route:"GET /health" limit:"-"`
}

type sampleAPI struct {
	Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
	sampleAdmin
	Login http.HandlerFunc `json:"-" route:"POST /login" limit:"5/1m per ip" policy:"login"`
	*SampleHealth
	Other string `json:"other"`
	//lint:ignore U1000 a field without tags is not a route
	logger *http.Server
}

func newSampleAPI() sampleAPI {
	return sampleAPI{
		Update:       answer(201),
		sampleAdmin:  sampleAdmin{Drop: answer(202)},
		Login:        answer(203),
		SampleHealth: &SampleHealth{Health: answer(204)},
	}
}

func TestMount(t *testing.T) {
	api := newSampleAPI()
	limiter := New(nil, &Options{Caller: Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("User") }}})
	mux := http.NewServeMux()
	require.NoError(t, limiter.Mount(mux, &api))

	serve := func(method, path string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	for range 5 {
		assert.Equal(t, 201, serve("POST", "/update"))
		assert.Equal(t, 202, serve("DELETE", "/items/7"))
		assert.Equal(t, 203, serve("POST", "/login"))
	}
	assert.Equal(t, 429, serve("POST", "/update"))
	assert.Equal(t, 429, serve("DELETE", "/items/8"))
	assert.Equal(t, 429, serve("POST", "/login"))
	for range 100 {
		assert.Equal(t, 204, serve("GET", "/health"))
	}
}

// TestMountReportsEverything checks that one error hides no other.
func TestMountReportsEverything(t *testing.T) {
	h := answer(200)
	limiter, mux := New(nil, nil), http.NewServeMux()
	mustPolicy(limiter, Named("login", PerIP(time.Hour, 1)))
	err := limiter.Mount(mux, struct {
		Good   http.HandlerFunc          `route:"GET /good" limit:"-"`
		Text   http.HandlerFunc          `route:"GET /text" limit:"5/2x per ip"`
		Type   string                    `route:"GET /type" limit:"5/2x per ip"`
		User   http.HandlerFunc          `route:"GET /user" limit:"5/2s per user"`
		Path   http.HandlerFunc          `route:"GET /path/{id}/{rest...}" limit:"5/2s per path nope or path id or path rest"`
		None   http.HandlerFunc          `route:"GET /none/{$}" limit:"5/2s per path id"`
		Colon  http.HandlerFunc          `route:"GET /colon/:id" limit:"5/2s per path id"`
		Nil    http.Handler              `route:"GET /nil" limit:"-"`
		Route  http.HandlerFunc          `route:"GET nil" limit:"5/2s per path id and user"`
		Policy http.HandlerFunc          `route:"GET /policy" limit:"5/2s per path id" policy:"a b"`
		First  http.HandlerFunc          `route:"GET /{" limit:"-"`
		Second http.HandlerFunc          `route:"GET /{" limit:"-"`
		Func   func(http.ResponseWriter) `route:"GET /func" limit:"1/s global"`
		Login  http.HandlerFunc          `route:"GET /login" limit:"2/h per ip" policy:"login"`
		Third  http.HandlerFunc          `route:"GET /a/{x}" limit:"-"`
		Fourth http.HandlerFunc          `route:"GET /{x}/a" limit:"-"`
	}{h, h, "", h, h, h, h, nil, h, h, h, h, func(http.ResponseWriter) {}, h, h, h})
	require.Error(t, err)
	wants := []string{
		`field Text: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: string is not a handler: write an http.Handler or a func(http.ResponseWriter, *http.Request)`,
		`field Type: limit: column 4 of "5/2x per ip"`,
		`field User: limit: rule "5/2s per user": no user resolver`,
		`field Path: limit: rule "5/2s per path nope or path id or path rest": key "path nope": the path "GET /path/{id}/{rest...}" has no such value: write "path id" or "path rest"`,
		`field None: limit: rule "5/2s per path id": key "path id": the path "GET /none/{$}" has no values`,
		`field Colon: limit: rule "5/2s per path id": key "path id": the path "GET /colon/:id" has no values`,
		`field Nil: limit: the handler is nil`,
		`field Route: limit: route "GET nil": write a method`,
		`field Route: limit: rule "5/2s per path id and user": `,
		`field Policy: limit: policy name "a b": write`,
		`field First: limit: route "GET /{": parsing`,
		`field Second: limit: route "GET /{" is also declared by field First`,
		"field Func: limit: func(http.ResponseWriter) is not a handler: write",
		`field Login: limit: policy "login": already has other rules`,
		`field Fourth: limit: route "GET /{x}/a": pattern`,
	}
	lines := errorsOf(err)
	require.Len(t, lines, len(wants), "%v", err)
	for i, want := range wants {
		assert.ErrorContains(t, lines[i], want)
	}
	for _, path := range []string{"/good", "/user"} {
		_, pattern := mux.Handler(httptest.NewRequest("GET", path, nil))
		assert.Empty(t, pattern, "mounted in spite of errors")
	}
	var problem *rules.Error
	assert.True(t, errors.As(err, &problem))
	require.NoError(t, limiter.Mount(mux, struct {
		Good http.HandlerFunc `route:"GET /good" limit:"-"`
	}{h}), "after errors")
}

// TestMountWith names other sets in tags.
func TestMountWith(t *testing.T) {
	h := answer(200)
	limiter, mux := New(nil, nil), http.NewServeMux()
	mustPolicy(limiter, Named("app", Global(time.Hour, 3)))
	require.NoError(t, limiter.Mount(mux, struct {
		Login http.HandlerFunc `route:"GET /login" limit:"2/h per ip; with app" policy:"login"`
		Order http.HandlerFunc `route:"GET /order" limit:"with login; with app"`
	}{h, h}))
	var got []int
	for _, path := range []string{"/login", "/order", "/order", "/login"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		got = append(got, w.Code)
	}
	assert.Equal(t, []int{200, 200, 429, 429}, got)
	assert.ErrorContains(t, limiter.Mount(mux, struct {
		Other http.HandlerFunc `route:"GET /other" limit:"2/h per ip; with nobody"`
	}{h}), `field Other: limit: with nobody: no policy has that name: declare limit.Named("nobody", rules…) before`)
}

func TestMountErrors(t *testing.T) {
	h := answer(200)
	limiter, mux := New(nil, nil), http.NewServeMux()
	assert.Error(t, limiter.Mount(mux, nil))
	one := struct {
		Good http.HandlerFunc `route:"GET /good" limit:"-"`
	}{h}
	require.NoError(t, limiter.Mount(mux, one))
	assert.Panics(t, func() { _ = limiter.Mount(mux, one) }, "twice on one mux")
}
