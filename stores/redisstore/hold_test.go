package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// inHash makes the string with the holds of a key a hash: see held.lua. The call ends a hold that
// there is not.
func inHash(t testing.TB, s *Store, c core.Charge) {
	t.Helper()
	done := must.Get(s.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: core.HoldIDOf("none"), Ends: true}}))(t)
	require.Zero(t, done[0])
}

// requireLife requires that the holds of a key are in one form, and live for longer than least.
func requireLife(t *testing.T, client redis.UniversalClient, c core.Charge, hashed bool, least int64) {
	t.Helper()
	held, ends := lua.HoldKeys("limit", &c)
	kind := map[bool][2]string{false: {"string", "none"}, true: {"hash", "zset"}}[hashed]
	for i, key := range []string{held, ends} {
		require.Equal(t, kind[i], client.Type(t.Context(), key).Val())
		if kind[i] != "none" {
			require.Greater(t, client.PTTL(t.Context(), key).Val().Microseconds(), least)
		}
	}
}

// TestKeysOfHoldsLive takes a short hold beside a long one, whose keys live on.
func TestKeysOfHoldsLive(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, nil)
	for _, hashed := range []bool{false, true} {
		c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(hashed), Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
		for i, life := range []int64{core.MaxHold, core.MinHold} {
			h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: life}
			require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
			requireLife(t, client, c, hashed && i == 1, core.MaxHold)
			if hashed {
				inHash(t, store, c)
			}
		}
		requireLife(t, client, c, hashed, core.MaxHold)
		must.Get(store.Extend(t.Context(), []core.Extension{{Charge: c, Hold: core.HoldIDOf("1"), Life: core.MinHold}}))(t)
		requireLife(t, client, c, hashed, core.MaxHold)
		must.Get(store.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: core.HoldIDOf("1"), Used: 1}}))(t)
		requireLife(t, client, c, true, core.MaxHold) // what the caller does not know is read from the hash
	}
}

// TestSettlesWhatLives settles a hold by what the caller knows of another one before it of that ID,
// which a reset, or its end, has taken away: each store gives back what the one that lives took.
func TestSettlesWhatLives(t *testing.T) {
	client, now := redistest.Client(t), start
	stores := map[string]core.Store{"redis": at(client, &now), "memory": memstore.New(&memstore.Options{Now: func() int64 { return now }})}
	for name, q := range map[string]core.Quota{
		"log":     {Limit: 100},
		"window":  {Algorithm: core.FixedWindow, Limit: 100},
		"cells":   {Algorithm: core.SlidingCells, Limit: 100, Cells: 10},
		"counter": {Algorithm: core.SlidingCounter, Limit: 100},
		"bucket":  {Algorithm: core.TokenBucket, Limit: 100, Burst: 100},
	} {
		q.Window = 3600_000_000
		for kind, store := range stores {
			for _, reset := range []bool{false, true} {
				c := core.Charge{Policy: "p", Rule: name, Key: fmt.Sprint(reset), Cost: 70, Quota: q}
				hold := func() core.Return {
					ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("a"), Life: core.MinHold}
					require.NoError(t, core.HolderOf(store).Hold(t.Context(), &ask, &h))
					require.True(t, ask.Decision.Allowed)
					return ask.Decision.Return(0, c)
				}
				before := hold()
				if reset {
					require.NoError(t, store.Reset(t.Context(), []core.Charge{c}))
				}
				now += q.Window / 2
				hold()
				done := must.Get(core.HolderOf(store).Settle(t.Context(), []core.Settlement{{Return: before, Hold: core.HoldIDOf("a"), Used: 10}}))(t)
				require.Equal(t, core.Settled{Found: core.HoldLives, Given: 60}, done[0], "%s, %s, reset %v", kind, name, reset)
			}
		}
	}
}

// TestManyHolds has a key with more holds than a string has, and a string again once all are gone.
func TestManyHolds(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, nil)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 2, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 1000, Burst: 1000, Window: core.MaxHold}}
	const n = 100
	asks, holds := [n]core.Ask{}, [n]core.Hold{}
	for round := range 2 {
		for i := range n {
			asks[i], holds[i] = core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf(fmt.Sprint(round, i)), Life: core.MaxHold}
			require.NoError(t, store.Hold(t.Context(), &asks[i], &holds[i]))
			require.Equal(t, core.HoldUnknown, holds[i].Found)
			requireLife(t, client, c, i >= 32, core.MaxHold)
		}
		a := must.Get(store.Account(t.Context(), c))(t)
		require.EqualValues(t, []int64{n, 2 * n}, []int64{a.Holds, a.Held})
		for i := range n {
			of := core.Settlement{Return: asks[i].Decision.Return(0, c), Hold: holds[i].ID, Used: 1, Forget: true}
			done := must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t)
			require.Equal(t, core.Settled{Found: core.HoldLives, Given: 1}, done[0], "%d", i)
		}
		held, ends := lua.HoldKeys("limit", &c)
		require.Zero(t, client.Exists(t.Context(), held, ends).Val())
	}
}

