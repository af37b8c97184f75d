package redisstore

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestKeysOfHoldsLive takes a short hold beside a long one, whose keys live on.
func TestKeysOfHoldsLive(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, nil)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	for i, life := range []int64{core.MaxHold, core.MinHold} {
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: life}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
	}
	hash, ends := lua.HoldKeys("limit", &c)
	for _, key := range []string{hash, ends} {
		require.Greater(t, client.PTTL(t.Context(), key).Val().Microseconds(), core.MaxHold)
	}
}

// TestHoldsAreForgotten settles long holds at once: they are remembered for ten minutes, and not
// for a day.
func TestHoldsAreForgotten(t *testing.T) {
	client, now := redistest.Client(t), start
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	for i := range 20 {
		if i > 10 {
			now += core.HoldMemory
		}
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MaxHold}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		_, err := store.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Used: 1}})
		require.NoError(t, err)
	}
	hash, ends := lua.HoldKeys("limit", &c)
	require.LessOrEqual(t, client.HLen(t.Context(), hash).Val(), int64(4)) // with n and t
	require.LessOrEqual(t, client.ZCard(t.Context(), ends).Val(), int64(2))
}

// TestKeysOfHolds looks at the two keys of holds: they live for as long as the units of a hold
// count, if its process dies and nobody comes, and are gone with a hold that is forgotten.
func TestKeysOfHolds(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, nil)
	month := 30 * core.MaxHold
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: month}}
	hash, ends := lua.HoldKeys("limit", &c)
	for i := range int64(6) {
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MinHold}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		for _, key := range []string{hash, ends} {
			require.Greater(t, client.PTTL(t.Context(), key).Val().Microseconds(), month-core.MaxHold, "after %d", i)
		}
		of := core.Settlement{Return: core.Return{Charge: c}, Hold: h.ID, Used: i % 2, Forget: i%2 == 1}
		done, err := store.Settle(t.Context(), []core.Settlement{of})
		require.NoError(t, err)
		require.Equal(t, core.HoldLives, done[0].Found)
		require.Zero(t, client.Exists(t.Context(), hash, ends).Val())
		done, err = store.Settle(t.Context(), []core.Settlement{of})
		require.NoError(t, err)
		require.Zero(t, done[0], "a second time")
	}
}

// TestForeignHolds has other programs write to the two keys of holds: no call charges or gives back
// units twice, or with an error.
func TestForeignHolds(t *testing.T) {
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 3, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 10, Window: 3600_000_000}}
	hash, ends := lua.HoldKeys("limit", &c)
	id := core.HoldIDOf("a")
	field := fmt.Sprintf("%x", id[:])
	setEnds, setTimes := []any{"set", ends, "x"}, []any{"hset", hash, "n", "x", "t", "y"}
	for name, test := range map[string]struct {
		before, after [][]any // commands before the hold, and before it is settled
		held          core.Found
		remaining     []int64 // after the hold and after each settlement
		err           bool    // of settlements
	}{
		"ends before":          {[][]any{setEnds}, nil, core.HoldUnknown, []int64{7, 9, 9}, false},
		"ends":                 {nil, [][]any{setEnds}, core.HoldUnknown, []int64{7, 9, 9}, false},
		"times":                {nil, [][]any{setTimes}, core.HoldUnknown, []int64{7, 9, 9}, false},
		"times before":         {[][]any{setTimes}, nil, core.HoldUnknown, []int64{7, 9, 9}, false},
		"hash before":          {[][]any{{"set", hash, "x"}}, nil, core.HoldRefused, []int64{7, 7, 7}, true},
		"hash":                 {nil, [][]any{{"set", hash, "x"}}, core.HoldUnknown, []int64{7, 7, 7}, true},
		"text":                 {nil, [][]any{{"hset", hash, field, "L 1 3"}}, core.HoldUnknown, []int64{7, 7, 7}, true},
		"text before":          {[][]any{{"hset", hash, field, "L x"}}, nil, core.HoldRefused, []int64{7, 7, 7}, true},
		"ends, long ago":       {[][]any{setEnds, {"hset", hash, "n", "1"}}, nil, core.HoldRefused, []int64{7, 7, 7}, false},
		"text of another hold": {[][]any{{"hset", hash, "n", "1", "z", "L x"}, {"zadd", ends, "1", "z"}}, nil, core.HoldUnknown, []int64{7, 9, 9}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, now := redistest.Client(t), start
			store := at(client, &now)
			write := func(commands [][]any) {
				for _, words := range commands {
					require.NoError(t, client.Do(t.Context(), words...).Err())
				}
			}
			write(test.before)
			ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: id, Life: 6 * core.HoldMemory}
			require.NoError(t, store.Hold(t.Context(), &ask, &h))
			require.Equal(t, test.held, h.Found)
			write(test.after)
			look := c
			look.Cost = 0
			for i, want := range test.remaining {
				if i > 0 {
					_, err := store.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: id, Used: 1}})
					require.Equal(t, test.err, err != nil, "%v", err)
				}
				d := storetest.MustTake(t, store, look)
				require.Equal(t, want, d.Outcomes()[0].Remaining, "after %d settlements", i)
			}
		})
	}
}

