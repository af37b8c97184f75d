package proof

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

// TestStructuredFields parses the headers of real responses with a parser of RFC 9651 and
// compares them with the draft: the parameters and their types.
func TestStructuredFields(t *testing.T) {
	limiter := limit.New(nil, nil)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	inner := limiter.Limit(limit.Named("route", limit.Rule{Name: "A.b-c_9", Key: limit.ByIP, Limit: 2, Window: 1500 * time.Millisecond},
		limit.Per(limit.ByHeader("X-Key"), 366*24*time.Hour, 100_000)))(ok)
	mux := http.NewServeMux()
	mux.Handle("/{$}", inner)
	mux.Handle("/free", ok)
	server := httptest.NewServer(limiter.Limit(limit.Named("site", limit.Global(time.Minute, 3)))(mux))
	defer server.Close()

	type member struct {
		q int64
		w any // nil, or seconds
	}
	want := map[string]member{
		"global-1m":             {q: 3, w: int64(60)},
		"A.b-c_9":               {q: 2},
		"per-header-x-key-366d": {q: 100_000, w: int64(366 * 24 * 3600)},
	}
	for i, path := range []string{"/", "/", "/", "/free", "/free"} {
		response, err := http.Get(server.URL + path)
		require.NoError(t, err)
		response.Body.Close()
		h := response.Header

		policy, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
		require.NoError(t, err)
		for _, m := range policy {
			item := m.(httpsfv.Item)
			expected, known := want[item.Value.(string)]
			require.True(t, known, "%v", item.Value)
			q, _ := item.Params.Get("q")
			assert.Equal(t, expected.q, q)
			w, _ := item.Params.Get("w")
			assert.Equal(t, expected.w, w)
			for _, name := range item.Params.Names() {
				assert.Contains(t, []string{"q", "w"}, name)
			}
		}
		limits, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
		require.NoError(t, err)
		require.Len(t, limits, len(policy))
		for j, m := range limits {
			item := m.(httpsfv.Item)
			assert.Equal(t, policy[j].(httpsfv.Item).Value, item.Value, "the same members in the same order")
			r, _ := item.Params.Get("r")
			assert.GreaterOrEqual(t, r.(int64), int64(0))
			if after, ok := item.Params.Get("t"); ok {
				assert.Positive(t, after.(int64))
			}
			for _, name := range item.Params.Names() {
				assert.Contains(t, []string{"r", "t"}, name)
			}
		}
		switch {
		case i < 2:
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Len(t, policy, 3, "a site and a route stack their members")
		case i == 2: // the route refuses, and the site gives back what it took
			assert.Equal(t, http.StatusTooManyRequests, response.StatusCode)
			assert.Len(t, policy, 3)
			assert.Equal(t, "2", h.Get("Retry-After"), "1.5 s, rounded up")
		case i == 3:
			assert.Equal(t, http.StatusOK, response.StatusCode)
			assert.Len(t, policy, 1)
		default: // the site refuses, before the route is asked
			assert.Equal(t, http.StatusTooManyRequests, response.StatusCode)
			assert.Len(t, policy, 1)
			assert.Equal(t, "60", h.Get("Retry-After"))
		}
	}
}
