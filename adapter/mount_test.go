package adapter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
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

// A mounted is a route that Mount has registered.
type mounted struct {
	method, path, name, rules string
	status                    int // of its handler
}

// mount mounts a struct, and returns its routes.
func mount(api any) (routes []mounted, err error) {
	err = Mount(limit.New(nil, nil), api, func(_ string, rules limit.RuleSet) (limit.RuleSet, error) {
		return rules, nil
	}, func(method, path string, h http.HandlerFunc, limits ...limit.RuleSet) {
		w := httptest.NewRecorder()
		h(w, nil)
		m := mounted{method: method, path: path, status: w.Code}
		for _, rules := range limits {
			m.name, m.rules = rules.Name(), rules.String()
		}
		routes = append(routes, m)
	})
	return routes, err
}

func TestRoutes(t *testing.T) {
	api := newSampleAPI()
	for _, value := range []any{api, &api} {
		routes := must.Get(mount(value))(t)
		assert.Equal(t, []mounted{
			{"POST", "/update", "", "5/2s per ip; 1000/1m global", 201},
			{"DELETE", "/items/{id}", "", "login: 5/1m per user", 202},
			{"POST", "/login", "login", "5/1m per ip", 203},
			{"GET", "/health", "", "", 204},
		}, routes)
	}
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
		{(*sampleAPI)(nil), "limit: no routes in *adapter.sampleAPI: write a struct, or a pointer to one that is not nil"},
		{[]sampleAPI{}, "limit: no routes in []adapter.sampleAPI: write a struct"},
		{http.Server{}, "limit: no routes in http.Server: write tags such as `route:\"POST /update\" limit:\"5/2s per ip\"` after its fields"},
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
		}{h}, "field H: limit: rule \"0/2s per ip\": limit 0: write at least 1\n\t0/2s per ip; 0/1s global\n\t^\n" +
			"field H: limit: rule \"0/1s global\": limit 0: write at least 1"},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"1/s global" policy:""`
		}{h}, `field H: limit: policy name "": write 1 to 64 letters`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"1/s global" policy:"GET /"`
		}{h}, `field H: limit: policy name "GET /": write 1 to 64 letters`},
		{struct {
			H http.HandlerFunc `route:"GET /" limit:"-" policy:"login"`
		}{h}, `field H: limit: a policy without limits: remove policy:"login", or write rules`},
		{struct {
			h http.HandlerFunc `route:"GET /" limit:"-"`
		}{h}, "field h: limit: the field is not exported, so its handler cannot be read: begin its name with a capital letter"},
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
		{sampleAPI{Update: h, Login: h, SampleHealth: &SampleHealth{h}}, "field sampleAPI.sampleAdmin.Drop: limit: the handler is nil"},
		{struct {
			A http.HandlerFunc `route:"GET /" limit:"-"`
			B http.HandlerFunc `route:"GET /" limit:"-"`
		}{h, h}, `field B: limit: route "GET /" is also declared by field A: remove one of them`},
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
		routes, err := mount(test.api)
		assert.Empty(t, routes, "nothing is mounted if anything is wrong")
		if assert.Error(t, err, test.want) {
			assert.True(t, strings.HasPrefix(err.Error(), test.want), "want %s\n got %s", test.want, err)
		}
	}
	_, err := mount(struct {
		H int `route:"GET /users/:id" limit:"5/2x per path id"`
	}{})
	assert.ErrorContains(t, err, "field H: limit: int is not a handler: write the type http.HandlerFunc", "its type is checked though the rules are wrong")
	var wrong *rules.Error
	assert.ErrorAs(t, err, &wrong)
	assert.Equal(t, "5/2x per path id", wrong.Text)
	assert.Equal(t, 3, wrong.Offset)
}
