package rules

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

func TestWithText(t *testing.T) {
	set := MustParse("5/2s per ip; with app\n 9/1m global;with b.c")
	assert.Equal(t, "5/2s per ip; 9/1m global; with app; with b.c", set.String())
	assert.True(t, set.Equal(Rules(PerIP(2*time.Second, 5), Global(time.Minute, 9)).With(Named("app"), Named("b.c"))))
	assert.False(t, set.Equal(MustParse("5/2s per ip; 9/1m global; with app")))
	assert.True(t, MustParse("with app").Equal(Rules().With(Named("app", Global(time.Second, 1)))))
	text := must.Get(json.Marshal(set.Named("x")))(t)
	again := Named("x")
	require.NoError(t, json.Unmarshal(text, &again))
	assert.True(t, again.Equal(set))
	assert.Equal(t, "x", again.Name())
	for text, want := range map[string]string{
		"with":                   `column 5 of "with": found the end, want the name of a policy after with`,
		"5/2s per ip; with ;":    `found ";", want the name of a policy after with`,
		"with a, b":              `column 6 of "with a, b": found "a,", want the name of a policy after with`,
		"with a b":               `column 8 of "with a b": found "b", want ";" and another rule, since with names one policy`,
		"with a; with a":         `with a: it stands twice: remove one`,
		"with with: 5/1s per ip": `found "with:", want the name of a policy after with`,
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
	named := MustParse("with: 5/1s per ip")
	assert.Equal(t, "with", named.Rules()[0].Name, "a rule may have the name")
	for text, want := range map[string][]string{"wi": {"with"}, "5/2s per ip; w": {"5/2s per ip; with"}, "with global ": nil} {
		assert.Equal(t, want, Complete(text), text)
	}
}

func TestWithDerives(t *testing.T) {
	slower := func(r Rule) Rule { r.Limit *= 2; return r }
	derived := must.Get(Named("x", Global(time.Minute, 5)).With(Named("app", Global(time.Hour, 9)), Named("b")).Derive("-bytes", slower))(t)
	others := derived.Others()
	assert.Equal(t, "global-1m-bytes: 10/1m global; with app-bytes; with b-bytes", derived.String())
	assert.Equal(t, "global-1h-bytes: 18/1h global", others[0].String())
	_, err := Rules().With(Named("app", Global(0, 9))).Derive("", slower)
	assert.ErrorContains(t, err, "window 0s")
}

func TestJoin(t *testing.T) {
	sets := map[string]Set{
		"a": Named("a", Global(time.Minute, 1)).With(Named("b"), Named("c")),
		"b": Named("b", Global(time.Minute, 2), PerIP(time.Minute, 3)).With(Named("c")),
		"c": Named("c", PerIP(time.Minute, 4)),
		"e": Named("e").Overridable(),
		"x": Named("x", PerIP(time.Minute, 4)).With(Named("a")),
		"y": Named("y").With(Named("z")),
		"z": Named("z", PerIP(time.Minute, 4)).With(Named("y")),
	}
	find := func(s Set) (Set, bool) { set, ok := sets[s.Name()]; return set, ok }
	joined, err := Rules(Global(time.Minute, 5)).With(Named("a")).Join(find)
	require.NoError(t, err)
	assert.Equal(t, "5/1m global; with a", joined.String())
	type from struct{ policy, rule string }
	want := map[string]from{"global-1m": {}, "a.global-1m": {"a", "global-1m"}, "b.global-1m": {"b", "global-1m"},
		"b.per-ip-1m": {"b", "per-ip-1m"}, "c.per-ip-1m": {"c", "per-ip-1m"}}
	got := map[string]from{}
	for i, r := range joined.Rules() {
		policy, rule := joined.Origin(i)
		got[r.Name] = from{policy, rule}
	}
	assert.Equal(t, want, got)
	again, err := joined.Join(find)
	require.NoError(t, err)
	assert.True(t, again.Equal(joined))

	moved := func(p, q []Rule) Set {
		set := must.Get(Rules().With(Named("p", p...), Named("q", q...)).Join(func(s Set) (Set, bool) { return s, true }))(t)
		return set
	}
	x, y, z := Global(time.Second, 1), Global(time.Minute, 1), Global(time.Hour, 1)
	assert.False(t, moved([]Rule{x, y}, []Rule{z}).Equal(moved([]Rule{x}, []Rule{y, z})), "the quota of y is another one")

	joined, err = Rules(Global(time.Minute, 5)).With(Named("e")).Join(find)
	require.NoError(t, err)
	assert.Empty(t, joined.Rules(), "not before all sets have rules")
	for _, name := range []string{"y", "z"} {
		_, err = sets[name].Join(find)
		assert.ErrorContains(t, err, "leave out one of the two", name)
	}
	_, err = Rules(PerIP(time.Minute, 1)).With(Named("y")).Join(find)
	assert.NoError(t, err, "y and z have an error of their own")
}