// TestAccountOfManyHolds counts more holds than one call reads.
func TestAccountOfManyHolds(t *testing.T) {
	client, now := redistest.Real(t), start
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	hash, _ := lua.HoldKeys("limit", &c)
	fields := []any{"n", now, "t", now}
	for i := range int64(3000) {
		fields = append(fields, fmt.Sprint("id", i), fmt.Sprintf("L %d 2 %d 0 0 0", now+(i-1000)*1_000_000, now)) // 1,001 of them have ended
	}
	require.NoError(t, client.HSet(t.Context(), hash, fields...).Err())
	a, err := store.Account(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, core.Account{Holds: 1999, Held: 3998, Next: 1_000_000, Ended: 1001}, a)
}

// TestCostOfHolds measures by Redis' own statistics what it costs to hold a request of three
// rules and to settle it, beside a Take of three, in turn. LIMIT_LONGEST=1 runs it.
func TestCostOfHolds(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	store := New(client, &patient)
	for _, q := range []core.Quota{
		{Algorithm: core.FixedWindow, Limit: 1_000_000, Window: 3600_000_000},
		{Algorithm: core.TokenBucket, Limit: 1_000_000, Window: 3600_000_000, Burst: 1_000_000},
		{Algorithm: core.SlidingCells, Limit: 1_000_000, Window: 3600_000_000, Cells: 20},
		{Algorithm: core.SlidingLog, Limit: 1000, Window: 3600_000_000},
	} {
		var least [2]float64
		for round := range 8 {
			for held := range 2 {
				deleteStates(t, client)
				client.ConfigResetStat(t.Context())
				for i := range 1000 {
					charges := make([]core.Charge, 3)
					for r := range charges {
						charges[r] = core.Charge{Policy: "p", Rule: fmt.Sprint("rule ", r), Key: fmt.Sprint("k", i%50), Quota: q, Cost: 10}
					}
					takeAndSettle(t, store, charges, held == 1, fmt.Sprint(round, " ", i))
				}
				if us := timeOfScripts(t, client) / 1000; least[held] == 0 || us < least[held] {
					least[held] = us
				}
			}
		}
		t.Logf("%-14v take %.1f us, hold and settle %.1f us: %.2f", q.Algorithm, least[0], least[1], least[1]/least[0])
	}
}

func takeAndSettle(t *testing.T, store *Store, charges []core.Charge, held bool, id string) {
	ask := core.Ask{Charges: charges}
	if !held {
		require.NoError(t, store.Take(t.Context(), []core.Ask{ask}))
		return
	}
	h := core.Hold{ID: core.HoldIDOf(id), Life: 60_000_000}
	require.NoError(t, store.Hold(t.Context(), &ask, &h))
	list := make([]core.Settlement, len(charges))
	for i := range charges {
		list[i] = core.Settlement{Return: ask.Decision.Return(i, charges[i]), Hold: h.ID, Used: 7, Forget: true}
	}
	done, err := store.Settle(t.Context(), list)
	require.NoError(t, err)
	require.Equal(t, core.HoldLives, done[0].Found)
}

// timeOfScripts returns for how many us Redis has run scripts.
func timeOfScripts(t *testing.T, client *redis.Client) float64 {
	info := client.Info(t.Context(), "commandstats").Val()
	var calls, usec float64
	_, err := fmt.Sscanf(info[strings.Index(info, "cmdstat_evalsha:"):], "cmdstat_evalsha:calls=%f,usec=%f", &calls, &usec)
	require.NoError(t, err)
	return usec
}
