package limit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/grammar"
)

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

type sampleAdmin struct {
	Drop http.Handler `route:"DELETE /items/{id}" limit:"login: 5/1m per user"`
	//lint:ignore U1000 a field without tags is no route
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
	//lint:ignore U1000 a field without tags is no route
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

func TestRoutes(t *testing.T) {
	api := newSampleAPI()
	for _, value := range []any{api, &api} {
		routes, err := Routes(value)
		require.NoError(t, err)
		for i := range routes {
			assert.NotNil(t, routes[i].Handler)
			routes[i].Handler = nil
		}
		assert.Equal(t, []Route{
			{Method: "POST", Path: "/update", Field: "sampleAPI.Update", Limited: true,
				Rules: Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000))},
			{Method: "DELETE", Path: "/items/{id}", Field: "sampleAPI.sampleAdmin.Drop", Limited: true,
				Rules: Rules(Rule{Name: "login", Key: ByUser, Limit: 5, Window: time.Minute})},
			{Method: "POST", Path: "/login", Field: "sampleAPI.Login", Limited: true,
				Rules: Named("login", PerIP(time.Minute, 5))},
			{Method: "GET", Path: "/health", Field: "sampleAPI.SampleHealth.Health"},
		}, routes)
	}

	anonymous, err := Routes(struct {
		Handler any `route:"TRACE /" limit:"1/s global"`
	}{"any value"})
	require.NoError(t, err)
	assert.Equal(t, "Handler", anonymous[0].Field)
	assert.Equal(t, "any value", anonymous[0].Handler)
}

// A ring embeds itself, by way of a pointer.
type Ring struct {
	*Ring
	Handler http.HandlerFunc `route:"GET /ring" limit:"-"`
}

func TestRoutesOfRing(t *testing.T) {
	ring := &Ring{Handler: answer(200)}
	ring.Ring = ring
	routes, err := Routes(ring)
	require.NoError(t, err)
	assert.Len(t, routes, 1)
}

func TestRoutesErrors(t *testing.T) {
	h := answer(200)
	type Embedded struct {
		H http.HandlerFunc `route:"GET /" limit:"-"`
	}
	tests := []struct {
		api  any
		want string // all lines, or the beginning of the only one
	}{
		{nil, "limit: no routes in <nil>: write a struct, or a pointer to one that is not nil"},
		{42, "limit: no routes in int: write a struct"},
		{(*sampleAPI)(nil), "limit: no routes in *limit.sampleAPI: write a struct, or a pointer to one that is not nil"},
		{[]sampleAPI{}, "limit: no routes in []limit.sampleAPI: write a struct"},
		{http.Server{}, "limit: no routes in http.Server: write tags such as `route:\"POST /update\" limit:\"5/2s per ip\"` behind its fields"},
		{struct {
			H http.HandlerFunc `route:"GET /"`
		}{h}, `field H: limit: no limit tag: write limit:"100/1m per ip", or limit:"-" for a route without limits`},
		{struct {
			H http.HandlerFunc `limit:"5/2s per ip"`
		}{h}, `field H: limit: a limit without a route: write route:"POST /update" beside it`},
		{struct {
			H http.HandlerFunc `limit:"-"`
		}{h}, `field H: limit: a limit without a route`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"5/2x per ip"`
		}{h}, `field H: limit: column 4 of "5/2x per ip": found "x", want a unit such as s, m, h or d`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:""`
		}{h}, `field H: limit: column 1 of "": found the end`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"0/2s per ip; 0/1s global"`
		}{h}, "field H: limit: rule \"0/2s per ip\": limit 0: write at least 1\n" +
			"field H: limit: rule \"0/1s global\": limit 0: write at least 1"},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"1/s global" policy:""`
		}{h}, `field H: limit: policy name "": write 1 to 64 letters`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"1/s global" policy:"GET /"`
		}{h}, `field H: limit: policy name "GET /": write 1 to 64 letters`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"-" policy:"login"`
		}{h}, `field H: limit: a policy without limits: drop policy:"login", or write rules`},
		{struct {
			h http.HandlerFunc `route:"GET /" limit:"-"`
		}{h}, "field h: limit: a handler that cannot be reached: begin the name of the field with a capital letter"},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"-"`
		}{}, "field H: limit: the handler is nil: set the field before mounting"},
		{struct {
			H http.Handler `route:"GET /" limit:"-"`
		}{}, "field H: limit: the handler is nil"},
		{struct {
			H http.Handler `route:"GET /" limit:"-"`
		}{http.HandlerFunc(nil)}, "field H: limit: the handler is nil"},
		{struct {
			H http.Handler `route:"GET /" limit:"-"`
		}{(*http.ServeMux)(nil)}, "field H: limit: the handler is nil"},
		{struct{ *Embedded }{}, "field Embedded.H: limit: the handler is nil"},
		{struct {
			A http.HandlerFunc `route:"GET /" limit:"-"`
			B http.HandlerFunc `route:"GET /" limit:"-"`
		}{h, h}, `field B: limit: route "GET /" is that of field A: drop one of them`},
		{struct {
			A http.HandlerFunc `route:"get /"`
			B http.HandlerFunc `route:"GET /b" limit:"5/2s"`
			C http.HandlerFunc `route:"GET /c" limit:"-"`
		}{h, h, nil}, "field A: limit: route \"get /\": write a method, a space and a path, such as \"POST /update\"\n" +
			"field A: limit: no limit tag: write limit:\"100/1m per ip\", or limit:\"-\" for a route without limits\n" +
			"field B: limit: column 5 of \"5/2s\": found the end, want \"per\" and a key such as ip or user, or \"global\"\n\t5/2s\n\t    ^\n" +
			"field C: limit: the handler is nil: set the field before mounting"},
	}
	for _, test := range tests {
		routes, err := Routes(test.api)
		assert.Nil(t, routes)
		if assert.Error(t, err, test.want) {
			assert.True(t, strings.HasPrefix(err.Error(), test.want), "want %s\n got %s", test.want, err)
		}
	}
	_, err := Routes(struct {
		H http.HandlerFunc `route:"GET /" limit:"5/2x per ip"`
	}{h})
	var parse *grammar.ParseError
	assert.ErrorAs(t, err, &parse)
}

func TestRoutesPatterns(t *testing.T) {
	tag := func(route string) string { return "route:" + strconv.Quote(route) + ` limit:"-"` }
	for _, route := range []string{"GET /", "OPTIONS /a/{id}/:b/*", "CONNECT /ключ", "PATCH //"} {
		routes, err := Routes(tagged(tag(route)))
		if assert.NoError(t, err) {
			assert.Equal(t, route, routes[0].Method+" "+routes[0].Path)
		}
	}
	for _, route := range []string{
		"", " ", "GET", "GET ", "/", " /", "GET/", "get /", "FETCH /", "OTHER /", "* /", "GET  /", "GET\t/",
		"GET example.com/", "GET /a b", "GET /a\n", " GET /", "GET /\x00", "GET,POST /",
	} {
		_, err := Routes(tagged(tag(route)))
		assert.ErrorContains(t, err, `: write a method, a space and a path, such as "POST /update"`, "%q", route)
	}
	for _, malformed := range []string{`route: "GET /" limit:"-"`, `route:GET`, `limit:'-'`, `limit:`} {
		_, err := Routes(tagged(malformed))
		assert.ErrorContains(t, err, "cannot be read: write `route:\"POST /update\" limit:\"5/2s per ip\"`", malformed)
	}
	_, err := Routes(tagged(`json:"h" doc:"limit: none, route: none"`))
	assert.ErrorContains(t, err, "no routes in")
}

