package guard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

// suspected returns a guard whose memory counts ten units more of a key than the store, as after a
// reset by another instance, and how often it has asked the store why.
func suspected(t *testing.T, instances int) (s *Store, f *frail, take func(), asked *int, answer *error) {
	s, f, now := guarded(instances, day)
	s.debts.after = func(_ time.Duration, f func()) { f() }
	asked, answer = new(int), new(error)
	s.doubts.suspect = func(context.Context, core.Charge) error { *asked++; return *answer }
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 90, Window: day}, Cost: 1}
	take = func() {
		now.Add(suspectEvery / 2)
		require.True(t, storetest.MustTake(t, s, c).Allowed)
	}
	for range 10 {
		take()
	}
	require.Zero(t, *asked)
	f.Store = at(now)
	return s, f, take, asked, answer
}

// TestResetElsewhere has another instance reset a key. The guard asks the store once whether it
// has lost data, and again only while the store does not say.
func TestResetElsewhere(t *testing.T) {
	for _, instances := range []int{1, 3} {
		_, _, take, asked, answer := suspected(t, instances)
		*answer = errAway
		for range 4 {
			take()
		}
		assert.Equal(t, 2, *asked, "once a second, %d instances", instances)
		*answer = nil
		for range 4 {
			take()
		}
		assert.Equal(t, 3, *asked, "%d instances", instances)
	}
}

// A stuck store does not say whether it has lost a key.
type stuck struct {
	*frail
	until chan struct{}
}

func (s stuck) Lost(ctx context.Context, charges []core.Charge, empty int64) ([]int64, error) {
	<-s.until
	return s.frail.Lost(ctx, charges, empty)
}

// TestSuspicionTakesNoTime has a caller find that the store counts less, and the store not say
// why: the caller does not wait.
func TestSuspicionTakesNoTime(t *testing.T) {
	s, f, take, _, _ := suspected(t, 3)
	until, done := make(chan struct{}), make(chan struct{})
	s.store = stuck{f, until}
	s.doubts.suspect = func(context.Context, core.Charge) error { close(done); return nil }
	s.debts.after = func(_ time.Duration, f func()) { go f() }
	take()
	close(until)
	<-done
}
