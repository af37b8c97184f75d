package grammar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseError(t *testing.T) {
	const (
		slash  = "the slash without spaces around it: write "
		comma  = `";" before another rule, or "and" or "or" before another key, instead of ","`
		count  = `a count and a window, such as "5/2s"`
		window = "a window such as 2s, 1m, 1h or 1d right after the slash"
		per    = `"per" and a key such as ip or user, or "global"`
		more   = `"and" or "or" and another key, one of sliding-log, fixed-window, sliding-cells, sliding-counter, ` +
			`token-bucket, leaky-bucket, queue, concurrency, ban, distinct, aligned, zone, cells, burst, missing, empty, wait, on-error, refuse, shadow, enforced, replaces, hidden, plan, reserve, exempt, or ";" and another rule`
		key = "a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, or several of them with and, or and parentheses"
	)
	tests := []struct {
		text        string
		offset      int
		found, want string
	}{
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

		{"5/2s per ip per user", 12, "per", more},
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
		{"5/1m per header X-Org, 10/1h per ip", 23, "10/1h", wantWord},
		{"5/2s per ip)", 11, ")", more},
		{"5/2s per ip silent", 12, "silent", more},
		{"5/2s global 5/2s per ip", 12, "5/2s", more},
		{"5/2s global or ip", 12, "or", more},
		{"1/s global\n5/2s per ip 3", 23, "3", more},

		{"5/s per (((((((((ip)))))))))", 16, "(", "at most 8 nested parentheses"},
		{"5/s per " + strings.Repeat("(", 1<<20), 16, "(", "at most 8 nested parentheses"},
		{strings.Repeat("(", 1<<20), 0, "(", count},
		{strings.Repeat("1/s global;", 17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
		{strings.Repeat("1/s global;", 1<<17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
	}
	for _, test := range tests {
		rules, err := Parse(test.text)
		var parse *ParseError
		if assert.ErrorAs(t, err, &parse, "%.60q", test.text) {
			assert.Equal(t, ParseError{test.text, test.offset, test.found, test.want}, *parse, "%.60q", test.text)
			assert.Less(t, len(err.Error()), 1000)
		}
		assert.Nil(t, rules)
	}
}

func TestParseErrorText(t *testing.T) {
	for text, want := range map[string]string{
		"5/2x per ip": `limit: column 4 of "5/2x per ip": found "x", want a unit such as s, m, h or d
	5/2x per ip
	   ^`,
		"5/2s per ip\n\n  3/2x global\n": `limit: line 3, column 6 of "  3/2x global": found "x", want a unit such as s, m, h or d
	  3/2x global
	     ^`,
		"5/s per query naïve/ключ\tip": `limit: column 26 of "5/s per query naïve/ключ ip": found "ip", want ` + wantWord + `
	5/s per query naïve/ключ ip
	                         ^`,
		"5/2s": `limit: column 5 of "5/2s": found the end, want "per" and a key such as ip or user, or "global"
	5/2s
	    ^`,
		" 5/2s\n": `limit: column 6 of " 5/2s": found the end of the line, want "per" and a key such as ip or user, or "global"
	 5/2s
	     ^`,
		"1/s global \x1b[31m\x00": `limit: column 12 of "1/s global  [31m ": found "\x1b[31m\x00", want ` + wantWord + `
	1/s global  [31m 
	           ^`,
		"1/s per query " + strings.Repeat("é", 500) + " " + strings.Repeat("x", 500): `limit: column 516 of "…` +
			strings.Repeat("é", 29) + ` ` + strings.Repeat("x", 60) + `…": found "` + strings.Repeat("x", 60) +
			`…", want ` + wantWord + "\n\t…" +
			strings.Repeat("é", 29) + ` ` + strings.Repeat("x", 60) + "…\n\t" + strings.Repeat(" ", 31) + "^",
	} {
		_, err := Parse(text)
		assert.EqualError(t, err, want)
	}
}