// tagged returns a struct with one handler, under a tag made at run time.
func tagged(tag string) any {
	handler := reflect.TypeFor[http.HandlerFunc]()
	v := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "H", Type: handler, Tag: reflect.StructTag(tag)}}))
	v.Elem().Field(0).Set(reflect.ValueOf(answer(200)))
	return v.Interface()
}

func TestMount(t *testing.T) {
	api := newSampleAPI()
	limiter := New(nil, &Options{User: func(r *http.Request) string { return r.Header.Get("User") }})
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

func TestMountErrors(t *testing.T) {
	h := answer(200)
	limiter := New(nil, nil)
	mustPolicy(limiter, Named("login", PerIP(time.Hour, 1)))
	mux := http.NewServeMux()
	err := limiter.Mount(mux, struct {
		Good   http.HandlerFunc          `route:"GET /good" limit:"-"`
		Text   string                    `route:"GET /text" limit:"-"`
		Func   func(http.ResponseWriter) `route:"GET /func" limit:"1/s global"`
		User   http.HandlerFunc          `route:"GET /user" limit:"1/s per user"`
		Login  http.HandlerFunc          `route:"GET /login" limit:"2/h per ip" policy:"login"`
		Brace  http.HandlerFunc          `route:"GET /{" limit:"-"`
		First  http.HandlerFunc          `route:"GET /a/{x}" limit:"-"`
		Second http.HandlerFunc          `route:"GET /{x}/a" limit:"-"`
	}{h, "", func(http.ResponseWriter) {}, h, h, h, h, h})
	require.Error(t, err)
	var lines []string
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		line, _, _ := strings.Cut(err.Error(), "\n")
		lines = append(lines, line)
	}
	wants := []string{
		"field Text: limit: string is no handler: write an http.Handler or a func(http.ResponseWriter, *http.Request)",
		"field Func: limit: func(http.ResponseWriter) is no handler: write",
		`field User: limit: rule "1/1s per user": no user resolver`,
		`field Login: limit: policy "login" already has other rules`,
		`field Brace: limit: route "GET /{": parsing`,
		`field Second: limit: route "GET /{x}/a": pattern`,
	}
	require.Len(t, lines, len(wants), "%s", lines)
	for i, want := range wants {
		assert.Contains(t, lines[i], want)
	}
	_, pattern := mux.Handler(httptest.NewRequest("GET", "/good", nil))
	assert.Empty(t, pattern, "mounted in spite of errors")

	assert.Error(t, limiter.Mount(mux, nil))
	one := struct {
		Good http.HandlerFunc `route:"GET /good" limit:"-"`
	}{h}
	require.NoError(t, limiter.Mount(mux, one))
	assert.Panics(t, func() { _ = limiter.Mount(mux, one) }, "twice on one mux")
	var problem *RuleError
	assert.True(t, errors.As(err, &problem))
}
