package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"github.com/routelimit/limit/stores/storetest"
)

// A twin is a second server on which each call of the store runs as well, by the
// files as they are written. Replies and states must be those of the script that the
// store runs, which is flattened. The scripts for a single return and for a lone decision must do
// what the files for several do, or nothing.
type twin struct {
	t      *testing.T
	client *redis.Client

	mu    sync.Mutex // both servers have the calls in the same order
	calls int
	every int // so many calls are between two looks at the states

	ones          map[string]bool // the scripts for a single return, by their SHA
	several       map[byte]string // the files for several returns, by algorithm
	singles, left map[byte]int    // how often the former gave units back, and left that to the latter

	lone               *lua.Rules // of sliding logs
	decided, undecided int        // lone decisions of lone.One, and those left to lone.Script
}

// withTwin returns a client whose calls run on the twin too.
func withTwin(t *testing.T) (*redis.Client, *twin) {
	client, other := redistest.Real(t), &twin{t: t, client: redistest.Real(t), every: 10, singles: make(map[byte]int), left: make(map[byte]int)} // two servers
	other.several, other.ones = severalOf()
	other.lone = lua.NewRules("limit", ask([]core.Charge{charge("r", "k", 1000, time.Second)}))
	bare := redis.NewClient(client.Options()) // without the hook
	t.Cleanup(func() { bare.Close() })
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		other.mu.Lock()
		defer other.mu.Unlock()
		err := next(ctx, cmd)
		args := cmd.Args()
		switch {
		case cmd.Name() == "flushdb":
			require.NoError(t, other.client.FlushDB(ctx).Err())
		case cmd.Name() == "del":
			require.NoError(t, other.client.Do(ctx, args...).Err())
		case !isTake(cmd) || redis.HasErrorPrefix(err, "NOSCRIPT "):
		default:
			sha := args[1].(string)
			if cmd.Name() == "eval" {
				sum := sha1.Sum([]byte(sha))
				sha = hex.EncodeToString(sum[:])
			}
			if text := lua.Plain(sha); text != "" {
				other.compare(context.WithoutCancel(ctx), bare, sha, text, args[2:], cmd, err)
			}
		}
		return err
	}))
	return client, other
}

// severalOf returns the files of the scripts for several returns to the algorithms that have a
// script for a single one, and whether a SHA is that of such a script.
func severalOf() (texts map[byte]string, ones map[string]bool) {
	texts, ones = make(map[byte]string), make(map[string]bool)
	for _, a := range core.Algorithms() {
		c := core.Charge{Quota: core.Quota{Algorithm: a, Limit: 5, Window: 1_000_000, Cells: 5, Burst: 5}}
		if call := lua.NewReturns("limit", "", 1, []core.Return{{Charge: c, Remaining: 4}}, false); call.One != nil {
			texts[byte(a)], ones[call.One.SHA] = lua.Plain(call.Script.SHA), true
		}
	}
	return texts, ones
}

// compare runs a call on the twin.
func (w *twin) compare(ctx context.Context, client *redis.Client, sha, text string, args []any, cmd redis.Cmder, err error) {
	w.calls++
	if w.ones[sha] && err == nil {
		algorithm := args[len(args)-1].([]byte)[0]
		if len(cmd.(once).Val()) == 0 {
			w.left[algorithm]++
			return
		}
		w.singles[algorithm]++
		text = w.several[algorithm]
	}
	if reply, ok := cmd.(once); ok && sha == w.lone.One.SHA && err == nil {
		if lua.Left(reply.Val()[:len(reply.Val())-1]) {
			w.undecided++
			return
		}
		w.decided++
		text = lua.Plain(w.lone.Script.SHA)
	}
	got, failed := w.client.Do(ctx, append([]any{"eval", text}, args...)...).Int64Slice()
	assert.Equal(w.t, err == nil, failed == nil, "%v, %v", err, failed)
	if reply, ok := cmd.(once); ok && err == nil {
		want := reply.Val()
		if n := len(want); w.ones[sha] && n == len(got)-3 { // the key is full
			want = append(slices.Clip(want), fullOf(args), 0, 0)
			assert.EqualValues(w.t, 0, w.client.Exists(ctx, args[1].(string)).Val())
		}
		assert.Equal(w.t, want, got)
	}
	if w.calls%w.every != 0 { // a difference in a state shows in later replies too
		return
	}
	for _, key := range args[1 : 1+args[0].(int)] {
		key := key.(string)
		assert.Equal(w.t, client.Get(ctx, key).Val(), w.client.Get(ctx, key).Val(), key)
		assert.InDelta(w.t, client.PTTL(ctx, key).Val().Seconds(), w.client.PTTL(ctx, key).Val().Seconds(), 5, key)
	}
}

