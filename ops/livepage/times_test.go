package livepage

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/memstore"
)

// TestTimes checks that counts are of the times that the state says, and end.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 4)))
		begin := time.Now()
		for range 3 { // in the first second: 3 admitted
			take(t, policy, "ann")
		}
		time.Sleep(time.Second)
		for range 3 { // in the second one: 1 admitted, 2 refused
			take(t, policy, "ann")
		}
		time.Sleep(time.Second)
		s, _ := viewOf(t, p, "")
		assert.Equal(t, begin.Unix()+2-120, s.Seconds.From)
		assert.Equal(t, []uint64{0, 3, 1}, s.Seconds.Admitted[117:])
		assert.Equal(t, []uint64{0, 0, 2}, s.Seconds.Refused[117:])
		assert.Equal(t, rates{0.8, 0.4}, s.Now)
		assert.Equal(t, map[string]int64{"exact": 6}, s.ModeCounts)
		row := s.Policies.Rows[0]
		assert.Equal(t, policyRow{Name: "api", Admitted: 4, Refused: 2, Full: 1, Spark: row.Spark, Rules: []ruleRow{
			{Name: "per-user-1h", Text: "4/1h per user", Admitted: 4, Refused: 2, Full: 1, Keyed: true, Kind: "user"}}}, row)
		assert.Equal(t, [2]uint32{4, 2}, row.Spark[29])
		assert.Len(t, row.Spark, 30)

		time.Sleep(8 * time.Second)
		s, _ = viewOf(t, p, "")
		assert.EqualValues(t, 1, s.Policies.Rows[0].Full, "the share is of 10 to 20 seconds")
		assert.Zero(t, s.Now)
		assert.Equal(t, [2]uint32{4, 2}, s.Policies.Rows[0].Spark[28])
		time.Sleep(111 * time.Second)
		s, _ = viewOf(t, p, "")
		assert.Zero(t, s.Policies.Rows[0].Full)
		assert.Equal(t, uint64(1), s.Seconds.Admitted[0])
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, make([]uint64, 120), s.Seconds.Admitted)

		time.Sleep(299*time.Second - time.Since(begin))
		s, _ = viewOf(t, p, "")
		assert.Equal(t, [2]uint32{4, 2}, s.Policies.Rows[0].Spark[0])
		assert.Equal(t, int64(4), s.Policies.Rows[0].Admitted)
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, make([][2]uint32, 30), s.Policies.Rows[0].Spark)
		assert.Zero(t, s.Policies.Rows[0].Admitted)
		assert.Zero(t, s.Policies.Rows[0].Rules[0].Refused)
		assert.Empty(t, s.ModeCounts)
		assert.Equal(t, int64(2), s.Refusals[0].Number, "the log does not end by itself")
		assert.Equal(t, begin.Add(time.Second).UnixMilli(), s.Refusals[0].At)

		time.Sleep(2 * time.Hour) // each ring has gone around
		take(t, policy, "bob")
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, uint64(1), s.Seconds.Admitted[119])
		assert.Equal(t, int64(1), s.Policies.Rows[0].Admitted)
	})
}

// TestModes checks the timeline of an outage, and what it says when there are no decisions.
func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memstore.New(nil)}
		limiter, p := pageOf(store, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Second, 100)))
		begin := time.Now().Unix()
		s, _ := viewOf(t, p, "")
		assert.Empty(t, s.Modes)
		for second := range 100 {
			store.Lock()
			switch {
			case second >= 60 && second < 80:
				store.Unlock()
				time.Sleep(time.Second)
				continue // no decisions
			case second >= 20 && second < 40 && second%10 == 5:
				store.mode = core.ModeLocal // one decision of 10: the worst counts
			case second == 95:
				store.mode, store.err = core.ModeExact, fmt.Errorf("broken: %w", core.ErrUnavailable)
			default:
				store.mode, store.err = core.ModeExact, nil
			}
			store.Unlock()
			take(t, policy, "ann")
			time.Sleep(time.Second)
		}
		// The breaker answers for the failed store.
		s, _ = viewOf(t, p, "")
		require.Len(t, s.Modes, 5, "%+v", s.Modes)
		assert.Equal(t, []period{{"exact", begin, begin + 20}, {"local", begin + 20, begin + 40}, {"exact", begin + 40, begin + 60},
			{"exact", begin + 80, begin + 90}}, s.Modes[:4])
		assert.Equal(t, int64(2+1), s.ModeCounts["local"])
		time.Sleep(time.Hour)
		s, _ = viewOf(t, p, "")
		assert.Empty(t, s.Modes)
	})
}

