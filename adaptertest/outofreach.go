package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// farStore is a store that is out of reach.
type farStore struct{ core.Store }

func (farStore) Take(context.Context, string, []core.Charge) (core.Decision, error) {
	return core.Decision{}, fmt.Errorf("dial tcp: i/o timeout: %w", core.ErrUnavailable)
}

// outOfReach checks what each choice means to clients of a store that is out of
// reach, behind the two lines that a user writes.
func (s suite) outOfReach(t *testing.T) {
	var modes []limit.Mode
	router := s.framework(limit.New(farStore{nil}, &limit.Options{
		Observe: func(_ *http.Request, d limit.Decision, err error) {
			assert.NoError(t, err)
			modes = append(modes, d.Mode)
		},
	}))
	rule := func(on limit.OnError) limit.RuleSet {
		return limit.Rules(limit.Rule{Key: limit.ByIP, Limit: 2, Window: time.Hour, OnStoreError: on})
	}
	router.Handle("GET", "/local", ok, rule(limit.Local))
	router.Handle("GET", "/allow", ok, rule(limit.Allow))
	router.Handle("GET", "/refuse", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the handler runs")
	}), rule(limit.Refuse))
	c := serve(t, router)

	for _, want := range []int{http.StatusNoContent, http.StatusNoContent, http.StatusTooManyRequests} {
		require.Equal(t, want, c.send("GET", "/local").StatusCode)
		require.Equal(t, http.StatusNoContent, c.send("GET", "/allow").StatusCode)
		a := c.send("GET", "/refuse")
		p := requireProblem(t, a, http.StatusServiceUnavailable)
		assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", p.Type)
		assert.Equal(t, "1", a.Header.Get("Retry-After"))
		assert.NotContains(t, a.body, "dial", "clients do not learn why")
	}
	require.Len(t, modes, 9)
	for i, mode := range modes {
		assert.Equal(t, []limit.Mode{limit.ModeLocal, limit.ModeAllowed, limit.ModeRefused}[i%3], mode, i)
	}
}
