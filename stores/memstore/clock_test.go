package memstore

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

// TestClockBefore1970 has clocks that no machine should have.
func TestClockBefore1970(t *testing.T) {
	for _, now := range []int64{math.MinInt64, -1, math.MaxInt64} {
		s := New(&Options{Now: func() int64 { return now }})
		cells := core.Charge{Rule: "r", Cost: 1, Quota: core.Quota{Algorithm: core.SlidingCells, Limit: 2, Window: 1_000_000, Cells: 10}}
		lease := core.Charge{Rule: "l", Cost: 1, ID: 1, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: 1_000_000}}
		d := must.Get(storetest.Take(t.Context(), s, "p", []core.Charge{cells, lease}))(t)
		require.True(t, d.Allowed)
		given := must.Get(storetest.Return(t.Context(), s, "p", []core.Return{d.Return(0, cells)}))(t)
		require.Equal(t, []int64{1}, given)
		held := must.Get(storetest.Renew(t.Context(), s, "p", []core.Charge{lease}))(t)
		require.Equal(t, []bool{true}, held)
	}
}
