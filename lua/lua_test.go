package lua

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fuzzloop"
)

func charges(keys ...string) []core.Charge {
	list := make([]core.Charge, len(keys))
	for i, key := range keys {
		list[i] = core.Charge{Rule: string(rune('a' + i)), Key: key, Cost: int64(i) + 1,
			Quota: core.Quota{Limit: 5, Window: 1_000_000}}
	}
	return list
}

func TestEncode(t *testing.T) {
	rules := NewRules("limit", "POST /update", charges("", ""))
	keys, args := rules.Encode("", 1, [][]core.Charge{charges("x", "all"), charges("y", "all"), charges("x", "all")})
	assert.Equal(t, []string{
		"limit:1:{POST%20/update}:a:x", "limit:1:{POST%20/update}:a:y", "limit:1:{POST%20/update}:b:all",
	}, keys, "each key once, grouped by rule")
	blob := []byte{
		0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
		0, 2, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
		0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
	}
	assert.Equal(t, []any{"", 1, 2, 0, int64(5), int64(1_000_000), 2, "", 0, int64(5), int64(1_000_000), 1, "", blob}, args)
}

func TestMatch(t *testing.T) {
	rules := NewRules("limit", "p", charges("", ""))
	assert.True(t, rules.Match(charges("other", "keys")))
	changed := charges("", "")
	changed[1].Quota.Limit++
	renamed := charges("", "")
	renamed[0].Rule = "z"
	for _, other := range [][]core.Charge{charges(""), charges("", "", ""), changed, renamed} {
		assert.False(t, rules.Match(other), "%v", other)
	}
}

func TestDecode(t *testing.T) {
	rules := NewRules("limit", "p", charges("", ""))
	batch := [][]core.Charge{charges("x", "all"), charges("x", "all"), charges("bad", "all")}
	var got []core.Decision
	var errs []error
	reply := []int64{1000,
		1, 4, 70, 90, 3, 60, 80,
		0, 0, 50, 90, 3, 60, 80,
		-1, 0, 0, 0, 2, 0, 0}
	require.NoError(t, rules.Decode(reply, batch, func(_ int, d core.Decision, err error) {
		got, errs = append(got, d), append(errs, err)
	}))
	assert.True(t, got[0].Allowed)
	assert.Equal(t, []core.Outcome{
		{Remaining: 4, MoreAfter: 70, ResetAfter: 90},
		{Remaining: 3, MoreAfter: 60, ResetAfter: 80},
	}, got[0].Outcomes())
	assert.False(t, got[1].Allowed)
	assert.EqualValues(t, 1000, got[1].At)
	assert.Equal(t, []core.Outcome{
		{Remaining: 0, RetryAfter: 50, ResetAfter: 90},
		{Remaining: 3, MoreAfter: 60, ResetAfter: 80},
	}, got[1].Outcomes())
	assert.ErrorIs(t, errs[2], ErrValue)
	assert.ErrorContains(t, errs[2], "limit:1:{p}:b:all")
}

// FuzzDecode gives the decoder replies that no script made.
func FuzzDecode(t *testing.F) {
	f := fuzzloop.New(t)
	f.Add([]byte{}, 1)
	f.Add(make([]byte, 8*8), 1)
	f.Add(make([]byte, 15*8), 2)
	rules := NewRules("limit", "p", charges("", ""))
	f.Fuzz(func(t *testing.T, data []byte, decisions int) {
		if decisions < 0 || decisions > 100 {
			return
		}
		reply := make([]int64, len(data)/8)
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(data[8*i:]))
		}
		batch := make([][]core.Charge, decisions)
		for i := range batch {
			batch[i] = charges("x", "y")
		}
		done := 0
		err := rules.Decode(reply, batch, func(int, core.Decision, error) { done++ })
		if err == nil && done != decisions {
			t.Fatalf("%d of %d decisions", done, decisions)
		}
	})
}

func TestKey(t *testing.T) {
	tests := []struct{ policy, rule, key, want string }{
		{"POST /update", "per-ip-2s", "203.0.113.9", "limit:1:{POST%20/update}:per-ip-2s:203.0.113.9"},
		{"p", "r", "2001:db8::/64", "limit:1:{p}:r:2001:db8::/64"},
		{"p", "r", "", "limit:1:{p}:r:"},
		{"", "r", "k", "limit:1:{%}:r:k"},
		{"}:x{", "a:b", "{}\r\n\x00\xff%", "limit:1:{%7D%3Ax%7B}:a%3Ab:%7B%7D%0D%0A%00%FF%25"},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, Key("limit", test.policy, test.rule, test.key))
	}
}

// FuzzKey holds that no two policies, rules or keys share a key of Redis, that
// the hash tag is the policy's alone, and that nothing but printable ASCII gets
// into it.
func FuzzKey(t *testing.F) {
	f := fuzzloop.New(t)
	f.Add("p", "r", "k", "p", "r:k", "")
	f.Add("a}", "b", "c", "a", "}b", "c")
	f.Add("", "%", "", "%", "", "")
	f.Add("%41", "", "", "A", "", "")
	f.Fuzz(func(t *testing.T, policy1, rule1, key1, policy2, rule2, key2 string) {
		one, two := Key("limit", policy1, rule1, key1), Key("limit", policy2, rule2, key2)
		if (one == two) != (policy1 == policy2 && rule1 == rule2 && key1 == key2) {
			t.Fatalf("%q", one)
		}
		if (tag(one) == tag(two)) != (policy1 == policy2) || tag(one) == "" {
			t.Fatalf("tags %q, %q", tag(one), tag(two))
		}
		for i := range len(one) {
			if one[i] <= ' ' || one[i] > '~' {
				t.Fatalf("%q", one)
			}
		}
	})
}

// tag is the part of a key that a Redis Cluster hashes.
func tag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}
