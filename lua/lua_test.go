package lua

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// one returns the only ask of a request.
func one(charges []core.Charge) []core.Ask { return []core.Ask{{Charges: charges}} }

// batch returns requests of one ask each.
func batch(list ...[]core.Charge) (requests [][]core.Ask) {
	for _, charges := range list {
		requests = append(requests, one(charges))
	}
	return requests
}

func named(policy, rule, key string) *core.Charge {
	return &core.Charge{Policy: policy, Rule: rule, Key: key}
}

func charges(keys ...string) []core.Charge {
	list := make([]core.Charge, len(keys))
	for i, key := range keys {
		list[i] = core.Charge{Policy: "p", Rule: string(rune('a' + i)), Key: key, Cost: int64(i) + 1,
			Quota: core.Quota{Limit: 5, Window: 1_000_000}}
	}
	return list
}

func TestEncode(t *testing.T) {
	rules := NewRules("limit", one(charges("", "")))
	keys, args := rules.Encode("", 1, batch(charges("x", "all"), charges("y", "all"), charges("x", "all")))
	assert.Equal(t, []string{
		"limit:1:{p}:a:x", "limit:1:{p}:a:y", "limit:1:{p}:b:all",
	}, keys, "each key once, grouped by rule")
	blob := []byte{
		0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
		0, 2, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
		0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2,
	}
	assert.Equal(t, []any{"", 0, 1, specOf(ofLog(5, 2), ofLog(5, 1)), blob}, args)
}

// TestKeysOfACall tests that long keys take as many allocations as short ones, and that all are whole.
func TestKeysOfACall(t *testing.T) {
	for _, n := range []int{1, 3, 128} {
		var allocations []float64
		for _, length := range []int{1, 100, 1000} {
			key := strings.Repeat("k", length)
			var requests [][]core.Ask
			var want []string
			for i := range n {
				first := fmt.Sprint(100+i, key)
				requests = append(requests, one(charges(first, fmt.Sprint(500+i, key), "")))
				want = append(want, "limit:1:{p}:a:"+first)
			}
			rules := NewRules("limit", requests[0])
			keys, _ := rules.Encode("", 1, requests)
			assert.Equal(t, want, keys[:n])
			assert.Equal(t, "limit:1:{p}:c:", keys[2*n])
			assert.Len(t, keys, 2*n+1)
			allocations = append(allocations, testing.AllocsPerRun(10, func() { rules.Encode("", 1, requests) }))
		}
		assert.Equal(t, []float64{allocations[0], allocations[0], allocations[0]}, allocations)
	}
}

// specOf returns what the script gets of rules.
func specOf(rules ...string) []byte {
	return append([]byte{byte(len(rules))}, strings.Join(rules, "")...)
}

// ofLog is the part of a log in one second with so many keys.
func ofLog(limit, keys byte) string {
	return "\x00" + "\x00\x00\x00\x00\x00" + string(rune(limit)) + "\x00\x00\x00\x0f\x42\x40" + "\x00" + string(rune(keys)) + "\x00\x05" +
		"A" + string(rune(limit)) + "\x00\x03\xe8"
}

func TestMatch(t *testing.T) {
	rules := NewRules("limit", one(charges("", "")))
	assert.True(t, rules.Match(one(charges("other", "keys"))))
	changed := charges("", "")
	changed[1].Quota.Limit++
	renamed := charges("", "")
	renamed[0].Rule = "z"
	for _, other := range [][]core.Charge{charges(""), charges("", "", ""), changed, renamed} {
		assert.False(t, rules.Match(one(other)), "%v", other)
	}
}

