package proof

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fuzzloop"
)

// FuzzHeaders reads back what rules of any kind tell a client, with a parser of
// RFC 9651: the members of both fields, and on a refusal a time to come again.
func FuzzHeaders(t *testing.F) {
	f := fuzzloop.New(t)
	for a := range uint8(8) {
		f.Add("login", a, int64(2), int64(1_500_000), int64(2), uint8(3))
	}
	f.Add("", uint8(0), int64(100_000), int64(core.MaxWindow), int64(0), uint8(1))
	f.Fuzz(func(t *testing.T, name string, algorithm uint8, most, window, burst int64, asks uint8) {
		limiter := limit.New(nil, nil)
		rule := limit.Rule{Name: name, Key: limit.ByIP, Limit: most, Window: time.Duration(window%(1<<50)) * time.Microsecond,
			Algorithm: core.Algorithm(algorithm % 9)}
		switch rule.Algorithm {
		case limit.TokenBucket, limit.LeakyBucket, limit.Queue:
			rule.Burst = burst
		}
		rules := limit.Named("p", rule, limit.Global(time.Minute, 3))
		policy, err := limiter.Policy(rules)
		if err != nil {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		for range asks % 6 {
			d, err := policy.Decide(limit.Call{Request: r, Pattern: "/"})
			require.NoError(t, err)
			defer d.Release()
			h := make(http.Header)
			limit.SetHeaders(h, d)
			policies, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
			require.NoError(t, err, "%v", h)
			limits, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
			require.NoError(t, err, "%v", h)
			require.Len(t, policies, 2)
			require.Len(t, limits, 2)
			for i, said := range d.Rules() {
				p, l := policies[i].(httpsfv.Item), limits[i].(httpsfv.Item)
				require.Equal(t, said.Name, p.Value)
				require.Equal(t, said.Name, l.Value)
				q, _ := p.Params.Get("q")
				require.Equal(t, said.Limit, q)
				left, _ := l.Params.Get("r")
				require.Equal(t, said.Remaining, left)
				if after, ok := l.Params.Get("t"); ok {
					require.Positive(t, after)
				}
			}
			if d.Allowed || d.RetryAfter == 0 {
				require.Empty(t, h.Get("Retry-After"))
				continue
			}
			seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
			require.NoError(t, err)
			wait := time.Duration(seconds) * time.Second
			require.True(t, wait >= d.RetryAfter && wait < d.RetryAfter+time.Second, "%d for %v", seconds, d.RetryAfter)
		}
	})
}