// TestNumbersInHashes has a string become a hash, whose numbers begin with no zero, which is octal on
// miniredis, and no space, which is not a score.
func TestNumbersInHashes(t *testing.T) {
	client, now := redistest.Client(t), int64(1_000_000_000) // of a clock that a test sets, with few digits
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 63, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 126, Burst: 126, Window: 60_000_000}}
	h := core.Hold{ID: core.HoldIDOf("a"), Life: 60_000_000}
	require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
	inHash(t, store, c)
	held, ends := lua.HoldKeys("limit", &c)
	all := client.HGetAll(t.Context(), held).Val()
	require.Equal(t, "1060000000", all["n"])
	require.Equal(t, "L 1060000000 63 1000000000 63 30000000 0", all[fmt.Sprintf("%x", h.ID[:])])
	require.Equal(t, []redis.Z{{Score: 1_060_000_000, Member: fmt.Sprintf("%x", h.ID[:])}}, client.ZRangeWithScores(t.Context(), ends, 0, -1).Val())
	c.Cost = 13
	storetest.MustTake(t, store, c)
	now += 60_000_000
	done, err := store.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Ends: true}})
	require.NoError(t, err)
	require.Equal(t, core.HoldLives, done[0].Found)
}

// TestHoldsInBothForms has strings become hashes at any time.
func TestHoldsInBothForms(t *testing.T) {
	n := 150
	if testing.Short() || race.Enabled {
		n = 30
	}
	client := redistest.Client(t)
	h := harness(client)
	s := &unfolding{Store: h.Store.(*Store), t: t, random: rand.New(rand.NewPCG(1, 2))}
	h.Store = s
	storetest.Holds(t, h, 7, n)
	require.Greater(t, s.strings, n)
	require.Greater(t, s.hashes, n)
}

type unfolding struct {
	*Store
	t               *testing.T
	random          *rand.Rand
	strings, hashes int
}

func (s *unfolding) unfold(c core.Charge) {
	held, _ := lua.HoldKeys("limit", &c)
	switch s.client.Type(s.t.Context(), held).Val() {
	case "string":
		if s.strings++; s.random.IntN(4) == 0 {
			inHash(s.t, s.Store, c)
		}
	case "hash":
		s.hashes++
	}
}

func (s *unfolding) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	for _, c := range ask.Charges {
		if c.Quota.Holds() {
			s.unfold(c)
		}
	}
	return s.Store.Hold(ctx, ask, h)
}

func (s *unfolding) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	for i := range list {
		s.unfold(list[i].Charge)
	}
	return s.Store.Settle(ctx, list)
}

func (s *unfolding) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	for i := range list {
		s.unfold(list[i].Charge)
	}
	return s.Store.Extend(ctx, list)
}

// TestSettlementsOfEachAlgorithm settles a hold by the script of each algorithm, in both forms.
func TestSettlementsOfEachAlgorithm(t *testing.T) {
	client, now := redistest.Client(t), start
	store := at(client, &now)
	for _, q := range quotasOfAllForms {
		for i := range int64(8) {
			c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(q, i), Cost: 3, Quota: q}
			ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("a"), Life: core.MinHold}
			if !q.Holds() || q.Capacity() < c.Cost {
				continue
			}
			require.NoError(t, store.Hold(t.Context(), &ask, &h))
			if i/4 == 1 {
				inHash(t, store, c)
			}
			of := core.Settlement{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: i % 2, Forget: i/2%2 == 1}
			done := must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t, "%+v", q)
			require.Equal(t, ask.Decision.Allowed, done[0].Found == core.HoldLives, "%+v", q)
		}
	}
}