// TestUndecided checks that a request that was not decided is seen, and counted once.
func TestUndecided(t *testing.T) {
	limiter, p := pageOf(&failing{Store: memstore.New(nil), err: fmt.Errorf("a mistake")}, nil)
	take(t, bind(t, limiter, limit.Named("api", limit.PerUser(time.Second, 100))), "ann")
	s, _ := viewOf(t, p, "")
	assert.Equal(t, map[string]int64{"undecided": 1}, s.ModeCounts)
	require.Len(t, s.Modes, 1)
	assert.Equal(t, "undecided", s.Modes[0].Mode)
}

// TestFullInOutage checks that rules and keys are not shown as full, or as unused, by requests
// that were decided without the store, and that the page says since when.
func TestFullInOutage(t *testing.T) {
	for _, on := range []core.OnError{limit.Local, limit.Refuse, limit.Allow} {
		store := &failing{Store: memstore.New(nil)}
		limiter, p := pageOf(store, nil)
		policy := bind(t, limiter, limit.Named("api", limit.Rule{Key: limit.ByUser, Limit: 4, Window: time.Hour, OnStoreError: on}))
		take(t, policy, "ann")
		store.err = fmt.Errorf("broken: %w", core.ErrUnavailable)
		take(t, policy, "ann")
		s, _ := viewOf(t, p, "order=use")
		assert.True(t, s.Unavailable)
		if on == limit.Refuse {
			require.NotEmpty(t, s.Refusals)
			assert.Equal(t, "The store is unavailable, and a rule says to refuse requests meanwhile.", s.Refusals[0].Words)
		}
		assert.InDelta(t, time.Now().UnixMilli(), s.Outage.Since, 5000)
		require.Len(t, s.Keys, 1)
		assert.Equal(t, []any{0.25, int64(3)}, []any{s.Keys[0].Used, s.Keys[0].Remaining})
		assert.Equal(t, []float32{0.25, 0.25}, []float32{s.Policies.Rows[0].Full, s.Policies.Rows[0].Rules[0].Full})
		assert.Equal(t, int64(2), s.Policies.Rows[0].Rules[0].Admitted+s.Policies.Rows[0].Rules[0].Refused)
	}
}

// TestPeekInOutage checks that the page does not show the counts of one instance as those
// of all.
func TestPeekInOutage(t *testing.T) {
	store := &failing{Store: memstore.New(nil)}
	limiter, p := pageOf(store, nil)
	policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 4)))
	look := func() string {
		w := askJSON(p, "GET", "/peek?policy=api&rule=per-user-1h&key=ann", "")
		assert.Equal(t, 200, w.Code)
		return w.Body.String()
	}
	take(t, policy, "ann")
	assert.NotContains(t, look(), "unavailable")
	store.err = fmt.Errorf("broken: %w", core.ErrUnavailable)
	for !operate.ReadStats(limiter).Unavailable {
		take(t, policy, "bob") // until the breaker opens
	}
	assert.Contains(t, look(), "The store is unavailable. Until it answers, this instance alone decides, and admits 3 more.")
	assert.NotContains(t, look(), "used")
}

// TestPeekOfDebtsAndHolds looks at a client that owes, and at one that holds.
func TestPeekOfDebtsAndHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 60, Window: time.Minute, Algorithm: limit.TokenBucket{}, Debt: 50}))
		of := func(user, id string, cost int64) limit.Decision {
			d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": user}, Cost: cost, Hold: time.Minute, ID: id}))(t)
			return d
		}
		look := func(user string) string {
			return askJSON(p, "GET", "/peek?policy=api&rule=tokens&key="+user, "").Body.String()
		}
		require.NoError(t, of("ann", "1", 20).Settle(t.Context(), 90))
		assert.Contains(t, look("ann"), "The next request is refused. There is room again in 31s. The key owes 30 units, and has none left until it has paid.")
		of("bob", "1", 20)
		held := of("bob", "2", 5)
		assert.Contains(t, look("bob"), "Holds: 2, of 25 units. The next ends in 1m unless it is extended.")
		require.NoError(t, held.Settle(t.Context(), 0))
		assert.Contains(t, look("bob"), "Holds: 1, of 20 units.")
		assert.NotContains(t, look("carl"), "Holds")
	})
}
