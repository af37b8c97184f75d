package redisstore

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// longest is for how long a call of the tested inputs may hold Redis. Widening takes longer: a rule
// whose window moves across 71.6 minutes has each unit of its log written in another width, which
// string.gsub does at 0.1 µs a unit on an idle machine.
const (
	longest  = 5 * time.Millisecond
	widening = 60 * time.Millisecond
)

// TestLongest states for how long calls with the worst inputs hold Redis, by its
// own statistics, and fails if one exceeds the bound. LIMIT_LONGEST=1 runs it, and
// wants a machine with nothing else to do: each figure is the least of five.
func TestLongest(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	const second, hour, day = 1_000_000, 3600_000_000, 24 * 3600_000_000
	large := core.Quota{Limit: core.MaxLog, Window: hour}
	with := func(q core.Quota, limit, window int64) core.Quota { q.Limit, q.Window = limit, window; return q }
	distinct := core.Quota{Algorithm: core.Distinct, Limit: core.MaxValues, Window: hour}
	ban := core.Quota{Algorithm: core.Ban, Limit: core.MaxStrikes, Window: hour, Bar: hour}
	const filled = core.MaxLog - 10
	for _, test := range []struct {
		name          string
		before, after core.Quota // of the rule, when its keys are filled and when the call is measured
		rules         int
		keys          int     // 1: all decisions of the batch have the same
		fill          []int64 // units taken before, a µs apart
		wait          int64   // µs until the call
		cost          int64
	}{
		{name: "rings, in place", before: large, after: large, keys: 128, fill: []int64{filled}, cost: 1},
		{name: "rings, whole cost", before: large, after: large, keys: 128, fill: []int64{1}, wait: hour, cost: core.MaxLog},
		{name: "rings, limit lowered", before: large, after: with(large, 99_000, hour), keys: 128, fill: []int64{50_000, 40_000}, cost: 1},
		{name: "rings, limit lowered to 1,000", before: large, after: with(large, 1000, hour), keys: 128, fill: []int64{50_000, 40_000}, cost: 1},
		{name: "rings, limit raised", before: with(large, 90_000, hour), after: large, keys: 128, fill: []int64{50_000, 39_000}, cost: 1},
		{name: "rings, limit raised, refused", before: with(large, 90_000, hour), after: large, keys: 128, fill: []int64{50_000, 39_000}, cost: core.MaxLog},
		{name: "rings, longer ticks", before: large, after: with(large, core.MaxLog, day), keys: 128, fill: []int64{50_000, 40_000}, cost: 1},
		{name: "rings, shorter ticks", before: with(large, core.MaxLog, day), after: large, keys: 128, fill: []int64{50_000, 40_000}, cost: 1},
		{name: "rings, clock stepped back", before: large, after: large, keys: 128, fill: []int64{50_000, 40_000}, wait: -second, cost: 1},
		{name: "rings, expiring together", before: large, after: large, keys: 128, fill: []int64{99_000, 900}, wait: hour - 2, cost: 1},
		{name: "rings of 1,000, expiring together", before: with(large, 1000, hour), after: with(large, 1000, hour), rules: 2, keys: 128, fill: []int64{900, 90}, wait: hour - 2, cost: 1},
		{name: "rings of 1,000, limit raised", before: with(large, 1000, hour), after: with(large, 1001, hour), rules: 2, keys: 128, fill: []int64{900, 90}, cost: 1},
		{name: "rings of 10,000, limit raised", before: with(large, 10_000, hour), after: with(large, 10_001, hour), rules: 2, keys: 128, fill: []int64{9000, 900}, cost: 1},
		{name: "strings of 1,000, becoming rings", before: with(large, 1000, hour), after: with(large, 1000, hour), rules: 2, keys: 128, fill: []int64{120, 5}, cost: 10},
		{name: "rings of 1,000, becoming strings", before: with(large, 1000, hour), after: with(large, 1000, hour), rules: 2, keys: 128, fill: []int64{900, 50}, wait: hour - 1, cost: 1},
		{name: "rings, becoming strings", before: large, after: large, keys: 128, fill: []int64{filled - 50, 50}, wait: hour - 1, cost: 1},
		{name: "a shared ring, limit raised", before: with(large, 90_000, hour), after: large, keys: 1, fill: []int64{50_000, 39_000}, cost: 1},
		{name: "16 rules with rings of 1,000", before: with(large, 1000, hour), after: with(large, 1000, hour), rules: 16, keys: 128, fill: []int64{900, 90}, wait: hour - 2, cost: 1},
		{name: "16 rules with logs of 100", before: with(large, 100, hour), after: with(large, 100, hour), rules: 16, keys: 128, fill: []int64{90, 5}, wait: hour - 2, cost: 1},
		{name: "logs of 128, expiring together", before: with(large, 128, hour), after: with(large, 128, hour), rules: 2, keys: 128, fill: []int64{120, 5}, wait: hour - 2, cost: 1},
		{name: "leases of one key", before: core.Quota{Algorithm: core.Concurrency, Limit: core.MaxLeases, Window: hour},
			after: core.Quota{Algorithm: core.Concurrency, Limit: core.MaxLeases, Window: hour}, keys: 1, fill: slices.Repeat([]int64{1}, 9_000), cost: 1},
		{name: "distinct values of one key", before: distinct, after: distinct, keys: 1, fill: slices.Repeat([]int64{1}, 9_900), cost: 1},
		{name: "distinct values of one key, clock stepped back", before: distinct, after: distinct, keys: 1, fill: slices.Repeat([]int64{1}, 9_900), wait: -second, cost: 1},
		{name: "strikes", before: ban, after: ban, rules: 2, keys: 128, fill: slices.Repeat([]int64{1}, 900), cost: 1},
		{name: "strikes, clock stepped back", before: ban, after: ban, rules: 2, keys: 128, fill: []int64{900}, wait: -second, cost: 1},
		{name: "cells", before: core.Quota{Algorithm: core.SlidingCells, Limit: 1e9, Window: hour, Cells: core.MaxCells},
			after: core.Quota{Algorithm: core.SlidingCells, Limit: 1e9, Window: hour, Cells: core.MaxCells}, rules: 2, keys: 128, fill: []int64{5}, cost: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var times []time.Duration
			decisions := 0
			for range 5 {
				require.NoError(t, client.FlushDB(t.Context()).Err())
				now := start
				store := at(client, &now)
				charges := func(d int, q core.Quota, cost int64) (list []core.Charge) {
					for r := range max(1, test.rules) {
						list = append(list, core.Charge{Rule: fmt.Sprint("r", r), Key: fmt.Sprint("k", d%test.keys), Quota: q, Cost: cost, ID: uint64(d + 1)})
					}
					return list
				}
				var batch [][]core.Ask
				for d := range maxBatch {
					batch = append(batch, ask(charges(d, test.after, test.cost)))
				}
				rules := lua.NewRules(store.prefix, batch[0])
				batch = batch[:fitting(store, rules, batch)]
				lease := 1000
				for _, units := range test.fill {
					now++
					for k := range min(test.keys, len(batch)) {
						c := charges(k, test.before, units)
						for i := range c {
							lease++
							c[i].ID = uint64(lease) * 0x9e3779b97f4a7c15
						}
						storetest.MustTake(t, store, c...)
					}
				}
				now += test.wait
				decisions = len(batch)
				_, _, err := store.decide(t.Context(), lua.NewRules("other", batch[0]), batch[:1], nil, false) // loads the script
				require.NoError(t, err)
				require.NoError(t, client.ConfigResetStat(t.Context()).Err())
				_, _, err = store.decide(t.Context(), rules, batch, nil, false)
				require.NoError(t, err)
				times = append(times, scriptTime(t, client))
			}
			t.Logf("%d decisions: %v to %v", decisions, slices.Min(times), slices.Max(times))
			bound := longest
			if strings.HasSuffix(test.name, " ticks") {
				bound = widening
			}
			assert.LessOrEqual(t, slices.Min(times), bound)
		})
	}
	for _, form := range []string{"Return", "Reset"} {
		t.Run(form, func(t *testing.T) {
			var times []time.Duration
			for range 5 {
				now := start
				store := at(client, &now)
				c := core.Charge{Rule: "r", Key: "k", Quota: large, Cost: 50_000}
				for range 2 {
					now++
					storetest.MustTake(t, store, c)
				}
				c.Cost = 1
				one := []core.Return{{Charge: c, At: now}}
				_, err := storetest.Return(t.Context(), store, "p", one) // loads the script
				require.NoError(t, err)
				require.NoError(t, storetest.Reset(t.Context(), store, "p", "r", "other"))
				require.NoError(t, client.ConfigResetStat(t.Context()).Err())
				if form == "Return" {
					_, err = storetest.Return(t.Context(), store, "p", one)
				} else {
					err = storetest.Reset(t.Context(), store, "p", "r", "k")
				}
				require.NoError(t, err)
				times = append(times, scriptTime(t, client))
			}
			t.Logf("%v to %v", slices.Min(times), slices.Max(times))
			assert.LessOrEqual(t, slices.Min(times), longest)
		})
	}
}

