package lua

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// TestFlatten tests the rules of flatten one by one.
func TestFlatten(t *testing.T) {
	const top = "local algorithms, x = {}, 1\n"
	for name, test := range map[string]struct{ text, want string }{
		"comments": {
			"-- a\n  -- b\nlocal a = 1 -- c\n--\n-- @needs a.lua\nreturn a\n",
			"local a = 1 -- c\nreturn a\n",
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
		flatten(top + "-- @rare\nlocal function a() return x end\nlocal function b(x) return a() end\nreturn b()\n")
	}, "x is another variable in b")
	assert.Panics(t, func() {
		flatten(top + "local a = {}\nfunction a.load(rule)\n  x = rule\nend\nlocal x\nrule.as.load(rule) -- @each\n")
	}, "x is another variable in the driver")
	assert.Panics(t, func() {
		flatten(top + "local function a() x = 2 end\nlocal function b(x)\n  a() -- @inline\nend\nb()\n")
	}, "x is another variable in b")
	assert.Panics(t, func() {
		flatten(top + "local function a() return x end\nlocal function b()\n  a() -- @inline\nend\nb()\n")
	}, "a return")
}

// TestFlattenAll tests that the scripts of all pairs of algorithms can be flattened,
// and that those of the log call no function of an algorithm.
func TestFlattenAll(t *testing.T) {
	for _, a := range core.Algorithms() {
		for _, b := range core.Algorithms() {
			rules := []core.Charge{{Quota: core.Quota{Algorithm: a, Limit: 5}}, {Quota: core.Quota{Algorithm: b, Limit: 500}}}
			script := takeScript(rules)
			assert.Less(t, len(script.Text), len(Plain(script.SHA)))
			if a == b && a == core.SlidingLog {
				assert.NotContains(t, script.Text, "rule.as.")
			}
		}
	}
}

// TestExtraLines tests that a policy has the lines for charges with Alone or Reserve
// only if it needs them.
func TestExtraLines(t *testing.T) {
	rules := []core.Charge{{Quota: core.Quota{Limit: 5, Window: 1_000_000}}, {Quota: core.Quota{Limit: 5, Window: 1_000_000}}}
	usual := NewRules("p", "p", rules)
	assert.NotContains(t, usual.Script.Text, "alone")
	assert.NotContains(t, usual.Script.Text, "reserve")
	_, args := usual.Encode("", 1, [][]core.Charge{rules})
	for _, change := range []func(c *core.Charge){
		func(c *core.Charge) { c.Alone = true }, func(c *core.Charge) { c.Reserve = 1 },
	} {
		other := []core.Charge{rules[0], rules[1]}
		change(&other[1])
		l := NewRules("p", "p", other)
		assert.Contains(t, l.Script.Text, "rule.alone")
		assert.False(t, l.Match(rules) || usual.Match(other))
		assert.True(t, l.Match(other))
		_, more := l.Encode("", 1, [][]core.Charge{other})
		assert.Len(t, more, len(args)+1)
	}
	alone, reserve := rules[0], rules[0]
	alone.Alone, reserve.Reserve = true, core.MaxCost
	assert.Equal(t, []byte("\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff"), extrasOf([]core.Charge{alone, reserve}))
}
