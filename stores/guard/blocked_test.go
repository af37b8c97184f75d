package guard

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/storetest"
)

// TestBlocked has a store that works and does not decide one policy. Each rule is
// decided as it says, and the breaker stays closed for the others.
func TestBlocked(t *testing.T) {
	book := new(logbook.Book)
	now := new(atomic.Int64)
	now.Store(sec)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: book.Log()}, at(now), now.Load)
	blocked := &core.Diagnosis{Code: "LIMIT-307", Err: fmt.Errorf("a reason: %w", core.ErrBlocked)}
	f.fail(blocked)
	for range 100 {
		for onError, want := range map[core.OnError]core.Mode{core.Local: core.ModeLocal, core.Allow: core.ModeAllowed, core.Refuse: core.ModeRefused} {
			d := storetest.MustTake(t, s, charge("r", 1000, onError))
			require.Equal(t, want, d.Mode)
			require.Equal(t, onError != core.Refuse, d.Allowed)
		}
	}
	assert.EqualValues(t, 300, f.asked.Load(), "the breaker is closed")
	assert.False(t, s.unavailable())
	assert.EqualValues(t, 300, s.Condition().Blocked)
	assert.Equal(t, []string{`level=WARN msg="limit: the store works, but requests are decided without it" code=LIMIT-307 error="` +
		blocked.Err.Error() + `"`}, book.Lines())
	now.Add(60 * sec)
	storetest.MustTake(t, s, charge("r", 1000, core.Local))
	assert.Equal(t, []string{`level=WARN msg="limit: the store works, but requests are decided without it" code=LIMIT-307 error="` +
		blocked.Err.Error() + `" skipped=299`}, book.Lines())

	f.fail(nil)
	d := must.Get(core.Take(t.Context(), s, storetest.Of("other", charge("r", 1000, core.Local))))(t)
	assert.Equal(t, core.ModeExact, d.Mode)
	assert.Empty(t, book.Lines(), "it was no outage")

	// Calls that are blocked neither hide failures nor close the breaker.
	for i := range 2 * failuresToOpen {
		f.fail([]error{blocked, errAway}[i%2])
		storetest.MustTake(t, s, charge("r", 1000, core.Local))
	}
	assert.True(t, s.unavailable())
	f.fail(blocked)
	now.Add(firstWait)
	storetest.MustTake(t, s, charge("r", 1000, core.Local))
	assert.True(t, s.unavailable())
}
