//go:build unix

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	mutants, err := goMutants("p/p.go", text)
	require.NoError(t, err)
	var got []string
	for _, m := range mutants {
		got = append(got, m.String())
	}
	assert.Equal(t, []string{
		"p/p.go:3 : constant: `9` for `8`",
		"p/p.go:6 (*store).take: negate: `!(n <= most && s.open)` for `n <= most && s.open`",
		"p/p.go:6 (*store).take: logic: `||` for `&&`",
		"p/p.go:6 (*store).take: boundary: `<` for `<=`",
		"p/p.go:7 (*store).take: arithmetic: `-=` for `+=`",
		"p/p.go:7 (*store).take: remove: nothing for `s.used += n`",
		"p/p.go:8 (*store).take: remove: nothing for `s.save()`",
		"p/p.go:10 (*store).take: zero: `*new(error)` for `s.err`",
	}, got)

	for _, m := range mutants {
		_, err := goMutants("p/p.go", m.Apply(text))
		assert.NoError(t, err, "%s is not Go", m)
	}
	assert.Contains(t, mutants[2].Apply(text), "\tif n <= most || s.open {\n")
}

func TestLua(t *testing.T) {
	const text = `-- Takes 1 or 2 < 3.
local function take(n) -- not 4
  if n <= 5 and n ~= 'a < 6' then return n + 1 end
  return n - 1 .. "7 * 8"
end
call(9)
`
	mutants := luaMutants("take.lua", text)
	var got []string
	for _, m := range mutants {
		got = append(got, m.String())
	}
	assert.Equal(t, []string{
		"take.lua:3 take: negate: `not (n <= 5 and n ~= 'a < 6')` for `n <= 5 and n ~= 'a < 6'`",
		"take.lua:3 take: boundary: `<` for `<=`",
		"take.lua:3 take: constant: `6` for `5`",
		"take.lua:3 take: logic: `or` for `and`",
		"take.lua:3 take: boundary: `==` for `~=`",
		"take.lua:3 take: arithmetic: `-` for `+`",
		"take.lua:3 take: constant: `2` for `1`",
		"take.lua:4 take: arithmetic: `+` for `-`",
		"take.lua:4 take: constant: `2` for `1`",
		"take.lua:6 : constant: `10` for `9`",
	}, got)
	at := slices.IndexFunc(mutants, func(m Mutant) bool { return m.Operator == Arithmetic })
	assert.Contains(t, mutants[at].Apply(text), "return n - 1 end\n")
}