// fullOf returns the units that fit into a full key, from the arguments of a script for returns.
func fullOf(args []any) int64 {
	list := args[len(args)-1].([]byte)
	if a := core.Algorithm(list[0]); a == core.TokenBucket || a == core.LeakyBucket {
		params, _, _ := strings.Cut(args[len(args)-2].(string), ",")
		burst, _ := strconv.ParseInt(params, 10, 64)
		return burst
	}
	return int64(binary.BigEndian.Uint64(list[1:9]) & (1<<48 - 1))
}

// TestFlattened runs random schedules of all stores, and batches, on a store with a twin.
func TestFlattened(t *testing.T) {
	race.Skip(t)
	client, other := withTwin(t)
	h := harness(client)
	here, there := h.Elapse, elapse(other.client)
	h.Elapse = func(micros int64) { here(micros); there(micros) }
	storetest.Schedules(t, h, 1, 30)
	storetest.Versions(t, h, true, 1, 12)
	now := start
	compareBatches(t, at(client, &now), &now, 30)
	t.Logf("%d calls", other.calls)
	assert.Greater(t, other.calls, 1000)
}

// TestLoneDecisions compares the script for lone decisions with the files of the one for batches,
// in replies and in stored bytes, over random histories: of one to four rules with logs in every
// form, of two versions, with a clock that sometimes steps back.
func TestLoneDecisions(t *testing.T) {
	race.Skip(t)
	client, other := withTwin(t)
	other.every = 1
	now := start
	store := at(client, &now)
	rings, refused := 0, 0
	for seed := range 100 {
		random := rand.New(rand.NewPCG(11, uint64(seed)))
		versions := [2][]core.Charge{make([]core.Charge, 1+random.IntN(4))}
		for r := range versions[0] {
			q := core.Quota{Limit: []int64{1, 5, 100, 127, 128, 129, 140, 400}[random.IntN(8)], Window: 1_000_000 << random.IntN(15)}
			if random.IntN(4) == 0 {
				q.Window += 7 // no whole ms
			}
			versions[0][r] = core.Charge{Policy: fmt.Sprint("p", seed), Rule: fmt.Sprint("r", r), Quota: q}
		}
		versions[1] = slices.Clone(versions[0])
		versions[1][0].Quota.Limit += random.Int64N(3)
		versions[1][0].Quota.Window *= 1 + random.Int64N(2)
		var times []int64
		for range 40 {
			charges := slices.Clone(versions[random.IntN(40)/39])
			now += random.Int64N(2) * random.Int64N(1+charges[0].Quota.Window/[]int64{1, 5, 50, 1000}[random.IntN(4)])
			switch random.IntN(60) {
			case 0:
				now -= charges[0].Quota.Window / 4
			case 1, 2, 3, 4, 5, 6: // when what was taken then leaves the window
				if recent := times[max(0, len(times)-20):]; len(recent) > 0 {
					now = max(now, recent[random.IntN(len(recent))]+charges[0].Quota.Window)
				}
			}
			times = append(times, now)
			for r := range charges {
				c := &charges[r]
				c.Key, c.Cost = fmt.Sprint("k", random.IntN(2)), random.Int64N(1+max(2, c.Quota.Limit/[]int64{1, 3, 10}[random.IntN(3)]))
				if random.IntN(30) == 0 {
					c.Cost = c.Quota.Limit + 1
				}
			}
			batch := [][]core.Ask{{{Charges: charges}}}
			rules := lua.NewRules(store.prefix, batch[0])
			reply, _, err := store.decide(t.Context(), rules, batch, nil, true)
			require.NoError(t, err)
			require.NoError(t, rules.Decode(reply, batch, func(_ int, err error) { require.NoError(t, err) }))
			if !batch[0][0].Decision.Allowed {
				refused++
			}
			for r := range charges {
				if value := client.Get(t.Context(), lua.Key(store.prefix, &charges[r])).Val(); value != "" && (value[0] == 'c' || value[0] == 'd') {
					rings++
				}
			}
		}
		now = max(now, start)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, versions)
		}
	}
	t.Logf("%d decided, %d left, %d refused, %d rings", other.decided, other.undecided, refused, rings)
	assert.Greater(t, other.decided, 2500)
	assert.Greater(t, other.undecided, 100)
	assert.Greater(t, refused, 300)
	assert.Greater(t, rings, 300)
}

