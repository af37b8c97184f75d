package redisstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// TestReturnsToRings gives back recent and old units of a ring that has turned over, one and
// several in a call, and holds it against a list of times.
func TestReturnsToRings(t *testing.T) {
	client := redistest.Client(t)
	random := rand.New(rand.NewPCG(1, 2))
	const limit, window = 400, 100_000_000
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Limit: limit, Window: window}}
	rules := lua.NewRules("limit", []core.Ask{{Charges: []core.Charge{c}}})
	now, times := int64(1_800_000_000_000_000), []int64(nil)
	live := func() { times = slices.DeleteFunc(times, func(at int64) bool { return now-at >= window }) }
	for range 3000 {
		now += random.Int64N(400_000)
		live()
		if at := strconv.FormatInt(now, 10); random.IntN(6) > 0 && len(times) < limit {
			asks := [][]core.Ask{{{Charges: []core.Charge{c}}}}
			keys, args := rules.Encode(at, 1, asks)
			require.NoError(t, client.Eval(t.Context(), rules.Script.Text, keys, append(args, 0)...).Err())
			times = append(times, now)
			continue
		}
		var returns []core.Return
		var want []int64
		for range 1 + random.IntN(3) {
			r, i := core.Return{Charge: c, At: now - random.Int64N(window)}, len(times)-1-random.IntN(len(times)+1)
			if random.IntN(2) == 0 {
				i = max(i, len(times)-1-random.IntN(5)) // one of the last
			}
			given := int64(0)
			if i >= 0 && len(times) > 0 {
				r.At = times[i]
				times, given = slices.Delete(times, i, i+1), 1
			} else if slices.Contains(times, r.At) {
				continue
			}
			returns, want = append(returns, r), append(want, given)
		}
		if returns == nil {
			continue
		}
		call := lua.NewReturns("limit", strconv.FormatInt(now, 10), 1, returns, false)
		reply := must.Get(client.Eval(t.Context(), call.Script.Text, call.Keys, call.Args...).Int64Slice())(t)
		got := must.Get(call.Decode(reply))(t)
		outcome := core.Outcome{Remaining: limit - int64(len(times))}
		if len(times) > 0 {
			outcome.MoreAfter, outcome.ResetAfter = times[0]+window-now, times[len(times)-1]+window-now
		}
		for i := range got {
			require.Equal(t, want[i], got[i].Units, "%+v", returns[i])
			require.Equal(t, outcome, got[i].Outcome)
		}
	}
	require.Greater(t, len(times), 130, "a ring")
}
