package redisstore

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// The sliding log as it is usually written, on sorted sets.
//
//go:embed testdata/zset.lua
var zsetScript string

// TestAgreesWithZSET holds the script against the plain form of its algorithm,
// while the clock goes forward: it has no answer to one that goes back.
func TestAgreesWithZSET(t *testing.T) {
	client := redistest.Client(t)
	now := start
	store := at(client, &now)
	zset := redis.NewScript(zsetScript)
	decisions, refused := 0, 0
	for schedule := range 60 {
		random := rand.New(rand.NewPCG(2, uint64(schedule)))
		policy := fmt.Sprint("p", schedule)
		rules := randomRules(random, policy)
		for i := range rules { // it knows this algorithm alone, and no Reserve
			rules[i].Reserve = 0
			q := rules[i].Quota
			rules[i].Quota = core.Quota{Limit: min(q.Limit, 700), Window: q.Window}
		}
		for step := range 60 {
			now += max(0, randomStep(random, rules))
			charges := randomCharges(random, rules)
			got := must.Get(storetest.Take(t.Context(), store, policy, charges))(t)

			var keys []string
			args := []any{now, store.grace, fmt.Sprint(step)}
			for _, c := range charges {
				keys = append(keys, fmt.Sprint("zset:", policy, c.Rule, c.Key))
				args = append(args, c.Cost, c.Quota.Limit, c.Quota.Window)
			}
			want := must.Get(zset.Run(t.Context(), client, keys, args...).Int64Slice())(t)
			have := []int64{got.At, map[bool]int64{true: 1}[got.Allowed]}
			for _, o := range got.Outcomes() {
				have = append(have, o.Remaining, o.RetryAfter)
			}
			require.Equal(t, want, have, "schedule %d, step %d: %+v", schedule, step, charges)
			decisions++
			if !got.Allowed {
				refused++
			}
		}
	}
	t.Logf("%d decisions, %d of them refused", decisions, refused)
}
