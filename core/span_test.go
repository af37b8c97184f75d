package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSpan takes all units of new keys, and looks at them a [Quota.Span] later: they
// have no effect any more. Package guard relies on it, since it counts what was admitted
// without the store for so long.
func TestSpan(t *testing.T) {
	for _, a := range Algorithms() {
		q := Quota{Algorithm: a, Limit: 5, Window: 1_000_003}
		for field, set := range map[Fields]*int64{FieldBurst: &q.Burst, FieldCells: &q.Cells, FieldBar: &q.Bar} {
			if a.Fields().Has(field) {
				*set = q.Limit
			}
		}
		q.Bar *= 1_000_000
		require.NoError(t, q.Validate())
		quotas := []Quota{q}
		if a.Fields().Has(FieldAligned) {
			q.Aligned = true
			quotas = append(quotas, q)
		}
		for _, q := range quotas {
			for range 1000 {
				now := time.Now().UnixMicro() + rand.Int64N(10*q.Window)
				state := []State{NewState(a)}
				charge := []Charge{{Quota: q, Cost: q.Capacity(), ID: 1}}
				Decide(now, charge, state)
				require.LessOrEqual(t, state[0].Expires(), now+q.Span(), "%+v", q)
				d := Decide(now+q.Span(), charge, state)
				require.True(t, d.Allowed, "%+v", q)
			}
		}
	}
}
