package overrides

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
)

func start(t *testing.T, addr string, options *Options) *Overrides {
	t.Helper()
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr}))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return New(ctx, control.New(client, &control.Options{Log: slog.New(slog.DiscardHandler)}), options)
}

// TestOverrides sets, replaces and removes an override: three instances have it within
// a second. It ends by itself, also while Redis is unavailable.
func TestOverrides(t *testing.T) {
	server := redistest.Launch(t)
	var all []*Overrides
	for range 3 {
		all = append(all, start(t, server.Addr, nil))
	}
	everywhere := func(want int64) time.Duration {
		began := time.Now()
		return redistest.Await(t, time.Second, fmt.Sprint(want), func() bool {
			for _, o := range all {
				if o.Limit("api", "r", "alice") != want {
					return false
				}
			}
			return true
		}).Sub(began)
	}
	ctx := t.Context()
	alice := Override{Policy: "api", Rule: "r", Key: "alice", Limit: 500, Reason: "a launch"}
	require.NoError(t, all[0].Set(ctx, alice, time.Hour, "bob"))
	set := everywhere(500)
	alice.Limit = 7
	require.NoError(t, all[1].Set(ctx, alice, math.MaxInt64, "carol"))
	replaced := everywhere(7)
	for _, other := range [][3]string{{"api", "r", "bob"}, {"api", "q", "alice"}, {"other", "r", "alice"}, {"api", "r", ""}} {
		assert.Zero(t, all[0].Limit(other[0], other[1], other[2]))
	}
	list := all[2].List()
	require.Len(t, list, 1)
	assert.WithinDuration(t, time.Now(), list[0].At, time.Minute)
	list[0].At = time.Time{}
	alice.By = "carol"
	assert.Equal(t, []Override{alice}, list)

	require.NoError(t, all[2].Remove(ctx, "api", "r", "alice", "bob"))
	removed := everywhere(0)
	err := all[2].Remove(ctx, "api", "r", "alice", "bob")
	require.ErrorIs(t, err, ErrNone)
	assert.EqualError(t, err, `overrides: no such override: policy "api", rule "r", key "alice": write one of List`)
	changes, err := all[0].History(ctx)
	require.NoError(t, err)
	require.Len(t, changes, 3)
	assert.Equal(t, `"api" "r" "alice"`, changes[0].Name)
	assert.True(t, changes[0].Deleted)
	t.Logf("3 instances: set in %v, replaced in %v, removed in %v", set, replaced, removed)

	require.NoError(t, all[0].Set(ctx, alice, 800*time.Millisecond, "bob"))
	everywhere(7)
	server.Kill()
	redistest.Await(t, 3*time.Second, "the end of an override", func() bool { return all[1].Limit("api", "r", "alice") == 0 })
	assert.Empty(t, all[1].List())
}

// TestInvalid has every argument that is an error, and documents of Redis that are no
// overrides.
func TestInvalid(t *testing.T) {
	addr := redistest.Launch(t).Addr
	var log logbook.Book
	o := start(t, addr, &Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: func(policy, rule string) bool { return policy == "api" && rule == "r" }})
	good := Override{Policy: "api", Rule: "r", Key: "k", Limit: 1}
	for want, change := range map[string]func(e *Override, d *time.Duration){
		`overrides: policy "api", rule "": write the names`:                    func(e *Override, _ *time.Duration) { e.Rule = "" },
		`overrides: policy "api" has no rule "q": write the names`:             func(e *Override, _ *time.Duration) { e.Rule = "q" },
		`overrides: limit 0: write 1 to 1000000000000`:                         func(e *Override, _ *time.Duration) { e.Limit = 0 },
		`overrides: limit -5: write`:                                           func(e *Override, _ *time.Duration) { e.Limit = -5 },
		`overrides: limit 1000000000001: write`:                                func(e *Override, _ *time.Duration) { e.Limit = core.MaxLimit + 1 },
		`overrides: an override for 0s: write how long it lasts, or limit.Nev`: func(_ *Override, d *time.Duration) { *d = 0 },
		`overrides: an override for -1s: write`:                                func(_ *Override, d *time.Duration) { *d = -time.Second },
		`overrides: a reason of 1001 bytes: write at most 1000`:                func(e *Override, _ *time.Duration) { e.Reason = strings.Repeat("r", 1001) },
		`overrides: the policy, rule and key have 524 bytes: the most is 512`:  func(e *Override, _ *time.Duration) { e.Key = strings.Repeat("k", 512) },
	} {
		e, d := good, time.Hour
		change(&e, &d)
		assert.ErrorContains(t, o.Set(t.Context(), e, d, "bob"), want)
	}
	assert.ErrorContains(t, o.Set(t.Context(), good, time.Hour, ""), "by")
	assert.ErrorContains(t, o.Remove(t.Context(), "", "r", "k", "bob"), `policy ""`)
	assert.Empty(t, o.List())

	for name, text := range map[string]string{"no name": `{"limit":1}`, `"api" "r" "a"`: `{"limit":0}`, `"api" "r" "b"`: "{", `"api" "r"  "c"`: `{"limit":1}`} {
		require.NoError(t, o.control.Put(t.Context(), kind, name, []byte(text), time.Hour, "bob"))
	}
	odd := Override{Policy: "api", Rule: "r", Key: "\x00\xff \"quoted\"\n", Limit: 9}
	require.NoError(t, o.Set(t.Context(), odd, time.Hour, "bob"))
	redistest.Await(t, time.Second, "the override", func() bool { return o.Limit("api", "r", odd.Key) == 9 && strings.Contains(log.String(), "documents=4") })
	assert.Len(t, o.List(), 1)
	assert.Contains(t, log.String(), "overrides: documents that are no overrides have no effect\" code=LIMIT-408")
}

// TestEdges applies the least and the most that an override can be, and what lies beyond.
func TestEdges(t *testing.T) {
	o := &Overrides{options: Options{Log: slog.New(slog.DiscardHandler)}}
	for limit, want := range map[int64]int64{0: 0, 1: 1, core.MaxLimit: core.MaxLimit, core.MaxLimit + 1: 0} {
		document, err := documentOf("api", "r", "k")
		require.NoError(t, err)
		o.apply(map[string]control.Document{document: {Value: fmt.Appendf(nil, `{"limit":%d}`, limit)}})
		assert.Equal(t, want, o.Limit("api", "r", "k"), limit)
		assert.Len(t, o.List(), int(min(want, 1)), limit)
	}
}

// TestAllocations holds that a decision costs no memory.
func TestAllocations(t *testing.T) {
	for _, n := range []int{0, 1000} {
		o := withOverrides(n)
		for _, key := range []string{"alice", "5"} {
			assert.Zero(t, testing.AllocsPerRun(100, func() { o.Limit("api", "r", key) }))
		}
	}
}

func BenchmarkLimit(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		o := withOverrides(n)
		for _, key := range []string{"alice", "5"} {
			b.Run(fmt.Sprintf("overrides=%d/key=%s", n, key), func(b *testing.B) {
				for b.Loop() {
					o.Limit("api", "r", key)
				}
			})
		}
	}
}

func withOverrides(n int) *Overrides {
	known := make(map[name]*Override)
	for i := range n {
		known[name{"api", "r", fmt.Sprint(i)}] = &Override{Limit: 1, Until: time.Now().Add(time.Hour)}
	}
	var o Overrides
	o.known.Store(&known)
	return &o
}
