package lua

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// TestFlatten tests the rules of flatten one by one.
func TestFlatten(t *testing.T) {
	const top = "local algorithms, x = {}, 1\n"
	for name, test := range map[string]struct{ text, want string }{
		"comments": {
			"-- a\n  -- b\nlocal a = 1 -- c\n--\n-- @needs a.lua\nreturn a\n",
			"local a = 1\nreturn a\n",
		},
		"unused functions": {
			"local function a() return 1 end\nlocal function b()\n  return a()\nend\nlocal function c() return 2 end\nreturn c()\n",
			"local function c()\nreturn 2\nend\nreturn c()\n",
		},
		"rare functions": {
			"-- @rare\nlocal function a(n)\n  return n\nend\nlocal function b() return a(1) end\nif x then return b(a(2)) end\n",
			"local function b()\nreturn (function(n)\n  return n\nend)(1)\nend\nif x then return b((function(n)\n  return n\nend)(2)) end\n",
		},
		"an algorithm": {
			"local a = {}\nfunction a.load(rule)\n  x = rule\nend\nalgorithms[0] = a\nrule.as.load(rule) -- @each\n",
			"local a = {}\nalgorithms[0] = a\nif rule.as == a then\n  x = rule\nend\n",
		},
		"two algorithms, one of which is defined in another way": {
			"local a = {}\nfunction a.load(rule, n)\n  x = n\nend\nalgorithms[0] = a\nlocal b = {load = x}\nalgorithms[1] = b\nrule.as.load(rule, 1) -- @each\n",
			"local a = {}\nalgorithms[0] = a\nlocal b = {load = x}\nalgorithms[1] = b\nif rule.as == a then\nlocal n = 1\n  x = n\nelse\nrule.as.load(rule, 1)\nend\n",
		},
		"a result": {
			"local a = {}\n-- @rare\nfunction a.after(n)\n  return n\nend\nalgorithms[0] = a\nlocal y\ny = rule.as.after(x) -- @each\n",
			"local a = {}\nalgorithms[0] = a\nlocal y\nif rule.as == a then\ny = (function(n)\n  return n\nend)(x)\nend\n",
		},
		"a return": {
			"local a = {}\nfunction a.load(rule)\n  if x then return end\nend\nalgorithms[0] = a\nrule.as.load(rule) -- @each\n",
			"local a = {}\nfunction a.load(rule)\n  if x then return end\nend\nalgorithms[0] = a\nrule.as.load(rule)\n",
		},
		"the only algorithm of a script": {
			"local a, b = {}, {}\nfunction a.load(rule)\n  x = rule\nend\nfunction a.give(n)\n  return n\nend\nalgorithms[0] = a\nlocal rule = {\n  as = algorithms[0], -- @sole\n}\nrule.as.load(rule) -- @each\nreturn rule.as.give(x)\n",
			"local a, b = {}, {}\nfunction a.give(n)\n  return n\nend\nlocal rule = {\n}\ndo\n  x = rule\nend\nreturn a.give(x)\n",
		},
		"a hook that a short function calls": {
			"local a = {}\nfunction a.step(n)\n  x = n\nend\nfunction a.load(s) s.step(s) end\nalgorithms[0] = a\nreturn x.load(x)\n",
			"local a = {}\nfunction a.step(n)\n  x = n\nend\nfunction a.load(s)\ns.step(s)\nend\nalgorithms[0] = a\nreturn x.load(x)\n",
		},
		"inline": {
			"local function a(n, m)\n  x = n + m\nend\nfunction b(n)\n  a(n, 2) -- @inline\nend\nb(1)\n",
			"function b(n)\ndo\nlocal m = 2\n  x = n + m\nend\nend\nb(1)\n",
		},
		"an optional function that there is not": {
			"local a = {}\nalgorithms[0] = a\nif rule.as.prepare then rule.as.prepare(rule) end -- @each\nreturn x\n",
			"local a = {}\nalgorithms[0] = a\nreturn x\n",
		},
	} {
		assert.Equal(t, top+test.want, flatten(top+test.text), name)
	}
	assert.Panics(t, func() {
		flatten(top + "local function a() return x end\nlocal function b()\n  a() -- @inline\nend\nb()\n")
	}, "a return")
}

// TestLocals tests that the largest scripts leave 80 of the 200 local variables that Lua has in a
// function to their drivers, and to what is written into those.
func TestLocals(t *testing.T) {
	var charges []core.Charge
	for _, a := range core.Algorithms() {
		charges = append(charges, core.Charge{Rule: a.String(), Cost: 1,
			Quota: core.Quota{Algorithm: a, Limit: 200, Window: 60_000_000, Burst: 20, Cells: 4}})
	}
	reserved := slices.Clone(charges)
	reserved[0].Reserve = 1
	debts := NewDebts("", "", 1, charges)
	debts.Tallied(charges)
	var returns []core.Return
	for _, c := range charges {
		if !c.Quota.Leases() && !c.Quota.Bars() {
			returns = append(returns, core.Return{Charge: c, At: 1})
		}
	}
	release, _ := TalliedLeases("", nil, nil, charges)
	for name, script := range map[string]*Script{
		"take":    NewRules("", []core.Ask{{Charges: charges[:1]}, {Charges: charges}}).Tallied(all),
		"reserve": NewRules("", []core.Ask{{Charges: reserved}}).Tallied(all),
		"owe":     debts.Script,
		"return":  NewReturns("", "", 1, returns, true).Script,
		"release": release,
	} {
		s, locals := flattened(script.plain), 0
		count := func(text string) {
			for line := range strings.Lines(text) {
				if names, ok := strings.CutPrefix(line, "local "); ok {
					names, _, _ = strings.Cut(names, " = ")
					locals += 1 + strings.Count(names, ",")
				}
			}
		}
		count(s.first)
		for _, f := range s.functions {
			if count(f.behind); f.local && !f.dropped {
				locals++
			}
		}
		assert.LessOrEqual(t, locals, 120, "%s: make some fields of the table tallies", name)
	}
}

