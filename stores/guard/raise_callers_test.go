package guard

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// TestLossOfCallers loses the data of a store that callers with other limits, reserves and
// debts have used, with outages in between. One instance never admits more of a key than the
// limit of the caller.
func TestLossOfCallers(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	refused, losses, rounds := 0, 0, 40
	if race.Enabled {
		rounds = 5
	}
	for range rounds {
		for _, q := range algorithms {
			if q.Queues() { // one more burst for each loss
				continue
			}
			f := newFleet(1, nil)
			f.detects = true
			used := make(map[string]int64)
			limits := map[string]int64{"a": 90, "b": 900, "c": 450} // by plan or override
			take := func(key string) {
				c := core.Charge{Rule: "r", Key: key, Quota: q, Cost: 1 + random.Int64N(9)}
				limit := limits[key]
				if random.IntN(10) == 0 {
					limit = 90 // another caller with the key
				}
				if c.Quota.Limit = limit; q.Burst > 0 {
					c.Quota.Burst = limit
				}
				if random.IntN(4) == 0 {
					c.Reserve = random.Int64N(20)
				}
				asks := []core.Ask{{Charges: []core.Charge{c}}}
				debt := random.IntN(20) == 0
				if asks[0].Charges[0].Debt = debt; debt {
					asks[0].Charges[0].Reserve = 0
				}
				require.NoError(t, f.guards[0].Take(t.Context(), asks))
				if !asks[0].Decision.Allowed {
					refused++
					return
				}
				used[key] += c.Cost
				if !debt {
					slack := int64(1) // a part of a unit that a bucket refills
					require.LessOrEqual(t, used[key], limit+slack, "%v: %s takes %d", q.Algorithm, key, c.Cost)
				}
			}
			for range 60 {
				for range random.IntN(40) {
					take(string(rune('a' + random.IntN(3))))
				}
				switch random.IntN(6) {
				case 0:
					f.cut[0].fail(nil)
					f.lose()
					losses++
				case 1:
					f.cut[0].fail(errAway)
				case 2:
					f.cut[0].fail(nil)
				case 3:
					f.settle()
				}
				f.now.Add(random.Int64N(300_000))
			}
		}
	}
	t.Logf("%d losses, %d requests refused", losses, refused)
	require.Positive(t, refused)
}

// TestRaisedOnce loses the data of two keys with limits of their own. Neither is charged again
// because the other one has a larger limit.
func TestRaisedOnce(t *testing.T) {
	for _, instances := range []int{1, 3} {
		for _, q := range algorithms {
			f := newFleet(instances, nil)
			f.detects = true
			used := make(map[string]int64)
			of := func(key string, cost int64) core.Charge {
				q.Limit = map[string]int64{"a": 9, "b": 900}[key]
				if q.Burst > 0 {
					q.Burst = q.Limit
				}
				return core.Charge{Rule: "r", Key: key, Quota: q, Cost: cost}
			}
			take := func(key string, cost int64) {
				if storetest.MustTake(t, f.guards[0], of(key, cost)).Allowed {
					used[key] += cost
				}
			}
			take("a", 5)
			take("b", 300)
			f.lose()
			f.now.Add(sec)
			for range 2 {
				take("a", 1)
				f.settle()
				take("b", 1)
				f.settle()
			}
			for _, key := range []string{"a", "b"} {
				look := of(key, 0)
				counts := look.Quota.Capacity() - remaining(t, f.store.Store, look)
				most := used[key] + 1 // a part of a unit
				if key == "b" && q.Algorithm == core.SlidingLog {
					most += 9 // a log that was raised to the lower limit has kept the latest
				}
				if assert.LessOrEqual(t, counts, most, "%d instances, %v, key %s", instances, q.Algorithm, key); !q.Queues() {
					assert.GreaterOrEqual(t, counts, used[key], "%d instances, %v, key %s", instances, q.Algorithm, key)
				}
			}
		}
	}
}

// TestRaisedForAll loses the data of a key with a large limit, of a plan, that does not come back. A
// request of a key with a small limit raises it all the same: another instance counts it in full.
func TestRaisedForAll(t *testing.T) {
	for _, instances := range []int{1, 2} {
		for _, q := range algorithms {
			if q.Refills() { // a bucket of another limit is another scale
				continue
			}
			f := newFleet(instances, nil)
			f.detects = true
			of := func(key string, cost int64) core.Charge {
				q.Limit = map[string]int64{"a": 9, "b": 900}[key]
				return core.Charge{Rule: "r", Key: key, Quota: q, Cost: cost}
			}
			require.True(t, storetest.MustTake(t, f.guards[0], of("a", 5)).Allowed)
			require.True(t, storetest.MustTake(t, f.guards[0], of("b", 300)).Allowed)
			f.lose()
			f.now.Add(sec)
			storetest.MustTake(t, f.guards[0], of("a", 1))
			f.settle()
			look := of("b", 0)
			counts := look.Quota.Capacity() - remaining(t, f.store.Store, look)
			assert.InDelta(t, 300, counts, 1, "%d instances, %v", instances, q.Algorithm)
			if instances == 2 {
				assert.False(t, storetest.MustTake(t, f.guards[1], of("b", 601)).Allowed, "%v", q.Algorithm)
			}
			storetest.MustTake(t, f.guards[0], of("b", 1)) // is not charged again
			f.settle()
			counts = look.Quota.Capacity() - remaining(t, f.store.Store, look)
			assert.InDelta(t, 301, counts, 1, "%d instances, %v", instances, q.Algorithm)
		}
	}
}

// TestPaymentMeetsOtherLimit decides a request with another limit of the key while a payment that
// fails is in flight. What is owed stays as much.
func TestPaymentMeetsOtherLimit(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		for _, limits := range [][2]int64{{10, 1000}, {1000, 10}} {
			s, f, now := guarded(1, sec)
			f.fail(errAway)
			s.debts.after = func(time.Duration, func()) {}
			of := func(limit, cost int64) core.Charge {
				return core.Charge{Rule: "r", Key: "k", Cost: cost, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: limit, Window: 60 * sec, Burst: limit}}
			}
			used := int64(0)
			take := func(c core.Charge) {
				if storetest.MustTake(t, s, c).Allowed {
					used += c.Cost
				}
			}
			take(of(limits[0], 10))
			var list []payment
			if inFlight {
				list = s.debts.claimNext(now.Load(), true)
				require.Len(t, list, 1)
			}
			take(of(limits[1], 1))
			s.debts.settle(list, unpaid)
			list = s.debts.claimNext(now.Load(), true)
			require.Len(t, list, 1)
			asks := list[0].asks(now.Load())
			require.Len(t, asks, 1)
			assert.Equal(t, used, asks[0].Charges[0].Cost, "in flight %v, limits %v", inFlight, limits)
		}
	}
}
