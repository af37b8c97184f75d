package adaptertest

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Mount checks that an adapter's Mount reports everything that is wrong with a
// struct in one error. Its message for a field that is not a handler of the framework
// is "limit: %T is not a handler: write …" with the type to write. The handler is one
// of the framework. The pattern is a path in the framework's syntax, with a parameter
// named id and a catch-all: "/path/:id/*rest", for example. The last argument is the
// name of the catch-all.
func Mount(t *testing.T, mount func(api any) error, handler any, pattern, rest string) {
	tags := []struct {
		name, tag string
		handler   any
	}{
		{"Text", `route:"GET /text" limit:"5/2x per ip"`, handler},
		{"Type", `route:"GET /type" limit:"5/2x per ip"`, http.NotFoundHandler()},
		{"User", `route:"GET /user" limit:"5/2s per user"`, handler},
		{"Path", fmt.Sprintf(`route:"GET %s" limit:"5/2s per path nope or path id or path %s"`, pattern, rest), handler},
		{"None", `route:"GET /none" limit:"5/2s per path id"`, handler},
		{"Nil", `route:"GET /nil" limit:"-"`, reflect.Zero(reflect.TypeOf(handler)).Interface()},
	}
	fields := make([]reflect.StructField, len(tags))
	for i, f := range tags {
		fields[i] = reflect.StructField{Name: f.name, Type: reflect.TypeOf(f.handler), Tag: reflect.StructTag(f.tag)}
	}
	api := reflect.New(reflect.StructOf(fields)).Elem()
	for i, f := range tags {
		api.Field(i).Set(reflect.ValueOf(f.handler))
	}
	err := mount(api.Interface())
	require.Error(t, err)
	for _, want := range []string{
		`field Text: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: column 4 of "5/2x per ip"`,
		`field Type: limit: http.HandlerFunc is not a handler: write `,
		`field User: limit: rule "5/2s per user": `,
		fmt.Sprintf(`field Path: limit: rule "5/2s per path nope or path id or path %[2]s": key "path nope": the path "%[1]s" has no such value: `+
			`write "path id" or "path %[2]s"`, pattern, rest),
		`field None: limit: rule "5/2s per path id": key "path id": the path "/none" has no values`,
		`field Nil: limit: the handler is nil`,
	} {
		assert.Equal(t, 1, strings.Count(err.Error(), want), want)
	}
	assert.Contains(t, err.Error(), fmt.Sprintf("%T", handler), "the type to write instead")
	assert.Equal(t, 7, 1+strings.Count(err.Error(), "\nfield "), err)
}
