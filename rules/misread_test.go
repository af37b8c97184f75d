package rules

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/must"
)

// others are the names of algorithms.
var others = []string{"sliding-log", "fixed-window", "sliding-cells", "sliding-counter", "token-bucket",
	"leaky-bucket", "queue", "concurrency", "ban", "distinct"}

// wanted returns what an error wants after a rule, but for words that may not follow. Keyed
// is whether another part of a key may.
func wanted(keyed bool, without ...string) string {
	all := append(slices.Clone(others), "aligned", "zone", "cells", "burst", "missing", "empty", "wait", "cost", "settle", "debt",
		"on-error", "refuse", "message", "shadow", "enforced", "replaces", "hidden", "attempts", "plan", "reserve", "exempt")
	all = slices.DeleteFunc(all, func(word string) bool { return slices.Contains(without, word) })
	want := "one of " + strings.Join(all, ", ") + `, or ";" and another rule`
	if keyed {
		want = `"and" or "or" and another key, ` + want
	}
	return want
}

// A misread is a text with the first error that Parse returns for it.
type misread struct {
	text        string
	offset      int
	found, want string
}

func (m misread) check(t *testing.T) {
	t.Helper()
	_, err := Parse(m.text)
	var wrong *Error
	if assert.ErrorAs(t, errorsOf(err)[0], &wrong, "%.60q", m.text) {
		want := &grammar.Error{Offset: m.offset, Found: m.found, Want: m.want}
		assert.Equal(t, Error{Text: m.text, Offset: m.offset, Problem: want.Error(), misread: true}, *wrong, "%.60q", m.text)
		assert.Less(t, len(wrong.Error()), 1000)
	}
}

