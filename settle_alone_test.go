package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// TestSettleAlone settles decisions on charges that decide alone: only what they took
// is corrected, and a request that is refused after all does not get it back.
func TestSettleAlone(t *testing.T) {
	quota := core.Quota{Limit: 10, Window: time.Hour.Microseconds()}
	enforced := core.Charge{Rule: "enforced", Quota: quota, Cost: 4}
	watched := core.Charge{Rule: "watched", Quota: quota, Cost: 4, Alone: true}
	narrow := core.Charge{Rule: "narrow", Quota: core.Quota{Limit: 3, Window: quota.Window}, Cost: 4, Alone: true}
	charges := []core.Charge{enforced, watched, narrow}
	for name, row := range map[string]struct {
		settle func(t *testing.T, u *taken)
		left   [3]int64
	}{
		"given back":   {func(_ *testing.T, u *taken) { u.giveBack() }, [3]int64{10, 6, 3}},
		"settled less": {func(t *testing.T, u *taken) { settleAs(t, u, 1) }, [3]int64{9, 9, 3}},
		"settled more": {func(t *testing.T, u *taken) { settleAs(t, u, 20) }, [3]int64{0, 0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(memstore.New(nil), nil)
			d := Decision{policy: &version{Policy: &Policy{limiter: l}}, route: &route{stored: "p"}}
			var err error
			d.core, err = l.store.Take(t.Context(), "p", charges)
			require.NoError(t, err)
			require.True(t, d.core.Allowed)
			u := newTaken(&d, charges)
			assert.Equal(t, []int{0, 1}, u.rules, "the third was not taken")
			row.settle(t, u)
			looks := (&scratch{charges: append([]core.Charge(nil), charges...)}).free().charges
			got, err := l.store.Take(t.Context(), "p", looks)
			require.NoError(t, err)
			for i, o := range got.Outcomes() {
				assert.Equal(t, row.left[i], o.Remaining, charges[i].Rule)
			}
		})
	}
}

func settleAs(t *testing.T, u *taken, n int64) {
	require.True(t, u.begin())
	_, err := u.settle(t.Context(), func(int, int64) int64 { return n })
	require.NoError(t, err)
}