// TestFlattenAll tests that the scripts of all pairs of algorithms can be flattened,
// and that those of the log call no function of an algorithm.
func TestFlattenAll(t *testing.T) {
	for _, a := range core.Algorithms() {
		for _, b := range core.Algorithms() {
			rules := []core.Charge{{Quota: core.Quota{Algorithm: a, Limit: 5}}, {Rule: "b", Quota: core.Quota{Algorithm: b, Limit: 500}}}
			script := takeScript(rules...)
			most := len(Plain(script.SHA))
			if b == core.SlidingLog { // its rare functions are written where they are called
				most += most / 2
			}
			assert.Less(t, len(script.Text), most)
			if a == b && a == core.SlidingLog {
				assert.NotContains(t, script.Text, "rule.as.")
			}
		}
	}
}

// TestExtraLines tests that a request has the lines for Reserve and for several asks only
// if it needs them.
func TestExtraLines(t *testing.T) {
	quota := core.Quota{Limit: 5, Window: 1_000_000}
	rules := []core.Charge{{Rule: "a", Quota: quota}, {Rule: "b", Quota: quota}}
	usual := NewRules("p", one(rules))
	assert.NotContains(t, usual.Script.Text, "asks")
	assert.NotContains(t, usual.Script.Text, "reserve")
	_, args := usual.Encode("", 1, batch(rules))

	reserve := []core.Charge{rules[0], rules[1]}
	reserve[1].Reserve = core.MaxCost
	l := NewRules("p", one(reserve))
	assert.Contains(t, l.Script.Text, "reserves")
	assert.NotContains(t, l.Script.Text, "asks")
	assert.False(t, l.Match(one(rules)) || usual.Match(one(reserve)))
	assert.True(t, l.Match(one(reserve)))
	_, more := l.Encode("", 1, batch(reserve))
	assert.Equal(t, append(args, []byte("\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff")), more)
}

// TestSeveralAsks tests the shape of a request of several asks.
func TestSeveralAsks(t *testing.T) {
	of := func(rule, key string, limit int64) core.Charge {
		return core.Charge{Policy: "p", Rule: rule, Key: key, Cost: 1, Quota: core.Quota{Limit: limit, Window: 1_000_000}}
	}
	request := []core.Ask{
		{Charges: []core.Charge{of("a", "x", 5), of("b", "y", 5)}},
		{Charges: []core.Charge{of("b", "z", 5)}},
		{Charges: []core.Charge{of("a", "w", 6), of("b", "y", 5)}},
	}
	request[1].Charges[0].Reserve = 7
	l := NewRules("limit", request)
	keys, args := l.Encode("", 1, [][]core.Ask{request, request})
	assert.Equal(t, []string{"limit:1:{p}:a:x", "limit:1:{p}:b:y", "limit:1:{p}:b:z", "limit:1:{p}:a:w"}, keys)
	entries := "\x00\x01\x00\x00\x00\x00\x00\x01\x00\x02\x00\x00\x00\x00\x00\x01\x00\x03\x00\x00\x00\x00\x00\x01" +
		"\x00\x04\x00\x00\x00\x00\x00\x01\x00\x02\x00\x00\x00\x00\x00\x01"
	assert.Equal(t, []any{"", 0, 1, specOf(ofLog(5, 1), ofLog(5, 2), ofLog(6, 1)),
		[]byte(entries + entries), []byte(strings.Repeat("\x00", 17) + "\x07" + strings.Repeat("\x00", 12)), []byte("\x02\x01\x02\x01\x02\x02\x03\x02")}, args)
	assert.True(t, l.Match(request))
	for _, other := range [][]core.Ask{
		request[:2], request[1:], {request[0], request[2]}, append(request[:3:3], request[0]),
		one(slices.Concat(request[0].Charges, request[1].Charges)),
		{{Charges: request[0].Charges[:1]}, {Charges: slices.Concat(request[0].Charges[1:], request[1].Charges)}, request[2]},
	} {
		assert.False(t, l.Match(other), "%v", other)
	}

	// An ask that is undecided makes its request fail, and no other one.
	decided, undecided := []int64{1, 4, 1, 1, 4, 1, 1, 0, 0, 5, 5, 1, 3, 1, 1, 2, 1, 1}, []int64{-1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, -1, 2, 0, 0, 0, 0, 0}
	var errs []error
	require.NoError(t, l.Decode(slices.Concat([]int64{1000}, decided, undecided), [][]core.Ask{request, request}, func(_ int, err error) { errs = append(errs, err) }))
	require.Len(t, errs, 2)
	assert.NoError(t, errs[0])
	assert.ErrorIs(t, errs[1], ErrValue)
	assert.ErrorContains(t, errs[1], "limit:1:{p}:a:w was written by something else")
	assert.True(t, request[0].Decision.Allowed && !request[1].Decision.Allowed && request[2].Decision.Allowed)
	assert.Equal(t, core.Outcome{RetryAfter: 5, ResetAfter: 5}, request[1].Decision.Outcomes()[0])
	assert.EqualValues(t, 2, request[2].Decision.Outcomes()[1].Remaining)
}
