package lua

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

func takeScript(rules ...core.Charge) *Script { return NewRules("limit", one(rules)).Script }

// TestAlgorithms tests that every algorithm of package core has a file, which
// registers it under its number, and that no script has files that it does not
// need.
func TestAlgorithms(t *testing.T) {
	for _, a := range core.Algorithms() {
		q := core.Quota{Algorithm: a, Limit: 1, Window: 1_000_000}
		take := takeScript(core.Charge{Rule: "r", Quota: q}).Text
		returns := NewReturns("limit", "", 1, []core.Return{{Charge: core.Charge{Rule: "r", Quota: q}}}, false).Script.Text
		for _, other := range core.Algorithms() {
			registers := fmt.Sprintf("\nalgorithms[%d] = ", other)
			if other == a {
				assert.Contains(t, take, registers, "%v", a)
				assert.Contains(t, returns, registers, "%v", a)
			} else {
				assert.NotContains(t, take, registers, "%v", a)
			}
		}
		assert.NotContains(t, take, ".give_back(", "%v: what takes does not give back", a)
		if !q.Leases() {
			assert.Contains(t, returns, ".give_back(value", "%v", a)
		}
	}
}

// TestSelection tests which files a script has, in which order.
func TestSelection(t *testing.T) {
	rules := func(quotas ...core.Quota) (list []core.Charge) {
		for _, q := range quotas {
			list = append(list, core.Charge{Rule: fmt.Sprint(len(list)), Quota: q})
		}
		return list
	}
	small, large := core.Quota{Limit: 128}, core.Quota{Limit: 129}
	queue, bucket := core.Quota{Algorithm: core.Queue}, core.Quota{Algorithm: core.TokenBucket}
	assert.NotContains(t, takeScript(rules(small)...).Text, "local ring")
	assert.Contains(t, takeScript(rules(small, large)...).Text, "local ring")
	assert.Same(t, takeScript(rules(queue, bucket, large)...), takeScript(rules(large, queue, bucket, queue)...))

	files := newSelection(returning)
	files.addAlgorithms(3, func(i int) *core.Quota { return &[]core.Quota{queue, bucket, large}[i] })
	assert.Equal(t, []string{"bytes.lua", "state.lua", "logforms.lua", "slidinglog.lua", "be48.lua", "small.lua", "bucketreturn.lua",
		"bucket.lua", "tokenbucket.lua", "queue.lua"}, files.names)
}

func TestParse(t *testing.T) {
	f := must.Get(parse("-- a\n-- @needs small.lua\n-- @value a 12 4\nb\n-- @debt\n-- @needs d.lua\ne\n-- @return\n-- @needs c.lua\nd\n"))(t)
	assert.Equal(t, &file{
		text: [3]string{"-- a\n-- @needs small.lua\n-- @value a 12 4\nb\n",
			"-- @needs d.lua\ne\n", "-- @needs c.lua\nd\n"},
		needs:  [3][]string{{"small.lua"}, {"d.lua"}, {"c.lua"}},
		values: []value{{'a', 12, 4}},
	}, f)
	for _, line := range []string{"-- @", "-- @neds small.lua", "-- @needs", "-- @needs ring.lua above 128", "-- @value a", "-- @value a many"} {
		_, err := parse(line)
		assert.Error(t, err, line)
	}
}

func TestIsState(t *testing.T) {
	for _, test := range []struct {
		first byte
		sizes []int64 // that are possible
		not   []int64
	}{
		{'A', []int64{12, 16}, []int64{8, 13}}, {'B', []int64{14, 20}, []int64{8, 15}}, {'a', nil, []int64{12}},
		{'M', []int64{17, 21}, []int64{13, 18}}, {'N', []int64{17, 23}, []int64{11, 18}},
		{'c', []int64{34, 38}, []int64{30}}, {'d', []int64{36, 42}, []int64{30}},
		{'u', []int64{27}, []int64{14, 28}}, {'v', []int64{33, 39}, []int64{15, 21}}, {'w', []int64{26}, []int64{27}}, {'x', []int64{109, 118}, []int64{85}},
		{'h', []int64{26}, []int64{25}}, {'m', []int64{32}, []int64{26}}, {'n', []int64{27}, []int64{20, 54}}, {'J', []int64{28, 46}, []int64{10}},
		{'s', []int64{51, 63}, []int64{27, 39, 52}}, {'K', []int64{29, 36}, []int64{9, 30}}, {'L', []int64{25, 41}, []int64{9, 17}}, {'r', []int64{141}, []int64{140}}, {'g', []int64{33, 52}, []int64{32, 51}}, {'z', nil, []int64{1}},
	} {
		for _, size := range test.sizes {
			assert.True(t, IsState(test.first, size), "%c %d", test.first, size)
		}
		for _, size := range test.not {
			assert.False(t, IsState(test.first, size), "%c %d", test.first, size)
		}
	}
}

// BenchmarkFirstScript makes a script as for the first call of a policy, or of the first one
// on keys that several algorithms charge.
func BenchmarkFirstScript(b *testing.B) {
	asks := []core.Ask{{Charges: []core.Charge{{Quota: core.Quota{Limit: 5, Window: 1}}, {Rule: "b", Quota: core.Quota{Limit: 500, Window: 1}}}}}
	b.Run("two logs", func(b *testing.B) {
		for b.Loop() {
			scripts.Clear()
			NewRules("limit", asks)
		}
	})
	b.Run("all algorithms", func(b *testing.B) {
		rules := NewRules("limit", asks)
		for b.Loop() {
			scripts.Clear()
			rules.tallied.Clear()
			rules.Tallied(all)
		}
	})
}

// TestTalliedIsKept tests that a call asks for its script without allocations: naming the files of
// one takes many.
func TestTalliedIsKept(t *testing.T) {
	rules := NewRules("limit", one(charges("a")))
	assert.Same(t, rules.Tallied(all), NewRules("limit", one(charges("b"))).Tallied(all))
	assert.NotSame(t, rules.Tallied(all), rules.Tallied(1<<core.TokenBucket))
	assert.Zero(t, testing.AllocsPerRun(100, func() { rules.Tallied(all) }))
}

// TestAssignments tests that no assignment of several values reads in a later one what an
// earlier one sets: gopher-lua, on which miniredis runs, would read the new value.
func TestAssignments(t *testing.T) {
	assignment := regexp.MustCompile(`(?:^|then |else |do )\s*([\w.]+(?:, [\w.]+)+) = (.*)`)
	reads := func(line string) string {
		m := assignment.FindStringSubmatch(line)
		if m == nil {
			return ""
		}
		names, text := strings.Split(m[1], ", "), strings.Split(m[2], " else")[0]
		depth, at := 0, 0
		for i, c := range text {
			switch c {
			case '(', '{', '[':
				depth++
			case ')', '}', ']':
				depth--
			case ',':
				if depth > 0 || at+1 >= len(names) {
					continue
				}
				again := regexp.MustCompile(`(?:^|[^\w.])` + regexp.QuoteMeta(names[at]) + `(?:\W|$)`)
				if again.MatchString(text[i:]) {
					return names[at]
				}
				at++
			}
		}
		return ""
	}
	assert.Equal(t, "a", reads("  if b > a then a, b = b, a end"))
	assert.Equal(t, "b", reads("a, b, c = f(a, b), 1, b"))
	assert.Empty(t, reads("a, b = f(a, b), a_b"))

	files := must.Get(filepath.Glob("*.lua"))(t)
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for i, line := range strings.Split(string(text), "\n") {
			assert.Empty(t, reads(line), "%s:%d: %s", file, i+1, line)
		}
	}
}
