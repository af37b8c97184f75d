package tags

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
