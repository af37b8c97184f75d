package guard

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// TestLossOfCallers loses the data of a store that callers with other limits, reserves and
// debts have used, with outages in between. One instance never admits more of a key than the
// limit of the caller.
func TestLossOfCallers(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	refused, losses := 0, 0
	for range 40 {
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
