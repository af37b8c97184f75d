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
	"github.com/routelimit/limit/internal/must"
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

	require.NoError(t, all[2].Remove(ctx, alice, "bob"))
	removed := everywhere(0)
	err := all[2].Remove(ctx, alice, "bob")
	require.ErrorIs(t, err, ErrNone)
	assert.EqualError(t, err, `overrides: no such override: policy "api", rule "r", key "alice": write one of List`)
	changes := must.Get(all[0].History(ctx))(t)
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
	assert.ErrorContains(t, o.Remove(t.Context(), Override{Rule: "r", Key: "k"}, "bob"), `policy ""`)
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
		o.apply(map[string]control.Document{`"api" "r" "k"`: {Value: fmt.Appendf(nil, `{"limit":%d}`, limit)}})
		assert.Equal(t, want, o.Limit("api", "r", "k"), limit)
		assert.Len(t, o.List(), int(min(want, 1)), limit)
	}
}

// TestPatterns has keys that several overrides match: that of the key applies, then that of the
// longest pattern, and of those that have ended none.
func TestPatterns(t *testing.T) {
	o := start(t, redistest.Launch(t).Addr, nil)
	free := Override{Policy: "api", Rule: "r", Pattern: "free-*", Limit: 1}
	for _, e := range []Override{free,
		{Policy: "api", Rule: "r", Pattern: "free-eu-*", Limit: 2},
		{Policy: "api", Rule: "r", Pattern: "free-eu-b*", Limit: 3},
		{Policy: "api", Rule: "r", Pattern: "s*", Limit: 4},
		{Policy: "api", Rule: "r", Key: "free-eu-bob", Limit: 5},
		{Policy: "api", Rule: "r", Key: "free-*", Limit: 6},
		{Policy: "api", Rule: "r", Key: "*", Limit: 7},
		{Policy: "api", Rule: "r", Pattern: "\xff\"*", Limit: 8},
	} {
		require.NoError(t, o.Set(t.Context(), e, time.Hour, "bob"), e)
	}
	redistest.Await(t, time.Second, "the overrides", func() bool { return len(o.List()) == 8 })
	limits := map[string]int64{
		"free-": 1, "free-alice": 1, "free-eu": 1, "free-eu-": 2, "free-eu-al": 2, "free-eu-b": 3, "free-eu-bo": 3, "free-eu-bobby": 3,
		"free-eu-bob": 5, "free-*": 6, "free-**": 1, "*": 7, "": 0, "f": 0, "free": 0, "Free-alice": 0, " free-alice": 0, "x": 0, "\xff": 0, "\xff\"x": 8,
		"sam": 4, "sha256:" + strings.Repeat("0", 64): 0, // of a long value, whatever it begins with
	}
	for key, want := range limits {
		assert.Equal(t, want, o.Limit("api", "r", key), key)
		assert.Zero(t, o.Limit("api", "q", key))
		assert.Zero(t, o.Limit("other", "r", key))
	}
	require.NoError(t, o.Remove(t.Context(), free, "bob"))
	redistest.Await(t, time.Second, "the end of the pattern", func() bool { return o.Limit("api", "r", "free-alice") == 0 })
	assert.EqualValues(t, 6, o.Limit("api", "r", "free-*"), "the key is another override")
	assert.EqualError(t, o.Remove(t.Context(), free, "bob"), `overrides: no such override: policy "api", rule "r", key "free-*": write one of List`)
	changes := must.Get(o.History(t.Context()))(t)
	assert.Equal(t, `"api" "r" "free-"*`, changes[0].Name)

	const form = "write what keys begin with, and one star at the end, such as free-*; for a key with a star, write it as Key"
	for pattern, want := range map[string]string{
		"*": form, "free-": form, "*free": form, "a*b": form, "a*b*": form, "free-**": form,
		strings.Repeat("k", 129) + "*": "keys of more than 128 bytes are hashes, which no pattern matches: write the Key",
		"sha256:0*":                    "are hashes",
	} {
		assert.ErrorContains(t, o.Set(t.Context(), Override{Policy: "api", Rule: "r", Pattern: pattern, Limit: 1}, time.Hour, "bob"), want, pattern)
	}
	assert.ErrorContains(t, o.Set(t.Context(), Override{Policy: "api", Rule: "r", Key: "k", Pattern: "k*", Limit: 1}, time.Hour, "bob"), `key "k" and pattern "k*": write one of them`)
	for _, rule := range []string{"per-ip-1m", "clients"} {
		for _, pattern := range []string{"192.0.2*", "192.0.2.1*", "10.1*", "1=192.0.2*", "2001:db8*", "2001:db8::1*"} {
			assert.ErrorContains(t, o.Set(t.Context(), Override{Policy: "api", Rule: rule, Pattern: pattern, Limit: 1}, time.Hour, "bob"), "write a Key for each address")
		}
	}
	for _, pattern := range []string{"10*", "192*"} {
		assert.ErrorContains(t, o.Set(t.Context(), Override{Policy: "api", Rule: "per-ip-1m", Pattern: pattern, Limit: 1}, time.Hour, "bob"), "write exempt ip 10.0.0.0/8 in the rule")
	}
	for _, pattern := range []string{"192.0.2.*", "2001:db8:*", "acc:12*", "42*", "10abc*", "v1.2*"} {
		_, err := nameOf(&Override{Policy: "api", Rule: "clients", Pattern: pattern})
		assert.NoError(t, err, pattern)
	}
}