// TestOldHolds reads holds as versions before the string left them, and goes on beside them.
func TestOldHolds(t *testing.T) {
	client, now := redistest.Client(t), start
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 10, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	for range 4 {
		storetest.MustTake(t, store, c)
	}
	held, ends := lua.HoldKeys("limit", &c)
	id := func(name string) string { id := core.HoldIDOf(name); return fmt.Sprintf("%x", id[:]) }
	until := func(us int64) string { return strconv.FormatInt(start+us, 10) }
	live := fmt.Sprintf(" 10 %d 90 3600000000 0", start)
	require.NoError(t, client.HSet(t.Context(), held, "n", until(1_000_000), "t", until(7200_000_000), id("a"), "L "+until(60_000_000)+live,
		id("b"), "L "+until(60_000_000)+live, id("c"), "L "+until(1_000_000)+live, id("d"), "S "+until(600_000_000)+" 10").Err())
	for name, us := range map[string]int64{"a": 60_000_000, "b": 60_000_000, "c": 1_000_000, "d": 60_000_000} {
		require.NoError(t, client.ZAdd(t.Context(), ends, redis.Z{Score: float64(start + us), Member: id(name)}).Err())
	}
	hold := func(name string) (h core.Hold) {
		h = core.Hold{ID: core.HoldIDOf(name), Life: 60_000_000}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		return h
	}
	require.Equal(t, core.HoldLives, func() core.Found { h := hold("a"); return h.Found }(), "a repeat")
	require.Equal(t, core.HoldSettled, func() core.Found { h := hold("d"); return h.Found }())
	now += 2_000_000
	lived := must.Get(store.Extend(t.Context(), []core.Extension{{Charge: c, Hold: core.HoldIDOf("b"), Life: 90_000_000}}))(t)
	require.Equal(t, []bool{true}, lived)
	h := hold("e")
	require.Len(t, h.Over, 1)
	done := must.Get(store.Settle(t.Context(), h.Over))(t)
	require.Equal(t, core.Settled{Found: core.HoldLives, Given: 10}, done[0], "c has ended")
	for _, name := range []string{"a", "b", "e"} {
		of := core.Settlement{Return: core.Return{Charge: c}, Hold: core.HoldIDOf(name), Used: 3, Forget: true}
		for _, want := range []core.Settled{{Found: core.HoldLives, Given: 7}, {}} {
			done = must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t)
			require.Equal(t, want, done[0], name)
		}
	}
	look := c
	look.Cost = 0
	d := storetest.MustTake(t, store, look)
	require.EqualValues(t, 100-10-3*3, d.Outcomes()[0].Remaining, "d was settled, and a, b and e cost 3")
}

// TestEndedBehindSettled has a hold end behind many that were settled: the next look lists it.
func TestEndedBehindSettled(t *testing.T) {
	client, now := redistest.Client(t), start
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1000, Window: 3600_000_000}}
	const n = 100
	for i := range n {
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: 60_000_000}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		if now++; i < n-1 {
			must.Get(store.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Used: 1}}))(t)
		}
	}
	for _, passed := range []int64{60_000_000, 2 * core.HoldMemory} { // the others are remembered, and then not
		now += passed
		look := c
		look.Cost = 0
		h := core.Hold{Life: core.MinHold}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{look}}, &h))
		require.Len(t, h.Over, 1)
		require.Equal(t, core.HoldIDOf(fmt.Sprint(n-1)), h.Over[0].Hold)
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
		must.Get(store.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Used: 1}}))(t)
	}
	hash, ends := lua.HoldKeys("limit", &c)
	require.Equal(t, "hash", client.Type(t.Context(), hash).Val())
	require.LessOrEqual(t, client.HLen(t.Context(), hash).Val(), int64(4)) // with n and t
	require.LessOrEqual(t, client.ZCard(t.Context(), ends).Val(), int64(2))

	c.Key = "few"
	hash, _ = lua.HoldKeys("limit", &c)
	for i := range 20 {
		now += core.HoldMemory
		ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MaxHold}
		require.NoError(t, store.Hold(t.Context(), &ask, &h))
		must.Get(store.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: h.ID, Used: 1}}))(t)
		require.LessOrEqual(t, client.StrLen(t.Context(), hash).Val(), int64(17+94))
	}
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
		requireLife(t, client, c, false, month-core.MaxHold)
		if i%3 > 0 {
			inHash(t, store, c)
			requireLife(t, client, c, true, month-core.MaxHold)
		}
		of := core.Settlement{Return: core.Return{Charge: c}, Hold: h.ID, Used: i % 2, Forget: i%2 == 1}
		done := must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t)
		require.Equal(t, core.HoldLives, done[0].Found)
		require.Zero(t, client.Exists(t.Context(), hash, ends).Val())
		done = must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t)
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
		"string before":        {[][]any{{"set", hash, "H" + strings.Repeat("0", 16+94)}}, nil, core.HoldRefused, []int64{7, 7, 7}, false},
		"end in a string":      {nil, [][]any{{"setrange", hash, "45", "x"}}, core.HoldUnknown, []int64{7, 9, 9}, false},
		"string":               {nil, [][]any{{"setrange", hash, "60", "x"}}, core.HoldUnknown, []int64{7, 7, 7}, true},
		"end of a string":      {nil, [][]any{{"append", hash, "x"}}, core.HoldUnknown, []int64{7, 7, 7}, true},
		"first of a string":    {nil, [][]any{{"setrange", hash, "1", "x"}}, core.HoldUnknown, []int64{7, 9, 9}, false},
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
			if strings.HasPrefix(name, "t") { // of a hash
				inHash(t, store, c)
			}
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