// TestLongestWithGaps has a batch of one key decide on a queue with as many gaps as it
// can have, which are too small for it, or fit.
func TestLongestWithGaps(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	for _, cost := range []int64{1, 3, 100_000} {
		t.Run(fmt.Sprint("cost ", cost), func(t *testing.T) {
			var times []time.Duration
			decisions := 0
			for range 5 {
				require.NoError(t, client.FlushAll(t.Context()).Err())
				now := start
				store := at(client, &now)
				one := []core.Charge{{Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.Queue, Limit: 1000, Window: 3600_000_000, Burst: 5000}}}
				var all []core.Return
				for range 2*core.MaxGaps + 2 {
					d := storetest.MustTake(t, store, one...)
					all = append(all, d.Return(0, one[0]))
				}
				for i := 1; i <= 2*core.MaxGaps; i += 2 {
					given := must.Get(storetest.Return(t.Context(), store, "p", all[i:i+1]))(t)
					require.Equal(t, []int64{1}, given)
				}
				now += 1_000_000
				charges := []core.Charge{one[0]}
				charges[0].Cost = cost
				rules := lua.NewRules(store.prefix, ask(charges))
				batch := slices.Repeat([][]core.Ask{ask(charges)}, maxBatch)
				batch = batch[:fitting(store, rules, batch)]
				decisions = len(batch)
				require.NoError(t, client.ConfigResetStat(t.Context()).Err())
				_, _, err := store.decide(t.Context(), rules, batch, nil, false)
				require.NoError(t, err)
				times = append(times, scriptTime(t, client))
			}
			t.Logf("%d decisions: %v to %v", decisions, slices.Min(times), slices.Max(times))
			assert.LessOrEqual(t, slices.Min(times), longest)
		})
	}
}

var usec = regexp.MustCompile(`cmdstat_evalsha:calls=1,usec=(\d+)`)

// scriptTime returns how long the only script took since the statistics were reset.
func scriptTime(t *testing.T, client *redis.Client) time.Duration {
	m := usec.FindStringSubmatch(client.Info(t.Context(), "commandstats").Val())
	require.NotNil(t, m)
	n := must.Get(strconv.Atoi(m[1]))(t)
	return time.Duration(n) * time.Microsecond
}

// fitting returns how many decisions the store sends in one call.
func fitting(store *Store, rules *lua.Rules, batch [][]core.Ask) int {
	b := &batcher{store: store, rules: rules}
	for _, asks := range batch {
		b.queue = append(b.queue, &request{asks: asks})
	}
	return len(b.nextBatch())
}
