package limit

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/fuzzloop"
)

// FuzzRoutes reads tags of any content, as a whole and part by part: they are a
// route with rules that hold, or an error that names the field.
func FuzzRoutes(t *testing.F) {
	f := fuzzloop.New(t)
	f.Add("POST /update", "5/2s per ip; 1000/1m global", "login", `route:"GET /" limit:"-"`)
	f.Add("GET /items/{id}", "login: 20/1h per user or ip", "a b", `limit:"5/2s" policy:"x"`)
	f.Add("get items", "-", "", `route:"POST /a"limit:"5/1m per ip"`)
	f.Fuzz(func(t *testing.T, route, limits, policy, raw string) {
		tag := func(route, limits string) string {
			return "route:" + strconv.Quote(route) + " limit:" + strconv.Quote(limits)
		}
		for _, tag := range []string{tag(route, limits), tag(route, "5/2s per ip"), tag("GET /", limits),
			tag("GET /", "5/2s per ip") + " policy:" + strconv.Quote(policy), raw} {
			w := routeWalk{seen: make(map[string]string)}
			field := reflect.StructField{Name: "Update", Tag: reflect.StructTag(tag)}
			w.field(field, reflect.ValueOf(answer(200)), "API.Update")
			for _, err := range w.errs {
				require.True(t, strings.HasPrefix(err.Error(), "field API.Update: "), "%v", err)
			}
			if len(w.errs) > 0 {
				continue
			}
			require.Len(t, w.routes, 1)
			r := w.routes[0]
			require.True(t, validMethod(r.Method) && validPath(r.Path), "%+v", r)
			if r.Limited {
				require.NoError(t, r.Rules.Validate())
			}
			_ = handle(http.NewServeMux(), r, answer(200)) // an error, and no panic
		}
	})
}
