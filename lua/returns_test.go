package lua

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

func someReturns() []core.Return {
	log := core.Quota{Limit: 5, Window: 1_000_000}
	bucket := core.Quota{Algorithm: core.TokenBucket, Limit: 5, Window: 1_000_000, Burst: 9, Missing: 2}
	return []core.Return{
		{Charge: core.Charge{Policy: "p", Rule: "a", Key: "x", Quota: log, Cost: 1}, At: 1_800_000_000_000_000, Remaining: 4, ResetAfter: 7},
		{Charge: core.Charge{Policy: "p", Rule: "b", Key: "y", Quota: bucket, Cost: core.MaxCost}, At: core.MaxTime, Remaining: 3, ResetAfter: 8},
		{Charge: core.Charge{Policy: "p", Rule: "c", Key: "", Quota: log}},
	}
}

func TestNewReturns(t *testing.T) {
	call := NewReturns("limit", "", 1, someReturns(), false)
	assert.Equal(t, []string{"limit:1:{p}:a:x", "limit:1:{p}:c:", "limit:1:{p}:b:y", "limit:1:returned:{p}:b:y"}, call.Keys)
	assert.Equal(t, []any{"", 1,
		"A\x05\x00\x03\xe8", []byte("\x00\x00\x02" + number(5, 6) + number(1_000_000, 6) +
			"\x00\x01" + number(1, 6) + number(1_800_000_000_000_000, 7) + number(4, 6) + number(7, 7) + number(0, 8) +
			"\x00\x02" + number(0, 6) + number(0, 7) + number(0, 6) + number(0, 7) + number(0, 8)),
		"9,2", []byte("\x04\x00\x01" + number(5, 6) + number(1_000_000, 6) +
			"\x00\x03" + number(core.MaxCost, 6) + number(core.MaxTime, 7) + number(3, 6) + number(8, 7) + number(0, 8)),
	}, call.Args)
	assert.Contains(t, call.Script.Text, "function log.give_back(")
	assert.Contains(t, call.Script.Text, "function bucket.give_back(")
	assert.NotContains(t, call.Script.Text, "function cells.give_back(", "no rule needs it")
	assert.NotContains(t, NewRules("limit", one(charges(""))).Script.Text, "log.give_back", "what takes does not give back")
}

func TestDecodeReturns(t *testing.T) {
	call := NewReturns("limit", "", 1, someReturns(), false)
	given, err := call.Decode([]int64{1, 0, 0, 5, 0, 0, 0, 50, 50, 3, 60, 80}) // the last is of the second rule
	require.NoError(t, err)
	assert.Equal(t, []core.Returned{{Units: 1, Outcome: core.Outcome{Remaining: 5}},
		{Outcome: core.Outcome{Remaining: 3, MoreAfter: 60, ResetAfter: 80}}, {Outcome: core.Outcome{MoreAfter: 50, ResetAfter: 50}}}, given)
	for _, test := range []struct {
		reply []int64
		err   error
		text  string
	}{
		{[]int64{1, 0}, ErrReply, "2 numbers for 3 returns"},
		{[]int64{1, 0, 2}, ErrReply, "no outcomes of 3 returns"},
		{[]int64{1, 0, 0, 6, 0, 0, 0, 50, 50, 3, 60, 80}, ErrValue, "limit:1:{p}:a:x makes no sense"},
		{[]int64{1, 0, 0, 5, 0, 0, 0, -1, 50, 3, 60, 80}, ErrValue, "limit:1:{p}:c: makes no sense"},
		{[]int64{1, 0, -1}, ErrValue, "limit:1:{p}:b:y is of another type"},
		{[]int64{1, -2, 0}, ErrValue, "limit:1:{p}:c: was written by something else"},
		{[]int64{-3, 0, 0}, ErrClock, "clocks"},
		{[]int64{0, -4, 0}, ErrReply, "reason 4"},
	} {
		given, err := call.Decode(test.reply)
		assert.ErrorIs(t, err, test.err)
		assert.ErrorContains(t, err, test.text)
		assert.Nil(t, given)
	}
}

