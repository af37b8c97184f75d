package tags

import (
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// FuzzTags checks that any tag is a route, or an error with the name of the field.
func FuzzTags(f *testing.F) {
	f.Add("POST /update", "5/2s per ip; 1000/1m global", "login", `route:"GET /" limit:"-"`)
	f.Add("GET /items/{id}", "login: 20/1h per user or ip", "a b", `limit:"5/2s" policy:"x"`)
	f.Add("get items", "-", "", `route:"POST /a"limit:"5/1m per ip"`)
	f.Fuzz(func(t *testing.T, route, limits, policy, raw string) {
		tag := func(route, limits string) string {
			return "route:" + strconv.Quote(route) + " limit:" + strconv.Quote(limits)
		}
		for _, tag := range []string{tag(route, limits), tag(route, "5/2s per ip"), tag("GET /", limits),
			tag("GET /", "5/2s per ip") + " policy:" + strconv.Quote(policy), tag("GET /", "5/2s per ip") + " policy:" + raw, raw} {
			f := &Field{Name: "API.Update"}
			w := walk{routes: make(map[string]string)}
			if !w.read(f, tag, reflect.ValueOf(http.HandlerFunc(handler))) {
				require.Equal(t, raw, tag)
				continue
			}
			require.Equal(t, []*Field{f}, w.fields)
			for _, err := range f.errs {
				require.True(t, strings.HasPrefix(err.Error(), "field API.Update: "), "%v", err)
			}
			if len(f.errs) > 0 {
				require.Error(t, Join(w.fields))
				continue
			}
			require.NotNil(t, f.Handler)
			require.Equal(t, tag != raw && strings.Contains(tag, " policy:"), f.Named, tag)
			require.True(t, validPath(f.Path) && strings.ToUpper(f.Method) == f.Method, "%+v", f)
			require.True(t, f.Limited || f.Limit == "" && !f.Named, "%+v", f)
		}
	})
}