// TestExtensionsBesideForeign extends a hold in one call with one whose end no script wrote.
func TestExtensionsBesideForeign(t *testing.T) {
	client, now := redistest.Client(t), start
	store := at(client, &now)
	var list []core.Extension
	for _, key := range []string{"foreign", "own"} {
		c := core.Charge{Policy: "p", Rule: "r", Key: key, Cost: 3, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 10, Window: 3600_000_000}}
		h := core.Hold{ID: core.HoldIDOf("a"), Life: core.MinHold}
		require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		list = append(list, core.Extension{Charge: c, Hold: h.ID, Life: core.MaxHold})
	}
	held, _ := lua.HoldKeys("limit", &list[0].Charge)
	require.NoError(t, client.SetRange(t.Context(), held, 45, "x").Err())
	lived := must.Get(store.Extend(t.Context(), list))(t)
	require.Equal(t, []bool{false, true}, lived)
}

// TestHoldsWithoutExpiry takes the TTL away from holds, as a backup may. They live on, in a hash too.
func TestHoldsWithoutExpiry(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, nil)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 3, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 10, Window: 3600_000_000}}
	held, _ := lua.HoldKeys("limit", &c)
	for _, want := range []core.Found{core.HoldUnknown, core.HoldLives, core.HoldLives} {
		ask, h := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("a"), Life: core.MaxHold}
		require.NoError(t, store.Hold(t.Context(), &ask, &h))
		require.Equal(t, want, h.Found)
		if want == core.HoldUnknown {
			require.True(t, client.Persist(t.Context(), held).Val())
		}
	}
	requireLife(t, client, c, true, core.MaxHold)
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
	a := must.Get(store.Account(t.Context(), c))(t)
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
		require.Less(t, least[1]/least[0], 1.2*3, "see docs/design/refunds.md")
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
	done := must.Get(store.Settle(t.Context(), list))(t)
	require.Equal(t, core.HoldLives, done[0].Found)
}

// timeOfScripts returns for how many us Redis has run scripts.
func timeOfScripts(t *testing.T, client *redis.Client) float64 {
	info := client.Info(t.Context(), "commandstats").Val()
	var calls, usec float64
	must.Get(fmt.Sscanf(info[strings.Index(info, "cmdstat_evalsha:"):], "cmdstat_evalsha:calls=%f,usec=%f", &calls, &usec))(t)
	return usec
}

// TestReleasedWithSettlement releases leases with a settlement, of a key that only leases are of,
// of one that another algorithm has charged since, and of one that something else has written.
func TestReleasedWithSettlement(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	tokens := core.Charge{Policy: "p", Rule: "tokens", Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}, Cost: 60}
	for _, since := range []string{"", "charged", "broken"} {
		lease := held("running", since, 1, time.Minute, 7)
		lease.Policy = "p"
		ask, h := core.Ask{Charges: []core.Charge{tokens, lease}}, core.Hold{ID: core.HoldIDOf(since), Life: core.MinHold}
		require.NoError(t, store.Hold(t.Context(), &ask, &h))
		require.True(t, ask.Decision.Allowed, since)
		switch since {
		case "charged":
			other := tokens
			other.Rule, other.Key = lease.Rule, lease.Key
			storetest.MustTake(t, store, other)
		case "broken":
			require.NoError(t, client.Set(t.Context(), lua.Key("limit", &lease), "something", time.Minute).Err())
		}
		of := core.Settlement{Return: ask.Decision.Return(0, tokens), Hold: h.ID, Used: 7, Leases: []core.Charge{lease}}
		for _, want := range []core.Found{core.HoldLives, core.HoldSettled} { // repeated, as after a lost reply
			done := must.Get(store.Settle(t.Context(), []core.Settlement{of}))(t)
			assert.Equal(t, want, done[0].Found, since)
		}
		if since != "broken" {
			lease.ID++
			assert.True(t, storetest.MustTake(t, store, lease).Allowed, "%q: the slot is free", since)
		}
	}
}
