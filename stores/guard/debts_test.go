package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

// TestDebts owes with the store and without it. Both times the memory counts it, and no
// OnError refuses it.
func TestDebts(t *testing.T) {
	for _, on := range []core.OnError{core.Local, core.Allow, core.Refuse} {
		s, f, _ := guarded(1, 1_000*sec)
		c := charge("r", 3, on)
		c.Policy = "p"
		owed := c
		owed.Debt, owed.Cost, owed.Age = true, 2, sec
		d := must.Get(core.Take(t.Context(), s, []core.Charge{owed}))(t)
		require.True(t, d.Allowed)
		assert.Equal(t, core.ModeExact, d.Mode)
		assert.Equal(t, core.Outcome{Remaining: 1, MoreAfter: 9 * sec, ResetAfter: 9 * sec}, d.Outcomes()[0])

		f.fail(errDown)
		owed.Cost, owed.Age = 7, 0
		d = must.Get(core.Take(t.Context(), s, []core.Charge{owed}))(t)
		require.True(t, d.Allowed, "%v", on)
		assert.GreaterOrEqual(t, d.Mode, core.ModeLocal)
		if on == core.Local {
			d = must.Get(core.Take(t.Context(), s, []core.Charge{c}))(t)
			assert.False(t, d.Allowed, "the memory has counted both")
		}
	}
}

// TestForgivenDebts has the memory count of a bounded debt what the store has taken of it, and
// bound it without the store.
func TestForgivenDebts(t *testing.T) {
	s, f, _ := guarded(1, 1_000*sec)
	c := charge("r", 3, core.Local)
	c.Policy, c.Quota = "p", core.Quota{Algorithm: core.TokenBucket, Limit: 3, Window: 10 * sec, Burst: 3}
	owed := c
	owed.Debt, owed.Cost, owed.MaxDebt = true, 10, 4
	d := must.Get(core.Take(t.Context(), s, []core.Charge{owed}))(t)
	assert.EqualValues(t, 3, d.Forgiven)
	look := c
	look.Cost = 0
	own := must.Get(core.Take(t.Context(), s.own, []core.Charge{look}))(t)
	assert.Equal(t, int64(7*10*sec/3+1), own.Outcomes()[0].ResetAfter, "7 of 10 are owed")

	f.fail(errDown)
	d = must.Get(core.Take(t.Context(), s, []core.Charge{owed}))(t)
	assert.True(t, d.Allowed && d.Mode == core.ModeLocal)
	assert.EqualValues(t, 10, d.Forgiven, "the key owes as much as it may")
	assert.Equal(t, int64(7*10*sec/3+1), d.Outcomes()[0].ResetAfter)
}