func TestMisread(t *testing.T) {
	const (
		slash  = "the slash without spaces around it: write "
		comma  = `";" before another rule, or "and" or "or" between two keys, instead of ","`
		count  = `a count and a window, such as "5/2s"`
		window = "a window such as 2s, 1m, 1h or 1d right after the slash"
		per    = `"per" and a key such as ip or user, or "global"`
		key    = "a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, or several of them with and, or and parentheses"
	)
	tests := []misread{
		{"", 0, "", count},
		{" \n\t", 3, "", count},
		{";", 0, ";", count},
		{"per ip", 0, "per", count},
		{"x/2s per ip", 0, "x/2s", count},
		{"-5/2s per ip", 0, "-5/2s", count},
		{"+5/2s per ip", 0, "+5/2s", count},
		{".5/2s per ip", 0, ".5/2s", count},
		{"٥/s per ip", 0, "٥/s", count},
		{"５/s per ip", 0, "５/s", count},
		{"(5/2s per ip)", 0, "(", count},
		{"5/2s per ip;;", 12, ";", count},
		{"5/2s per ip; login", 13, "login", count},
		{"login: ", 7, "", count},
		{"login : 5/2s per ip", 0, "login", count},
		{"99999999999999999999/s per ip", 0, "99999999999999999999/s", "a smaller count"},
		{"9223372036854775807k/s per ip", 0, "9223372036854775807k/s", "a smaller count"},
		{":5/2s per ip", 0, ":5/2s", "a name of 1 to 64 letters, digits, '.', '_' or '-' before the colon"},
		{"lögin:5/2s per ip", 0, "lögin:5/2s", "a name of 1 to 64 letters, digits, '.', '_' or '-' before the colon"},
		{"5/2s: per ip", 0, "5/2s:", "a name of 1 to 64 letters, digits, '.', '_' or '-' before the colon"},

		{"5", 1, "", `"/" and a window right after the count, such as "5/2s"`},
		{"5 per", 2, "per", `"/" and a window right after the count, such as "5/2s"`},
		{"5 / 2s per ip", 2, "/", slash + `"5/2s"`},
		{"5 / 1m", 2, "/", slash + `"5/1m"`},
		{"5k /1h30m per ip", 3, "/1h30m", slash + `"5k/1h30m"`},
		{"5 / per ip", 2, "/", slash + `"5/2s"`},
		{"5 /", 2, "/", slash + `"5/2s"`},
		{"5 / 1" + strings.Repeat("0", 1<<20), 2, "/", slash + `"5/2s"`},
		{"1e9/s", 1, "e9/s", `"/" and a window right after the count, such as "1/2s"`},
		{"1.5/s", 1, ".5/s", `"/" and a window right after the count, such as "1/2s"`},
		{"5K/s", 1, "K/s", `"/" and a window right after the count, such as "5/2s"`},

		{"5/", 2, "", window},
		{"5/ 2s per ip", 3, "2s", `the window right after the slash, without spaces: write "5/2s"`},
		{"5/\n2s per ip", 2, "\n", window},
		{"5/per ip", 2, "per", window},
		{"5/-2s per ip", 2, "-2s", window},
		{"5/2 per ip", 4, "per", "a unit such as s, m, h or d"},
		{"5/2x per ip", 3, "x", "a unit such as s, m, h or d"},
		{"5/2S per ip", 3, "S", "a unit such as s, m, h or d"},
		{"5/1h30 per ip", 7, "per", "a unit such as s, m, h or d"},
		{"5/1h30y per ip", 6, "y", "a unit such as s, m, h or d"},
		{"5/2sper ip", 3, "sper", "a unit such as s, m, h or d"},
		{"5/0s per ip", 2, "0s", "a window of at least 1ms"},
		{"5/0s", 2, "0s", "a window of at least 1ms"},
		{"5/0h0m per ip", 2, "0h0m", "a window of at least 1ms"},
		{"5/1.2.3s per ip", 2, "1.2.3s", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/.s per ip", 2, ".s", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/999999999d per ip", 2, "999999999d", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/99999999999999999999s per ip", 2, "99999999999999999999s", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/213504d per ip", 2, "213504d", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/106751.999d per ip", 2, "106751.999d", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/106751d106751d per ip", 2, "106751d106751d", "a window of at most 366d, with numbers such as 2 or 1.5"},
		{"5/0.0000000001s per ip", 2, "0.0000000001s", "a window of at most 366d, with numbers such as 2 or 1.5"},

		{" 5/2s\n", 5, "\n", per},
		{"5/2s", 4, "", per},
		{"5/2s;", 4, ";", per},
		{"5/2s ip", 5, "ip", per},
		{"5/2s/3 per ip", 4, "/3", per},
		{"5/2s Per ip", 5, "Per", per},

		{"5/2s per", 8, "", key},
		{"5/2s per;", 8, ";", key},
		{"5/2s per\nip", 8, "\n", key},
		{"5/2s per ips", 9, "ips", key},
		{"5/2s per ()", 10, ")", key},
		{"5/2s per or ip", 9, "or", key},
		{"5/2s per ip or", 14, "", key},
		{"5/2s per ip and and user", 16, "and", key},
		{"5/2s per global", 9, "global", `a key such as ip or user, or "global" without "per"`},
		{"5/2s per user or global", 17, "global", `a key such as ip or user, or "global" without "per"`},
		{"5/2s per header", 15, "", "the name of the header"},
		{"5/2s per header;", 15, ";", "the name of the header"},
		{"5/2s per header (X)", 16, "(", "the name of the header"},
		{"5/2s per (cookie)", 16, ")", "the name of the cookie"},
		{"5/2s per query\nx", 14, "\n", "the name of the query"},
		{"5/2s per path", 13, "", "the name of the path"},
		{"5/2s per (user or ip", 20, "", `"and" or "or" and another key, or ")"`},
		{"5/2s per (user ip)", 15, "ip", `"and" or "or" and another key, or ")"`},
		{"5/2s per (ip;", 12, ";", `"and" or "or" and another key, or ")"`},

		{"5/2s per ip per user", 12, "per", wanted(true)},
		{"5/2s per ip, user", 9, "ip,", comma},
		{"5/1m per ip, 10/1h per ip", 9, "ip,", comma},
		{"5/1m per ip,10/1h per ip", 9, "ip,10/1h", comma},
		{"5/1m per ip , 10/1h per ip", 12, ",", comma},
		{"5/1m per user or ip, 10/1h per ip", 17, "ip,", comma},
		{"5/1m global, 10/1h per ip", 5, "global,", comma},
		{"5/1m, 10/1h per ip", 4, ",", comma},
		{"5/1m per ip queue, 10/1h per ip", 12, "queue,", comma},
		{"5/1m per ip queue burst 5, 10/1h per ip", 24, "5,", comma},
		{"5/1m per ip queue burst 1,000", 24, "1,000", "a number after burst, such as 10"},
		{"5/1m per header X-Org, 10/1h per ip", 23, "10/1h", wanted(true)},
		{"5/2s per ip)", 11, ")", wanted(true)},
		{"5/2s per ip silent", 12, "silent", wanted(true)},
		{"5/2s global 5/2s per ip", 12, "5/2s", wanted(false)},
		{"5/2s global or ip", 12, "or", wanted(false)},
		{"1/s global\n5/2s per ip 3", 23, "3", wanted(true)},

		{"5/s per (((((((((ip)))))))))", 16, "(", "at most 8 nested parentheses"},
		{"5/s per " + strings.Repeat("(", 1<<20), 16, "(", "at most 8 nested parentheses"},
		{strings.Repeat("(", 1<<20), 0, "(", count},
		{strings.Repeat("1/s global;", 17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
		{strings.Repeat("1/s global;", 1<<17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
	}
	for _, test := range tests {
		test.check(t)
	}
}

func TestMisreadAttributes(t *testing.T) {
	const (
		takes        = "an algorithm that takes it: "
		bursts       = takes + "token-bucket, leaky-bucket or queue "
		once         = "each word once, and one algorithm"
		unit         = "hour, day, week or month, because the rule has a zone"
		noSuch       = "a time zone that every machine knows, such as UTC or Europe/Berlin"
		noZone       = "zone and the time zone of the month, such as zone UTC, or a window of days such as 30d"
		afterBurst   = "a number after burst, such as 10"
		ofACells     = "the number of cells, 2 to 60"
		afterOnError = "local, allow, refuse after on-error"
		afterRefuse  = "429, 503, redirect, degrade, mark or wait after refuse"
		oneOutcome   = "only one of 429, 503, redirect, degrade or mark"
		location     = "a path such as /busy, or an http or https URL, after redirect"
		percentage   = "the percentage of keys, 1 to 99, after enforced"
	)
	for _, test := range []misread{
		{"5/1s per ip token", 12, "token", "token-bucket, or else " + wanted(true)},
		{"5/1s per ip with app", 12, "with", "\";\" before with, since it stands in place of a rule"},
		{"5/1s per ip hidden with app; 5/1h global", 19, "with", "\";\" before with, since it stands in place of a rule"},
		{"5/2 s per ip", 4, "s", "the unit right after the number, without spaces: write \"2s\""},
		{"5/1s per ip queue wait 1.5 m", 27, "m", "the unit right after the number, without spaces: write \"1.5m\""},
		{"5/1s per ip queue Burst 5", 18, "Burst", "burst, or else " + wanted(false, append(others, "aligned", "zone", "cells", "missing", "empty")...)},
		{"5/1s per ip distinct query a hiden", 29, "hiden", "hidden, or else " + wanted(true, append(others, "aligned", "zone", "cells", "burst", "missing", "empty", "wait")...)},
		{"5/1s per ip hidden attempts hiden", 28, "hiden", wanted(false, "hidden", "attempts")},
		{"5/1s per ip burst", 17, "", afterBurst},
		{"5/1s per ip burst;", 17, ";", afterBurst},
		{"5/1s per ip burst 0", 18, "0", afterBurst},
		{"5/1s per ip burst -1", 18, "-1", afterBurst},
		{"5/1s per ip burst 1.5", 18, "1.5", afterBurst},
		{"5/1s per ip burst queue", 18, "queue", afterBurst},
		{"5/1s per ip burst 9999999999999999999999", 18, "9999999999999999999999", afterBurst},
		{"5/1s per ip burst 1000000000001", 18, "1000000000001", afterBurst},
		{"5/1s per ip missing x", 20, "x", "a number after missing, such as 10"},
		{"5/1s per ip cells 61", 18, "61", ofACells},
		{"5/1s per ip cells 0", 18, "0", ofACells},
		{"5/1s per ip ban", 15, "", "how long a key is barred, such as 2s, 1m, 1h or 1d after \"ban\""},
		{"5/1s per ip ban 1m to", 21, "", "the longest bar, such as 2s, 1m, 1h or 1d after \"to\""},
		{"5/1s per ip distinct", 20, "", "a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, or several of them with and, or and parentheses"},
		{"5/1s per ip queue queue", 18, "queue", once},
		{"5/1s per ip queue token-bucket", 18, "token-bucket", once},
		{"5/1s per ip burst 5 burst 5", 20, "burst", once},
		{"5/1s per ip empty missing 1", 18, "missing", once},
		{"5/1s per ip queue wait", 22, "", `a wait such as 2s, 1m, 1h or 1d after "wait"`},
		{"5/1s per ip queue wait long", 23, "long", `a wait such as 2s, 1m, 1h or 1d after "wait"`},
		{"5/1s per ip queue wait 5", 24, "", "a unit such as s, m, h or d"},
		{"5/1s per ip queue wait 0s", 23, "0s", "a wait of at least 1ms"},
		{"5/1s per ip queue wait 99999999d", 23, "99999999d", "a wait of at most 366d, with numbers such as 2 or 1.5"},
		{"5/1s per ip on-error", 20, "", afterOnError},
		{"5/1s per ip on-error open", 21, "open", afterOnError},
		{"5/1s per ip on-error Allow", 21, "Allow", afterOnError},
		{"5/1s per ip on-error allow on-error refuse", 27, "on-error", once},
		{"5/1s per ip refuse", 18, "", afterRefuse},
		{"5/1s per ip refuse shadow", 19, "shadow", afterRefuse},
		{"5/1s per ip refuse 404", 19, "404", afterRefuse},
		{"5/1s per ip refuse 429 refuse 503", 30, "503", oneOutcome},
		{"5/1s per ip refuse degrade hidden refuse mark", 41, "mark", oneOutcome},
		{"5/1s per ip refuse redirect", 27, "", location},
		{"5/1s per ip refuse redirect; 5/1s global", 27, ";", location},
		{"5/1s per ip refuse redirect /busy 301", 34, "301", "302, 303 or 307 after the location"},
		{"5/1s per ip refuse wait", 23, "", `a wait such as 2s, 1m, 1h or 1d after "refuse wait"`},
		{"5/1s per ip refuse wait 0s", 24, "0s", "a wait of at least 1ms"},
		{"5/1s per ip refuse wait 1s refuse wait 1s", 34, "wait", `one "refuse wait"`},
		{"5/1s per ip refuse wait 1s waiters 0", 35, "0", "how many may wait for one key, such as 50"},
		{"5/1s per ip refuse 429 waiters 5", 23, "waiters", wanted(false)},
		{"5/1s per ip shadow shadow", 19, "shadow", once},
		{"5/1s per ip shadow enforced 100", 28, "100", percentage},
		{"5/1s per ip shadow enforced 0", 28, "0", percentage},
		{"5/1s per ip plan", 16, "", "the name of a plan: 1 to 64 letters, digits, '.', '_' or '-'"},
		{"5/1s per ip plan a/b 1", 17, "a/b", "the name of a plan: 1 to 64 letters, digits, '.', '_' or '-'"},
		{"5/1s per ip plan pro", 20, "", "the limit after the name of the plan, such as 100"},
		{"5/1s per ip plan pro 0", 21, "0", "the limit after the name of the plan, such as 100"},
		{"5/1s per ip plan pro 1 plan pro 2", 28, "pro", "each plan once"},
		{"5/1s per ip reserve critical -1", 29, "-1", "the number of units after the name of the class, such as 100"},
		{"5/1s per ip reserve a 1 reserve a 1", 32, "a", "each class once"},
		{"5/1s per ip exempt", 18, "", "ip, user, plan or class after exempt"},
		{"5/1s per ip exempt header X-A b", 19, "header", "ip, user, plan or class after exempt"},
		{"5/1s per ip exempt ip", 21, "", "an address or a prefix such as 10.0.0.0/8 after exempt ip"},
		{"5/1s per ip exempt user;", 23, ";", "the name of a user after exempt user"},
		{"5/1s per ip" + strings.Repeat(" exempt user a", grammar.MaxCallers+1), 11 + 14*grammar.MaxCallers + 8, "user", "at most 64 exemptions: put more into a list of package access"},
		{"5/1s per ip shadow replaces", 27, "", "the name of a rule after replaces"},
		{"5/1s per ip shadow replaces a/b", 28, "a/b", "the name of a rule after replaces"},
		{"5/month per ip", 14, "", noZone},
		{"5/month per ip; 5/s global", 14, ";", noZone},
		{"5/month per ip fixed-window\n", 27, "\n", noZone},
		{"5/1month per ip zone UTC", 3, "month", "a unit such as s, m, h or d"},
		{"5/months per ip zone UTC", 2, "months", "a window such as 2s, 1m, 1h or 1d right after the slash"},
		{"5/24h per ip zone UTC", 2, "24h", unit},
		{"5/1day per ip zone UTC", 2, "1day", unit},
		{"5/d per ip zone UTC", 2, "d", unit},
		{"5/day per ip zone", 17, "", noSuch},
		{"5/day per ip zone\nUTC", 17, "\n", noSuch},
		{"5/day per ip zone Mars/Olympus", 18, "Mars/Olympus", noSuch},
		{"5/day per ip zone Local", 18, "Local", noSuch}, // another one on each machine
		{"5/day per ip zone localtime", 18, "localtime", noSuch},
		{"5/day per ip zone ../../../etc/passwd", 18, "../../../etc/passwd", noSuch},
		{"5/day per ip zone " + strings.Repeat("x", 1<<20), 18, strings.Repeat("x", 1<<20), noSuch},
		{"5/day per ip zone UTC or user", 22, "or", wanted(false, append(others, "zone", "cells", "burst", "missing", "empty", "wait")...)},

		{"5/1m per ip burst 10", 12, "burst", bursts + "(this rule is sliding-log, the default)"},
		{"5/1m per ip sliding-log burst 10", 24, "burst", bursts + "(this rule is sliding-log)"},
		{"5/1m per ip burst 10 concurrency", 12, "burst", bursts + "(this rule is concurrency)"},
		{"5/1m per ip on-error allow missing 1", 27, "missing", takes + "token-bucket (this rule is sliding-log, the default)"},
		{"5/1m per user empty", 14, "empty", takes + "token-bucket (this rule is sliding-log, the default)"},
		{"5/1m per ip queue empty", 18, "empty", takes + "token-bucket (this rule is queue)"},
		{"5/1m per ip leaky-bucket burst 5 empty", 33, "empty", takes + "token-bucket (this rule is leaky-bucket)"},
		{"5/1m per ip cells 5", 12, "cells", takes + "sliding-cells (this rule is sliding-log, the default)"},
		{"5/1m per ip wait 5s; 5/1h per ip", 12, "wait", takes + "queue (this rule is sliding-log, the default)"},
		{"5/1m per ip aligned", 12, "aligned", takes + "fixed-window (this rule is sliding-log, the default)"},
		{"5/day per ip queue zone UTC", 19, "zone", takes + "fixed-window (this rule is queue)"},
		{"5/day per ip sliding-log zone UTC", 25, "zone", takes + "fixed-window (this rule is sliding-log)"},
		{"5/month per ip zone UTC burst 5", 24, "burst", bursts + "(this rule is fixed-window, because it has a zone)"},
	} {
		test.check(t)
	}
}

func TestMisreadText(t *testing.T) {
	for text, want := range map[string]string{
		"5/2x per ip": `limit: column 4 of "5/2x per ip": found "x", want a unit such as s, m, h or d
	5/2x per ip
	   ^`,
		"5/2s per ip\n\n  3/2x global\n": `limit: line 3, column 6 of "  3/2x global": found "x", want a unit such as s, m, h or d
	  3/2x global
	     ^`,
		"5/s per query naïve/ключ\tip": `limit: column 26 of "5/s per query naïve/ключ ip": found "ip", want ` + wanted(true) + `
	5/s per query naïve/ключ ip
	                         ^`,
		"5/2s": `limit: column 5 of "5/2s": found the end, want "per" and a key such as ip or user, or "global"
	5/2s
	    ^`,
		" 5/2s\n": `limit: column 6 of " 5/2s": found the end of the line, want "per" and a key such as ip or user, or "global"
	 5/2s
	     ^`,
		"1/s global \x1b[31m\x00": `limit: column 12 of "1/s global  [31m ": found "\x1b[31m\x00", want ` + wanted(false) + `
	1/s global  [31m 
	           ^`,
		"1/s per query " + strings.Repeat("é", 500) + " " + strings.Repeat("x", 500): `limit: column 516 of "…` +
			strings.Repeat("é", 29) + ` ` + strings.Repeat("x", 60) + `…": found "` + strings.Repeat("x", 60) +
			`…", want ` + wanted(true) + "\n\t…" +
			strings.Repeat("é", 29) + ` ` + strings.Repeat("x", 60) + "…\n\t" + strings.Repeat(" ", 31) + "^",
	} {
		_, err := Parse(text)
		assert.EqualError(t, err, want)
	}
}

// TestNesting checks that a key that needs more parentheses than Parse reads is
// an error, also if its text has fewer.
func TestNesting(t *testing.T) {
	nested := func(levels int) string {
		return "a: 5/1s per " + strings.Repeat("ip and user or (", levels) + "ip" + strings.Repeat(")", levels)
	}
	set := must.Get(Parse(nested(4)))(t)
	again := must.Get(Parse(set.String()))(t)
	assert.Equal(t, set.rules, again.rules)

	deep := "a: 5/1s per " + strings.Repeat("ip and (ip or ", 4) + "ip and user" + strings.Repeat(")", 4)
	must.Get(Parse(deep))(t)
	deep = "a: 5/1s per " + strings.Repeat("ip or ip and (", 5) + "ip or user" + strings.Repeat(")", 5)
	_, err := Parse(deep)
	assert.ErrorContains(t, err, `column 13`)
	assert.ErrorContains(t, err, `found "ip", want a key with at most 8 nested "and" and "or"`)
}

// TestAttributesHaveAlgorithms checks that an algorithm takes each attribute, so
// that messages can name one, and that each has a word and its documentation.
func TestAttributesHaveAlgorithms(t *testing.T) {
	text := must.Get(os.ReadFile("../docs/rules-as-text.md"))(t)
	for _, a := range table() {
		assert.True(t, slices.ContainsFunc(core.Algorithms(), func(b core.Algorithm) bool { return b.Fields().Has(a.fields) }), a.word)
		if a.word != "" {
			assert.NotEmpty(t, a.doc, a.word)
			assert.NotNil(t, a.read, a.word)
			assert.NotNil(t, a.write, a.word)
			assert.Regexp(t, "`[^`]*\\b"+a.word+"\\b[^`]*`", string(text), "../docs/rules-as-text.md explains each word")
		}
	}
}

func TestRefusalText(t *testing.T) {
	var r Refusal
	assert.NoError(t, r.UnmarshalText([]byte("wait 2s waiters 5 refuse redirect /busy 302")))
	assert.Equal(t, Refusal{Wait: 2 * time.Second, Waiters: 5, Redirect: "/busy", Status: 302}, r)
	for text, offset := range map[string]int{"": 0, "404": 0, "wait": 4, "503 shadow": 4, "503; 5/1m per ip": 3, "503 refuse": 10, "503 refuse mark": 11} {
		kept := r
		var wrong *Error
		if assert.ErrorAs(t, r.UnmarshalText([]byte(text)), &wrong, text) {
			assert.Equal(t, offset, wrong.Offset, text)
		}
		assert.Equal(t, kept, r)
	}
	assert.ErrorContains(t, r.UnmarshalText([]byte("redirect //evil.example")), "it leads to another host")
}
