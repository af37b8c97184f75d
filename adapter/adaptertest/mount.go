package adaptertest

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// Mount checks that an adapter's Mount reports everything that is wrong with a struct
// in one error, and then registers nothing, and that it registers what is right. Create
// returns a router and a function that mounts on it. The handler is one of the framework,
// and answers with 204. The pattern is a path in the framework's syntax, with a parameter
// named id and a catch-all: "/path/:id/*rest", for example. The last argument is the
// name of the catch-all.
//
// The message for a field that is not a handler of the framework is "limit: %T is not a
// handler: write …" with the type to write, as that of [adapter.Mount] is.
//
// [adapter.Mount]: https://pkg.go.dev/github.com/routelimit/limit/adapter#Mount
func Mount(t *testing.T, create func() (router http.Handler, mount func(api any) error), handler any, pattern, rest string) {
	router, mount := create()
	err := mount(tagged([]field{
		{"Text", `route:"GET /text" limit:"5/2x per ip"`, handler},
		{"Type", `route:"GET /type" limit:"5/2x per ip"`, func(http.ResponseWriter) {}},
		{"Ten", `route:"GET /ten" limit:"-"`, 10},
		{"User", `route:"GET /user" limit:"5/2s per user"`, handler},
		{"Path", fmt.Sprintf(`route:"GET %s" limit:"5/2s per path nope or path id or path %s"`, pattern, rest), handler},
		{"None", `route:"GET /none" limit:"5/2s per path id"`, handler},
		{"Nil", `route:"GET /nil" limit:"-"`, reflect.Zero(reflect.TypeOf(handler)).Interface()},
		{"Unset", `route:"GET /unset" limit:"5/2s per ip"`, reflect.Zero(reflect.TypeOf(handler)).Interface()},
		{"Good", `route:"GET /good" limit:"5/2s per ip"`, handler},
	}))
	require.Error(t, err)
	for _, want := range []string{
		`field Text: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: func(http.ResponseWriter) is not a handler: write `,
		`field Ten: limit: int is not a handler: write `,
		`field User: limit: rule "5/2s per user": `,
		fmt.Sprintf(`field Path: limit: rule "5/2s per path nope or path id or path %s": key "path nope": the path "`, rest),
		fmt.Sprintf(`%s" has no such value: write "path id" or "path %s"`, pattern, rest), // some have the method before the path
		`field None: limit: rule "5/2s per path id": key "path id": the path "`,
		`/none" has no values`,
		`field Nil: limit: the handler is nil`,
		`field Unset: limit: the handler is nil`,
	} {
		assert.Equal(t, 1, strings.Count(err.Error(), want), want)
	}
	assert.Contains(t, err.Error(), fmt.Sprintf("%T", handler), "the type to write instead")
	assert.Equal(t, 9, 1+strings.Count(err.Error(), "\nfield "), err)
	assert.ErrorAs(t, err, new(*rules.Error))
	assert.Equal(t, http.StatusNotFound, routetest.Do(router, "GET", "/good").Code, "nothing is mounted if anything is wrong")

	router, mount = create()
	require.NoError(t, mount(tagged([]field{
		{"Update", `route:"POST /update" limit:"2/1m per ip; 1000/1h global"`, handler},
		{"Item", fmt.Sprintf(`route:"GET %s" limit:"1/1m per path id"`, pattern), unnamed(handler)},
		{"Health", `route:"GET /health" limit:"-"`, handler},
	})))
	w := routetest.Do(router, "POST", "/update")
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Equal(t, `"per-ip-1m";r=1;t=60, "global-1h";r=999;t=3600`, w.Header().Get("RateLimit"))
	for i, id := range []string{"1", "2", "1"} {
		path := strings.NewReplacer(":id", id, "{id}", id, "*", "x", "{rest...}", "x").Replace(pattern)
		assert.Equal(t, i == 2, routetest.Do(router, "GET", path).Code == http.StatusTooManyRequests, path)
	}
	w = routetest.Do(router, "GET", "/health")
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Empty(t, w.Header().Get("RateLimit"))
}

// A field is one of a struct to mount.
type field struct {
	name, tag string
	value     any
}

func tagged(fields []field) any {
	types := make([]reflect.StructField, len(fields))
	for i, f := range fields {
		types[i] = reflect.StructField{Name: f.name, Type: reflect.TypeOf(f.value), Tag: reflect.StructTag(f.tag)}
	}
	api := reflect.New(reflect.StructOf(types)).Elem()
	for i, f := range fields {
		api.Field(i).Set(reflect.ValueOf(f.value))
	}
	return api.Interface()
}

// unnamed returns a function without the name of its type.
func unnamed(f any) any {
	named := reflect.TypeOf(f)
	in, out := make([]reflect.Type, named.NumIn()), make([]reflect.Type, named.NumOut())
	for i := range in {
		in[i] = named.In(i)
	}
	for i := range out {
		out[i] = named.Out(i)
	}
	return reflect.ValueOf(f).Convert(reflect.FuncOf(in, out, named.IsVariadic())).Interface()
}