func TestDecode(t *testing.T) {
	rules := NewRules("limit", one(charges("", "")))
	requests := batch(charges("x", "all"), charges("x", "all"), charges("bad", "all"))
	var got []core.Decision
	var errs []error
	reply := []int64{1000,
		1, 4, 70, 90, 3, 60, 80,
		0, 0, 50, 90, 3, 60, 80,
		-1, 0, 0, 0, 2, 0, 0}
	require.NoError(t, rules.Decode(reply, requests, func(i int, err error) {
		got, errs = append(got, requests[i][0].Decision), append(errs, err)
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

// TestDecodeNonsense has numbers that no rule has: as a turn they would be waited
// for, and as what is left told to clients.
func TestDecodeNonsense(t *testing.T) {
	rules := NewRules("limit", one(charges(""))) // one of cost 1
	none := func(int, error) { t.Error("a decision") }
	for _, reply := range [][]int64{
		{-1, 1, 4, 0, 0}, {core.MaxTime + 1, 1, 4, 0, 0},
		{1, -2, 4, 0, 0}, {1, 2, 4, 0, 0}, {1, math.MaxInt64, 4, 0, 0}, // a turn without a queue
	} {
		assert.ErrorIs(t, rules.Decode(reply, batch(charges("x")), none), ErrReply, "%v", reply)
	}
	// Of one key, and not of the others in a batch.
	for _, part := range [][]int64{{-1, 0, 0}, {6, 0, 0}, {4, -2, 0}, {4, maxSpan + 1, 0}, {4, 0, -1}, {4, 0, maxSpan + 1}} {
		var errs []error
		reply := append(append([]int64{1, 1}, part...), 1, 4, 0, 0)
		require.NoError(t, rules.Decode(reply, batch(charges("x"), charges("y")), func(_ int, err error) {
			errs = append(errs, err)
		}))
		require.Len(t, errs, 2)
		assert.ErrorIs(t, errs[0], ErrValue, "%v", part)
		assert.ErrorContains(t, errs[0], "limit:1:{p}:a:x")
		assert.NoError(t, errs[1])
	}
	queue := charges("x")
	queue[0].Quota.Algorithm, queue[0].Quota.Burst = core.Queue, 4
	rules = NewRules("limit", one(queue))
	request := one(queue)
	require.NoError(t, rules.Decode([]int64{1, 1 + maxSpan, 4, 0, 0}, [][]core.Ask{request}, func(_ int, err error) {
		assert.EqualValues(t, int64(maxSpan), request[0].Decision.Delay)
	}))
	assert.ErrorIs(t, rules.Decode([]int64{1, 2 + maxSpan, 4, 0, 0}, batch(queue), none), ErrReply)
}

// replyOf makes numbers of bytes: as many as a script replies if it fits.
func replyOf(data []byte, fits bool, size int) []int64 {
	if !fits {
		size = len(data) / 8
	}
	data = append(append([]byte(nil), data...), make([]byte, 8*size)...)
	reply := make([]int64, size)
	for i := range reply {
		reply[i] = int64(binary.BigEndian.Uint64(data[8*i:]))
	}
	return reply
}

// FuzzDecode gives the decoder replies that no script made.
func FuzzDecode(f *testing.F) {
	f.Add(true, []byte{}, 1)
	f.Add(true, []byte(strings.Repeat("\x00", 8)+strings.Repeat("\xff", 8)+strings.Repeat("\x00", 7)+"\x02"), 1)
	f.Add(false, make([]byte, 8*8), 1)
	f.Add(false, make([]byte, 15*8), 2)
	rules := NewRules("limit", one(charges("", "")))
	f.Fuzz(func(t *testing.T, fits bool, data []byte, decisions int) {
		if decisions < 0 || decisions > 100 {
			return
		}
		reply := replyOf(data, fits, 1+decisions*7)
		requests := make([][]core.Ask, decisions)
		for i := range requests {
			requests[i] = one(charges("x", "y"))
		}
		done := 0
		err := rules.Decode(reply, requests, func(i int, err error) {
			done++
			if err != nil {
				return
			}
			d := &requests[i][0].Decision
			if d.At < 0 || d.Delay != 0 {
				t.Fatalf("%+v", d)
			}
			for _, o := range d.Outcomes() {
				if o.Remaining < 0 || o.Remaining > 5 || min(o.RetryAfter, o.MoreAfter) < core.Never || o.ResetAfter < 0 ||
					max(o.RetryAfter, o.MoreAfter, o.ResetAfter) > maxSpan {
					t.Fatalf("%+v", o)
				}
			}
		})
		if err == nil && done != decisions {
			t.Fatalf("%d of %d decisions", done, decisions)
		}
	})
}

func TestKey(t *testing.T) {
	tests := []struct{ policy, rule, variant, key, want string }{
		{"POST /update", "per-ip-2s", "", "203.0.113.9", "limit:1:{POST%20/update}:per-ip-2s:203.0.113.9"},
		{"p", "r", "", "2001:db8::/64", "limit:1:{p}:r:2001:db8::/64"},
		{"p", "r", "", "", "limit:1:{p}:r:"},
		{"p", "r~", "a@b", "k", "limit:1:{p}:r~@a%40b:k"},
		{"", "r", "", "k", "limit:1:{%}:r:k"},
		{"}:x{", "a:b", "", "{}\r\n\x00\xff%", "limit:1:{%7D%3Ax%7B}:a%3Ab:%7B%7D%0D%0A%00%FF%25"},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, Key("limit", &core.Charge{Policy: test.policy, Rule: test.rule, Variant: test.variant, Key: test.key}))
	}
}

// FuzzKey holds that no two policies, rules or keys share a key of Redis, that
// the hash tag is the policy's alone, and that nothing but printable ASCII gets
// into it.
func FuzzKey(f *testing.F) {
	f.Add("p", "r", "", "k", "p", "r:k", "", "")
	f.Add("a}", "b", "", "c", "a", "}b", "", "c")
	f.Add("", "%", "", "", "%", "", "", "")
	f.Add("%41", "", "", "", "A", "", "", "")
	f.Add("p", "r", "v", "k", "p", "r@v", "", "k")
	f.Fuzz(func(t *testing.T, policy1, rule1, variant1, key1, policy2, rule2, variant2, key2 string) {
		one := Key("limit", &core.Charge{Policy: policy1, Rule: rule1, Variant: variant1, Key: key1})
		two := Key("limit", &core.Charge{Policy: policy2, Rule: rule2, Variant: variant2, Key: key2})
		if (one == two) != (policy1 == policy2 && rule1 == rule2 && variant1 == variant2 && key1 == key2) {
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
