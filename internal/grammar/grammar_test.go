package grammar

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// TestRule checks a rule with all parts.
func TestRule(t *testing.T) {
	const text = "a: 5/1m30s per (user or header X) and path id token-bucket burst 7 missing 3 on-error refuse" +
		" refuse wait 2s waiters 50 refuse redirect /busy 302 shadow enforced 10 replaces old hidden"
	rules, err := Parse(text + "\n1k/week global empty token-bucket")
	require.ErrorContains(t, err, "zone and the time zone of the week")
	assert.Nil(t, rules)
	rules, err = Parse(text + "\n1k/month global zone UTC;")
	require.NoError(t, err)
	assert.Equal(t, []Rule{
		{Name: "a", Limit: 5, Window: 90 * time.Second, Key: Key{Kind: And, Parts: []Key{
			{Kind: Or, Parts: []Key{{Kind: User}, {Kind: Header, Name: "X"}}}, {Kind: Path, Name: "id"}}},
			Algorithm: core.TokenBucket, Burst: 7, Missing: 3, OnError: core.Refuse,
			Refusal: Refusal{Wait: 2 * time.Second, Waiters: 50, Redirect: "/busy", Status: 302},
			Shadow:  true, Enforced: 10, Replaces: "old", Hidden: true},
		{Limit: 1000, Key: Key{Kind: Global}, Algorithm: core.FixedWindow,
			Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}},
	}, rules)
	assert.Equal(t, text+"; 1000/month global zone UTC", Format(rules))
	assert.Equal(t, []string{"id"}, rules[0].Key.Names(Path))
	assert.Empty(t, rules[1].Key.Names(Path))
}

// TestNesting checks that a key that needs more parentheses than Parse reads is
// an error, also if its text has fewer.
func TestNesting(t *testing.T) {
	nested := func(levels int) string {
		return "5/1s per " + strings.Repeat("ip and user or (", levels) + "ip" + strings.Repeat(")", levels)
	}
	rules, err := Parse(nested(4))
	require.NoError(t, err)
	again, err := Parse(Format(rules))
	require.NoError(t, err)
	assert.Equal(t, rules, again)

	deep := "5/1s per " + strings.Repeat("ip and (ip or ", 4) + "ip and user" + strings.Repeat(")", 4)
	_, err = Parse(deep)
	require.NoError(t, err)
	deep = "5/1s per " + strings.Repeat("ip or ip and (", 5) + "ip or user" + strings.Repeat(")", 5)
	_, err = Parse(deep)
	assert.ErrorContains(t, err, `column 10`)
	assert.ErrorContains(t, err, `found "ip", want a key with at most 8 nested "and" and "or"`)
}

// TestAttributesHaveAlgorithms checks that an algorithm takes each attribute, so
// that messages can name one.
func TestAttributesHaveAlgorithms(t *testing.T) {
	for _, a := range attributes {
		assert.True(t, slices.ContainsFunc(core.Algorithms(), func(b core.Algorithm) bool { return b.Fields().Has(a.fields) }), a.word)
	}
}

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "Login.v2_x-1", strings.Repeat("x", 64)} {
		assert.True(t, ValidName(name), name)
	}
	for _, name := range []string{"", "a b", "é", "a\n", "a:b", "\xff", strings.Repeat("x", 65)} {
		assert.False(t, ValidName(name), name)
	}
}

// FuzzGrammar checks that a text is an error with a place in it, or rules whose
// text has the same rules.
func FuzzGrammar(f *testing.F) {
	for _, seed := range []string{
		"5/2s per ip; 1000/1m global", "login: 20/1h per user or ip", "3/1s per (user or ip) and header X-Org\n",
		"5/1m per ip ban 15m to 1d empty; 5/1m per ip distinct (ip", "5 / 1m per ip, user", "5/1m per user empty", "1k/1d12h per path id;", "1/1.5h global token-bucket missing 5 burst 5",
		"5/s per ip and (user or query a and (cookie b or header c and (ip or user and (ip or user and ip))))",
		"5/1s per ip refuse wait 2s refuse redirect https://a.example/b?c 307; 1/s global hidden refuse mark",
		"5/1s per ip exempt ip ::1 plan b 1 plan a 2 exempt user x reserve c 3",
		"5/1s per ip shadow enforced 10 replaces a refuse 503 refuse wait 1ns waiters 3", "5/1s per ip refuse degrade refuse wait 1.5h",
		"5/month per user zone Europe/Berlin", "9/s global queue burst 1k wait 1.5s on-error allow", "7/1us per header é, ip",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse(text)
		if err != nil {
			var parse *ParseError
			require.True(t, errors.As(err, &parse), "%T", err)
			require.Equal(t, text, parse.Text)
			require.True(t, strings.HasPrefix(text[parse.Offset:], parse.Found), "%#v", parse)
			require.NotEmpty(t, parse.Want)
			require.Contains(t, err.Error(), "^")
			return
		}
		form := Format(rules)
		again, err := Parse(form)
		require.NoError(t, err, "%q", form)
		require.Equal(t, rules, again)
		require.Equal(t, form, Format(again))
	})
}

func TestParseRefusal(t *testing.T) {
	r, err := ParseRefusal("wait 2s waiters 5 refuse redirect /busy 302")
	assert.NoError(t, err)
	assert.Equal(t, Refusal{Wait: 2 * time.Second, Waiters: 5, Redirect: "/busy", Status: 302}, r)
	for text, offset := range map[string]int{"": 0, "404": 0, "wait": 4, "503 shadow": 4, "503; 5/1m per ip": 3, "503 refuse": 10, "503 refuse mark": 11} {
		_, err := ParseRefusal(text)
		var wrong *ParseError
		if assert.ErrorAs(t, err, &wrong, text) {
			assert.Equal(t, offset, wrong.Offset, text)
		}
	}
}
