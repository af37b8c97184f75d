package limit

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// TestHeadersOfAlgorithms takes one unit by each algorithm: q and w are its
// rate, and r is what may still come at once.
func TestHeadersOfAlgorithms(t *testing.T) {
	for text, want := range map[string][3]string{ // policy, limit, and the trio's quota
		"100/1m global":                            {`"global-1m";q=100;w=60`, `"global-1m";r=99;t=60`, "100"},
		"100/1m global fixed-window":               {`"global-1m";q=100;w=60`, `"global-1m";r=99;t=60`, "100"},
		"100/1m global sliding-cells":              {`"global-1m";q=100;w=60`, `"global-1m";r=99;t=6\d`, "100"},
		"100/1m global sliding-counter":            {`"global-1m";q=100;w=60`, `"global-1m";r=99;t=\d+`, "100"},
		"100/1m global token-bucket burst 10":      {`"global-1m";q=100;w=60`, `"global-1m";r=9;t=1`, "10"},
		"100/1m global leaky-bucket burst 500":     {`"global-1m";q=100;w=60`, `"global-1m";r=499;t=1`, "500"},
		"100/1m global queue burst 20":             {`"global-1m";q=100;w=60`, `"global-1m";r=20;t=1`, "21"},
		"100/month global zone UTC":                {`"global-month";q=100`, `"global-month";r=99;t=\d+`, "100"},
		"100/1m global token-bucket burst 2 empty": {`"global-1m";q=100;w=60`, `"global-1m";r=0;t=1`, "2"},
	} {
		h := New(nil, &Options{Headers: Draft11 | XRateLimit}).Limit(MustParse(text))(answer(204))
		w := serve(h, nil)
		assert.Equal(t, want[0], w.Header().Get("RateLimit-Policy"), text)
		assert.Regexp(t, "^"+want[1]+"$", w.Header().Get("RateLimit"), text)
		assert.Equal(t, want[2], w.Header().Get("X-RateLimit-Limit"), text)
	}
}

// TestNearestOfLargeLimits checks that shares of large numbers are compared
// without an overflow.
func TestNearestOfLargeLimits(t *testing.T) {
	const most = core.MaxLimit
	h := New(nil, &Options{Headers: XRateLimit}).Limit(Rules(
		Rule{Name: "a", Key: Everyone, Limit: most, Window: time.Minute, Algorithm: FixedWindow{}},
		Rule{Name: "b", Key: Everyone, Limit: most - 1, Window: time.Minute, Algorithm: FixedWindow{},
			Cost: rules.CostBy("units", func(*http.Request) int64 { return most / 2 })},
	))(answer(204))
	assert.Equal(t, "499999999999", serve(h, nil).Header().Get("X-RateLimit-Remaining"))
}