// TestSingleReturns compares the scripts for returns to one key with the files of those for
// several keys, in replies and in stored bytes, over random histories: of takes and returns, by
// two versions of a rule, with a clock that sometimes steps back.
func TestSingleReturns(t *testing.T) {
	race.Skip(t)
	client, other := withTwin(t)
	other.every = 1
	now := start
	store := at(client, &now)
	for seed := range 30 {
		random := rand.New(rand.NewPCG(7, uint64(seed)))
		for _, algorithm := range slices.Sorted(maps.Keys(other.several)) {
			var versions [2]core.Charge
			for i := range versions {
				q := core.Quota{Algorithm: core.Algorithm(algorithm), Limit: 1 + random.Int64N(300), Window: 1_000_000 << random.IntN(14)}
				switch q.Algorithm {
				case core.SlidingCells:
					q.Cells = 2 + random.Int64N(12)
				case core.TokenBucket, core.LeakyBucket:
					q.Burst = 1 + random.Int64N(300)
				case core.FixedWindow:
					q.Aligned = random.IntN(2) == 0
				}
				if i > 0 && random.IntN(2) == 0 { // only the limit has changed
					limit := q.Limit
					q = versions[0].Quota
					q.Limit = limit
				}
				versions[i] = core.Charge{Policy: fmt.Sprint("p", seed), Rule: fmt.Sprint("r", algorithm), Key: "k", Quota: q}
			}
			var taken []core.Return
			for range 25 {
				c := versions[random.IntN(8)/7]
				now += random.Int64N(2) * random.Int64N(1+c.Quota.Window/[]int64{2, 50, 1000}[random.IntN(3)])
				if random.IntN(40) == 0 {
					now -= c.Quota.Window / 4
				}
				if len(taken) == 0 || random.IntN(5) < 3 {
					c.Cost = 1 + random.Int64N(4)
					if d, err := core.Take(t.Context(), store, []core.Charge{c}); assert.NoError(t, err) && d.Allowed {
						taken = append(taken, d.Return(0, c))
					}
					continue
				}
				i := len(taken) - 1 - random.IntN(min(3, len(taken)))
				r := taken[i]
				if random.IntN(8) > 0 { // or it is given back twice
					taken = append(taken[:i], taken[i+1:]...)
				}
				list := []core.Return{r}
				for len(taken) > 0 && taken[0].Quota == r.Quota && random.IntN(2) == 0 { // several to one key
					list, taken = append(list, taken[0]), taken[1:]
				}
				must.Get(storetest.Return(t.Context(), store, c.Policy, list))(t, "seed %d: %+v", seed, r)
			}
			now = max(now, start)
			if t.Failed() {
				t.Fatalf("seed %d: %+v", seed, versions)
			}
		}
	}
	t.Logf("single returns by algorithm: %v, and for the script for several: %v", other.singles, other.left)
	require.Len(t, other.several, 6)
	for algorithm := range other.several {
		assert.Greater(t, other.singles[algorithm], 100, core.Algorithm(algorithm))
		assert.Positive(t, other.left[algorithm], core.Algorithm(algorithm))
	}
}
