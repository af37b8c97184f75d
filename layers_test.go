package limit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

// ok answers 200.
var ok200 = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})

func sent(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

// left returns what a rule of a named policy has left for a key.
func left(t *testing.T, l *limit.Limiter, policy, rule, key string) int64 {
	t.Helper()
	r, err := operate.Peek(t.Context(), l, policy, rule, key, "")
	require.NoError(t, err)
	return r.Remaining
}

// TestRefusalCostsNothingOutside sends ten requests through an application's quota of 100
// to a route that admits three.
func TestRefusalCostsNothingOutside(t *testing.T) {
	for name, l := range map[string]*limit.Limiter{
		"memory": limit.New(nil, nil),
		"Redis":  limit.New(redisstore.New(redistest.Real(t), nil), nil),
	} {
		t.Run(name, func(t *testing.T) {
			application, err := l.Policy(limit.Named("app", limit.Global(time.Hour, 100)))
			require.NoError(t, err)
			h := application.Middleware(l.Limit(limit.Named("route", limit.Global(time.Hour, 3)))(ok200))
			codes := map[int]int{}
			var last *httptest.ResponseRecorder
			for range 10 {
				last = sent(h, "/")
				codes[last.Code]++
			}
			assert.Equal(t, map[int]int{200: 3, 429: 7}, codes)
			assert.EqualValues(t, 97, left(t, l, "app", "global-1h", ""))
			assert.Equal(t, []string{`"global-1h";r=97;t=3600`, `"global-1h";r=0;t=3600`}, last.Header()["Ratelimit"])
		})
	}
}
