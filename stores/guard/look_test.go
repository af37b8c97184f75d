package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestLookInAnOutage checks what a look reports for a rule that admits everything: the full
// quota, however much was admitted.
func TestLookInAnOutage(t *testing.T) {
	s, f, _ := guarded(1, sec)
	f.fail(errDown)
	c := charge("r", 2, core.Allow)
	look := c
	look.Cost = 0
	for range 2 * failuresToOpen {
		d := storetest.MustTake(t, s, c)
		require.True(t, d.Allowed)
		require.Equal(t, core.Outcome{Remaining: 2}, d.Outcomes()[0])
		d = storetest.MustTake(t, s, look)
		require.True(t, d.Allowed)
		require.Equal(t, core.Outcome{Remaining: 2}, d.Outcomes()[0])
	}
}

// quotas returns a quota of each algorithm in which a look says what has room.
func quotas() (list []core.Quota) {
	for _, a := range core.Algorithms() {
		for _, q := range []core.Quota{{Burst: 5}, {Cells: 5}, {}} {
			q.Algorithm, q.Limit, q.Window = a, min(5, a.MaxLimit()), 10*sec
			if q.Validate() == nil && a != core.Distinct {
				list = append(list, q)
				break
			}
		}
	}
	return list
}

// TestLookIsTruthful looks before every request: with the store, without it, and when it is
// back. A request is admitted if and only if each rule had its cost left.
func TestLookIsTruthful(t *testing.T) {
	race.Skip(t)
	choices := []core.OnError{core.Local, core.Allow, core.Refuse}
	require.Len(t, quotas(), len(core.Algorithms())-2) // a ban looks at other charges too
	for _, q := range quotas() {
		for _, instances := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v of %d", q.Algorithm, instances), func(t *testing.T) {
				random := rand.New(rand.NewPCG(3, uint64(q.Algorithm)))
				f := newFleet(instances, random)
				modes := make(map[core.Mode]int)
				admitted := 0
				for range 100 {
					f.cycle(q.Window, func(instance int) {
						var charges [2]core.Charge
						for i := range charges {
							charges[i] = core.Charge{Rule: fmt.Sprint(i), Key: "k", Quota: q, ID: random.Uint64() | 1,
								Cost: 1 + random.Int64N(q.Capacity()), OnError: choices[random.IntN(3)]}
						}
						looks := charges
						looks[0].Cost, looks[1].Cost = 0, 0
						look := storetest.MustTake(t, f.guards[instance], looks[:]...)
						require.True(t, look.Allowed)
						d := storetest.MustTake(t, f.guards[instance], charges[:]...)
						fits := true
						for i, o := range look.Outcomes() {
							fits = fits && charges[i].Cost <= o.Remaining
						}
						require.Equal(t, fits, d.Allowed, "%v, then %v: %+v, %+v", look.Mode, d.Mode, look.Outcomes(), charges)
						modes[d.Mode]++
						if d.Allowed {
							admitted++
						}
					})
				}
				assert.Positive(t, admitted)
				t.Log(modes)
			})
		}
	}
}

// TestRetryAfterOfALargeCost asks for more than a share: in an outage until the next probe,
// and afterwards until the share no longer decides, so that a client that waits is admitted.
func TestRetryAfterOfALargeCost(t *testing.T) {
	s, f, now := guarded(4, sec)
	large := core.Charge{Rule: "r", Cost: 8, Quota: core.Quota{Limit: 10, Window: 20 * sec}}
	take := func() core.Decision {
		return storetest.MustTake(t, s, large)
	}
	f.fail(errDown)
	require.Equal(t, core.ModeLocal, take().Mode)
	f.fail(nil)
	now.Add(sec)
	d := take()
	require.False(t, d.Allowed)
	require.GreaterOrEqual(t, d.RetryAfter(), int64(18*sec), "the share of 3 decides for a window")
	now.Add(d.RetryAfter())
	require.True(t, take().Allowed)
}
