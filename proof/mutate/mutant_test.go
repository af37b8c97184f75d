//go:build unix

package mutate

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
)

func TestGo(t *testing.T) {
	const text = `package p

const most = 8

func (s *store) take(n int64) (int64, bool) {
	if n <= most && s.open {
		s.used += n
		s.save()
	}
	f := func() error { return s.err }
	_ = f
	panic("no" + "thing")
}
`
	mutants := must.Get(goMutants("p/p.go", text))(t)
	var got []string
	for _, m := range mutants {
		got = append(got, m.String())
	}
	assert.Equal(t, []string{
		`p/p.go:3: constant: "9" for "8"`,
		`p/p.go:6: negate: "!(n <= most && s.open)" for "n <= most && s.open"`,
		`p/p.go:6: logic: "||" for "&&"`,
		`p/p.go:6: boundary: "<" for "<="`,
		`p/p.go:7: arithmetic: "-=" for "+="`,
		`p/p.go:7: remove: "" for "s.used += n"`,
		`p/p.go:8: remove: "" for "s.save()"`,
		`p/p.go:10: zero: "*new(error)" for "s.err"`,
	}, got)

	for _, m := range mutants {
		_, err := goMutants("p/p.go", m.apply(text))
		assert.NoError(t, err, "%s is not Go", m)
	}
	assert.Contains(t, mutants[2].apply(text), "\tif n <= most || s.open {\n")
}

func TestLua(t *testing.T) {
	const text = `-- Takes 1 or 2 < 3.
local function take(n) -- not 4
  if n <= 5 and n ~= 'a < 6' then return n + 1 end
  return n - 1 .. "7 * 8"
end
call(9)
`
	mutants := must.Get(luaMutants("take.lua", text))(t)
	var got []string
	for _, m := range mutants {
		got = append(got, m.String())
	}
	assert.Equal(t, []string{
		`take.lua:3: negate: "not (n <= 5 and n ~= 'a < 6')" for "n <= 5 and n ~= 'a < 6'"`,
		`take.lua:3: boundary: "<" for "<="`,
		`take.lua:3: constant: "6" for "5"`,
		`take.lua:3: logic: "or" for "and"`,
		`take.lua:3: boundary: "==" for "~="`,
		`take.lua:3: arithmetic: "-" for "+"`,
		`take.lua:3: constant: "2" for "1"`,
		`take.lua:4: arithmetic: "+" for "-"`,
		`take.lua:4: constant: "2" for "1"`,
		`take.lua:6: constant: "10" for "9"`,
	}, got)
	at := slices.IndexFunc(mutants, func(m mutant) bool { return m.operator == arithmetic })
	assert.Contains(t, mutants[at].apply(text), "return n - 1 end\n")
}

const root = "../.."

// TestCollect holds that every folder of the product has packages that test it.
func TestCollect(t *testing.T) {
	mutants := must.Get(collect(root, ""))(t)
	found := make(map[string]bool)
	for _, m := range mutants {
		found[path.Dir(m.file)] = true
	}
	for folder := range found {
		tested := false
		for _, judge := range judgesOf(folder) {
			tests := must.Get(filepath.Glob(filepath.Join(root, judge, "*_test.go")))(t)
			tested = tested || len(tests) > 0
		}
		assert.True(t, tested, "%s has no tests: name the packages that test it in judges", folder)
	}
	for _, folder := range []string{".", "cmd/limitctl", "cmd/limitctl/internal/live", "core", "lua", "ops/access", "ops/overrides", "ops/policyfile", "throttle"} {
		assert.Contains(t, found, folder)
	}
	for folder := range judges {
		assert.Contains(t, found, folder)
	}
	for _, folder := range noProduct {
		assert.NotContains(t, found, folder)
		_, err := os.Stat(filepath.Join(root, folder))
		assert.NoError(t, err)
	}
}

func TestCollectInFolders(t *testing.T) {
	mutants := must.Get(collect(root, "core,stores/guard"))(t)
	folders := make(map[string]bool)
	for _, m := range mutants {
		folders[path.Dir(m.file)] = true
	}
	assert.Equal(t, map[string]bool{"core": true, "stores/guard": true}, folders)
	assert.Contains(t, judgesOf("core"), "./stores/guard")
	for _, in := range []string{"cor", "core,", "proof", "core,nowhere", "./core"} {
		_, err := collect(root, in)
		assert.ErrorContains(t, err, "nothing to mutate", in)
	}
}
