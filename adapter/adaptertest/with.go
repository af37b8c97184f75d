package adaptertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// withOthers puts a set and one that is With it around each other, in both orders. Each
// quota is charged once, and given back if another one refuses.
func (s suite) withOthers(t *testing.T) {
	all := shared("all", limit.Everyone, 9)
	router := s.framework(limit.New(nil, nil))
	router.Group("/inside", all).Handle("GET", "/item", ok, rule("route", limit.Everyone, 1).With(all))
	router.Group("/outside", shared("group", limit.Everyone, 5).With(all)).Handle("GET", "/item", ok, all)
	router.Handle("GET", "/alone", ok, rule("route", limit.Everyone, 1).With(limit.Named("all")))
	c := serve(t, router)

	for _, want := range []struct {
		path    string
		status  int
		members string
	}{
		{"/inside/item", http.StatusNoContent, `"all";r=8;t=3600, "route";r=0;t=3600`},
		{"/outside/item", http.StatusNoContent, `"group";r=4;t=3600, "all";r=7;t=3600`},
		{"/inside/item", http.StatusTooManyRequests, `"all";r=7;t=3600, "route";r=0;t=3600`},
		{"/alone", http.StatusNoContent, `"route";r=0;t=3600, "all";r=6;t=3600`},
		{"/alone", http.StatusTooManyRequests, `"route";r=0;t=3600, "all";r=6;t=3600`},
	} {
		a := c.send("GET", want.path)
		require.Equal(t, want.status, a.StatusCode, want.path)
		assert.Equal(t, want.members, strings.Join(a.Header.Values("RateLimit"), ", "), want.path)
	}
}