// TestReturnsTogether tests that returns to one key of units of one time are one for the
// script if they are alike and follow each other, and that each caller gets its own back.
func TestReturnsTogether(t *testing.T) {
	of := func(a core.Algorithm, at int64) core.Return {
		quota := core.Quota{Algorithm: a, Limit: 5, Window: 1_000_000, Burst: 9, Cells: 10}
		return core.Return{Charge: core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: quota, Cost: 2}, At: at, Remaining: 4}
	}
	for _, a := range core.Algorithms() {
		records := 3
		if a == core.Queue || a == core.Distinct || a == core.TokenBucket || a == core.LeakyBucket {
			records = 4 // which depend on more than the time
		}
		call := NewReturns("limit", "", 1, []core.Return{of(a, 7), of(a, 7), of(a, 8), of(a, 7)}, false)
		assert.Len(t, call.Args[len(call.Args)-1], ruleSize+records*recordSize, a)
	}

	list := []core.Return{of(core.FixedWindow, 7), of(core.FixedWindow, 7), of(core.FixedWindow, 8), of(core.FixedWindow, 7)}
	call := NewReturns("limit", "", 1, list, false)
	assert.Len(t, call.Keys, 1)
	assert.Equal(t, []byte("\x01\x00\x01"+number(5, 6)+number(1_000_000, 6)+
		"\x00\x01"+number(4, 6)+number(7, 7)+number(4, 6)+number(0, 7)+number(0, 8)+
		"\x00\x01"+number(2, 6)+number(8, 7)+number(4, 6)+number(0, 7)+number(0, 8)+
		"\x00\x01"+number(2, 6)+number(7, 7)+number(4, 6)+number(0, 7)+number(0, 8)), call.Args[len(call.Args)-1])
	given := must.Get(call.Decode([]int64{3, 2, 0, 5, 60, 80}))(t)
	var units []int64
	for _, g := range given {
		units = append(units, g.Units)
		assert.Equal(t, core.Outcome{Remaining: 5, MoreAfter: 60, ResetAfter: 80}, g.Outcome)
	}
	assert.Equal(t, []int64{2, 1, 2, 0}, units)

	// A key that has two quotas: in the order of the returns.
	list[1].Quota.Limit = 6
	call = NewReturns("limit", "", 1, list[:3], false)
	assert.Len(t, call.Keys, 3)
	assert.NotEqual(t, NewReturns("limit", "", 1, list[:1], false).Script, call.Script)
	assert.Len(t, call.Args, 2+2*3)
}

// FuzzDecodeReturns gives the decoder replies that no script made.
func FuzzDecodeReturns(f *testing.F) {
	f.Add(true, []byte{})
	f.Add(true, make([]byte, 12*8))
	f.Add(false, []byte("\xff\xff\xff\xff\xff\xff\xff\xff and others that are not quite"))
	call := NewReturns("limit", "", 1, someReturns(), false)
	f.Fuzz(func(t *testing.T, fits bool, data []byte) {
		reply := replyOf(data, fits, 12)
		given, err := call.Decode(reply)
		if (err == nil) != (len(given) == 3) {
			t.Fatalf("%v, %v", given, err)
		}
		for _, n := range given {
			if n.Units < 0 || n.Outcome.Remaining < 0 || n.Outcome.MoreAfter < 0 {
				t.Fatalf("%v", given)
			}
		}
	})
}

// TestReturnedKey holds that what was given back shares the slot of its key, and
// the name of none.
func TestReturnedKey(t *testing.T) {
	parts := []string{"", "a", ":", "}", "{", "1", "returned", "returned:{a}"}
	seen := make(map[string]bool)
	for _, prefix := range []string{"limit", "limit:1", "limit:1:returned", ""} {
		for _, policy := range parts {
			for _, rule := range parts {
				for _, key := range parts {
					state, returned := Key(prefix, named(policy, rule, key)), ReturnedKey(prefix, named(policy, rule, key))
					for _, name := range []string{state, returned} {
						if seen[name] {
							t.Fatalf("%s twice", name)
						}
						seen[name] = true
					}
					if tag(state) != tag(returned) || !strings.HasPrefix(returned, prefix+":") {
						t.Fatalf("%s, %s", state, returned)
					}
				}
			}
		}
	}
}
