package tags

import (
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
)

func handler(http.ResponseWriter, *http.Request) {}

// read returns the fields of a struct, and everything wrong with it.
func read(api any) ([]*Field, error) {
	fields, err := Read(api)
	if err != nil {
		return nil, err
	}
	return fields, Join(fields)
}

// A Ring embeds a pointer to itself.
type Ring struct {
	*Ring
	Handler http.HandlerFunc `route:"GET /ring" limit:"-"`
}

func TestEmbeddedInItself(t *testing.T) {
	ring := &Ring{Handler: handler}
	ring.Ring = ring
	fields := must.Get(read(ring))(t)
	assert.Len(t, fields, 1)
}

func TestPatterns(t *testing.T) {
	tag := func(route string) string { return "route:" + strconv.Quote(route) + ` limit:"-"` }
	for _, route := range []string{"GET /", "OPTIONS /a/{id}/:b/*", "CONNECT /ключ", "PATCH //"} {
		fields, err := read(tagged(tag(route)))
		if assert.NoError(t, err) {
			assert.Equal(t, route, fields[0].Method+" "+fields[0].Path)
		}
	}
	for _, route := range []string{
		"", " ", "GET", "GET ", "/", " /", "GET/", "get /", "FETCH /", "OTHER /", "* /", "GET  /", "GET\t/",
		"GET example.com/", "GET /a b", "GET /a\n", " GET /", "GET /\x00", "GET,POST /",
	} {
		_, err := read(tagged(tag(route)))
		assert.ErrorContains(t, err, `: write a method, a space and a path, such as "POST /update"`, "%q", route)
	}
	for _, malformed := range []string{`route: "GET /" limit:"-"`, `route:GET`, `limit:'-'`, `limit:`,
		`route:"GET /" limit:"5/2s per ip" policy:login`, `route:"GET /" limit:"5/2s per ip" policy: "login"`, `route:"GET /" limit:"5/2s per ip" policy:"\z"`,
		`route:"GET /" limit:"5/2s per ip", policy:"login"`, `json:"h", route:"GET /" limit:"-"`, `route :"GET /" limit :"-"`, "json:\"h\"\n\troute:\"GET /\" limit:\"-\"", `route:"GET /" limit:"5/2s per ip" limit:"-"`} {
		_, err := read(tagged(malformed))
		assert.ErrorContains(t, err, "the tag is malformed at ", malformed)
	}
	_, err := read(tagged(`json:"h" doc:"limit: none, route: none"`))
	assert.ErrorContains(t, err, "no routes in")
}

// tagged returns a struct with one handler, under a tag made at run time.
func tagged(tag string) any {
	typ := reflect.TypeFor[http.HandlerFunc]()
	v := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "H", Type: typ, Tag: reflect.StructTag(tag)}}))
	v.Elem().Field(0).Set(reflect.ValueOf(http.HandlerFunc(handler)))
	return v.Interface()
}

func TestPrefix(t *testing.T) {
	assert.Empty(t, Prefix("API.Update", nil))
	one, two := errors.New("one"), errors.New("two")
	err := errors.Join(Prefix("API.Update", errors.Join(errors.Join(one), two))...)
	assert.EqualError(t, err, "field API.Update: one\nfield API.Update: two")
	assert.ErrorIs(t, err, two)
}
