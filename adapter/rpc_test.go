package adapter_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
)

func TestRPCStatus(t *testing.T) {
	for code, want := range map[uint32]int{
		0: 200, 1: 499, 2: 500, 5: 404, 7: 403, 8: 429, 14: 503, 16: 401, 17: 500, math.MaxUint32: 500,
	} {
		assert.Equal(t, want, adapter.RPCStatus(code), code)
	}
}

// TestRPC decides calls of a procedure that have no server behind them.
func TestRPC(t *testing.T) {
	limiter := limit.New(nil, nil)
	a := &adapter.Adapter[string]{
		RPC:   true,
		Route: func(procedure string) (string, string) { return "", procedure },
		Next:  func(string, *http.Request) (int, error) { return adapter.RPCStatus(0), nil },
	}
	perIP := limit.PerIP(time.Hour, 1)
	_, err := a.Bind(limiter, "", limit.Rules(perIP))
	assert.EqualError(t, err, `limit: rules 1/1h per ip cover many routes: write limit.Named("…", rules…) for one quota of all, `+
		`or limit.EachRoute(rules…) for a quota of each`)
	_, err = a.Bind(limiter, "", limit.EachRoute(limit.Per(limit.ByPathValue("id"), time.Hour, 1)))
	assert.ErrorContains(t, err, `key "path id": the path "/package.Service/Method" has no values`)
	_, err = a.Bind(limiter, "", limit.Named("books", perIP))
	assert.NoError(t, err)
	policy, err := a.Bind(limiter, "", limit.EachRoute(perIP))
	assert.NoError(t, err)

	const procedure = "/acme.v1.Books/Get"
	for i, peer := range []string{"192.0.2.1:1000", "192.0.2.2:1000", "192.0.2.1:2000"} {
		w := make(adapter.HeaderWriter)
		err := a.Serve(policy, w, adapter.RPCRequest(t.Context(), procedure, peer, http.Header{}), procedure)
		assert.Equal(t, `"per-ip-1h";r=0;t=3600`, w.Header().Get("RateLimit"))
		if i < 2 {
			assert.NoError(t, err)
		} else {
			assert.ErrorAs(t, err, new(*limit.RefusedError))
		}
	}
}