// TestHashedKeys holds that patterns match what is before a hash, and that a client cannot leave
// a pattern by a name that looks like one.
func TestHashedKeys(t *testing.T) {
	var o Overrides
	hash := "sha256:" + strings.Repeat("0", 64)
	for prefix, keys := range map[string]map[string]bool{
		"free-":        {"free-sha256:": true, "free-x" + hash: true, hash: false, "free-" + strings.Repeat("k", 124): false, "free-" + strings.Repeat("k", 123): true},
		"s":            {hash: false, "sha256": true, "s" + hash: true, "": false},
		"0=":           {"0=" + hash: true, "0=bob": true, "1=" + hash: false},
		"0=s":          {"0=" + hash: false, "0=sam": true},
		"0=sha256:000": {"0=" + hash: false},
	} {
		e := Override{Policy: "api", Rule: "r", Pattern: prefix + "*"}
		o.apply(map[string]control.Document{fmt.Sprintf(`"api" "r" %q*`, prefix): {Value: []byte(`{"limit":3}`)}})
		for key, want := range keys {
			assert.Equal(t, want, o.Limit("api", "r", key) == 3, "%s of %s", key, prefix)
			assert.Equal(t, want, e.Matches(key), "%s of %s", key, prefix)
		}
	}
	assert.True(t, (&Override{Key: "free-*"}).Matches("free-*"))
	assert.False(t, (&Override{Key: "free-*"}).Matches("free-a"))
}

// TestEndedPatterns holds that the next override applies where one has ended.
func TestEndedPatterns(t *testing.T) {
	var o Overrides
	document := func(limit int, left time.Duration) control.Document {
		return control.Document{Value: fmt.Appendf(nil, `{"limit":%d}`, limit), Expires: time.Now().Add(left)}
	}
	o.apply(map[string]control.Document{`"api" "r" "free-eu-bob"`: document(1, 0), `"api" "r" "free-eu-"*`: document(2, -time.Hour), `"api" "r" "free-"*`: document(3, time.Hour)})
	assert.EqualValues(t, 3, o.Limit("api", "r", "free-eu-bob"))
	assert.Len(t, o.List(), 1)
}

// TestManyPatterns holds that patterns of one length cost one look-up.
func TestManyPatterns(t *testing.T) {
	k := withOverrides(1000).known.Load()
	assert.Len(t, k.overrides, 2000)
	assert.Equal(t, map[ruleName][]int{{"api", "r"}: {8, 7, 6}}, k.prefixes)
}

// TestAllocations holds that a decision costs no memory.
func TestAllocations(t *testing.T) {
	for _, n := range []int{0, 1000} {
		o := withOverrides(n)
		for _, key := range []string{"alice", "5", "free-alice", "free-5x"} {
			assert.Zero(t, testing.AllocsPerRun(100, func() { o.Limit("api", "r", key) }))
		}
	}
}

func BenchmarkLimit(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		o := withOverrides(n)
		for _, key := range []string{"alice", "5", "free-5x"} {
			b.Run(fmt.Sprintf("overrides=%d/key=%s", n, key), func(b *testing.B) {
				for b.Loop() {
					o.Limit("api", "r", key)
				}
			})
		}
	}
}

func withOverrides(n int) *Overrides {
	documents := make(map[string]control.Document)
	for i := range n {
		for _, form := range []string{`"api" "r" "%d"`, `"api" "r" "free-%d"*`} {
			documents[fmt.Sprintf(form, i)] = control.Document{Value: []byte(`{"limit":1}`), Expires: time.Now().Add(time.Hour)}
		}
	}
	var o Overrides
	o.apply(documents)
	return &o
}
