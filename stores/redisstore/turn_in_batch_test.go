package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// TestTurnInABatch has a request take a turn that was given back, and another look, in
// one call: the turn is named to the first alone.
func TestTurnInABatch(t *testing.T) {
	store := New(redistest.Client(t), &Options{Timeout: time.Minute})
	charges := []core.Charge{{Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.Queue, Limit: 1, Window: time.Hour.Microseconds(), Burst: 9}}}
	var all []core.Decision
	for range 4 {
		d := storetest.MustTake(t, store, charges...)
		all = append(all, d)
	}
	given := must.Get(storetest.Return(t.Context(), store, "p", []core.Return{all[2].Return(0, charges[0])}))(t)
	require.Equal(t, []int64{1}, given)
	look := []core.Charge{charges[0]}
	look[0].Cost = 0
	batch := []*request{{asks: ask(charges)}, {asks: ask(look)}}
	store.batcher(ask(charges)).call(t.Context(), batch)
	ends := func(d core.Decision) int64 { return d.At + d.Outcomes()[0].ResetAfter }
	for _, r := range batch {
		require.NoError(t, r.err)
	}
	assert.Equal(t, all[2].At+all[2].Delay, batch[0].asks[0].Decision.At+batch[0].asks[0].Decision.Delay)
	assert.Equal(t, ends(all[2]), ends(batch[0].asks[0].Decision))
	assert.Equal(t, ends(all[3]), ends(batch[1].asks[0].Decision))
}
