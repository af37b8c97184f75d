package limit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/fuzzloop"
)

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want RuleSet
		form string // the canonical one, if text is not
	}{
		{"5/2s per ip", Rules(PerIP(2*time.Second, 5)), ""},
		{"1000/1m global", Rules(Global(time.Minute, 1000)), ""},
		{"5/2s per ip; 1000/1m global", Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000)), ""},
		{"login: 20/1h per user", Rules(Rule{Name: "login", Key: ByUser, Limit: 20, Window: time.Hour}), ""},
		{"5/1s per header X-Api-Key", Rules(Per(ByHeader("X-API-Key"), time.Second, 5)), ""},
		{"5/1s per header x-api-KEY", Rules(Per(ByHeader("X-Api-Key"), time.Second, 5)), "5/1s per header X-Api-Key"},
		{"5/1s per cookie sid", Rules(Per(ByCookie("sid"), time.Second, 5)), ""},
		{"5/1s per query api_key", Rules(Per(ByQuery("api_key"), time.Second, 5)), ""},
		{"5/1s per path id", Rules(Per(ByPathValue("id"), time.Second, 5)), ""},
		{"5/1s per path *", Rules(Per(ByPathValue("*"), time.Second, 5)), ""},
		{"5/1s per query naïve:ключ", Rules(Per(ByQuery("naïve:ключ"), time.Second, 5)), ""},
		{"5/1s per cookie and or query or", Rules(Per(FirstOf(ByCookie("and"), ByQuery("or")), time.Second, 5)), ""},

		{"5/1s per user or ip", Rules(Per(FirstOf(ByUser, ByIP), time.Second, 5)), ""},
		{"5/1s per ip and path id", Rules(Per(Joined(ByIP, ByPathValue("id")), time.Second, 5)), ""},
		{"5/1s per user or ip or header A", Rules(Per(FirstOf(ByUser, ByIP, ByHeader("a")), time.Second, 5)), ""},
		{"5/1s per (user or ip) and header A", Rules(Per(Joined(FirstOf(ByUser, ByIP), ByHeader("a")), time.Second, 5)), ""},
		{"5/1s per user or ip and header A", Rules(Per(FirstOf(ByUser, Joined(ByIP, ByHeader("A"))), time.Second, 5)),
			"5/1s per user or (ip and header A)"},
		{"5/1s per user and ip or header A", Rules(Per(FirstOf(Joined(ByUser, ByIP), ByHeader("A")), time.Second, 5)),
			"5/1s per (user and ip) or header A"},
		{"5/1s per (user or ip) or header A", Rules(Per(FirstOf(FirstOf(ByUser, ByIP), ByHeader("A")), time.Second, 5)), ""},
		{"5/1s per ((((((((ip))))))))", Rules(PerIP(time.Second, 5)), "5/1s per ip"},

		// White space and separators.
		{" 5/2s\tper  ip ", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"5/2s per ip;", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"5/2s per ip\n", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"\n\n5/2s per ip;\r\n\t1000/1m global\r\n\r\n", Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000)),
			"5/2s per ip; 1000/1m global"},
		{"5/2s per ip\n1000/1m global", Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000)), "5/2s per ip; 1000/1m global"},
		{"5/2s per(user or ip);1/1s global", Rules(Per(FirstOf(ByUser, ByIP), 2*time.Second, 5), Global(time.Second, 1)),
			"5/2s per user or ip; 1/1s global"},
		{"a:5/2s per ip;b:\t5/2s per ip", Rules(Rule{Name: "a", Key: ByIP, Limit: 5, Window: 2 * time.Second},
			Rule{Name: "b", Key: ByIP, Limit: 5, Window: 2 * time.Second}), "a: 5/2s per ip; b: 5/2s per ip"},

		// Counts.
		{"5k/1m global", Rules(Global(time.Minute, 5000)), "5000/1m global"},
		{"007/1m global", Rules(Global(time.Minute, 7)), "7/1m global"},
		{"100k/1m global", Rules(Global(time.Minute, 100_000)), "100000/1m global"},
	}
	for _, test := range tests {
		if test.form == "" {
			test.form = test.text
		}
		got, err := Parse(test.text)
		if assert.NoError(t, err, test.text) {
			assert.Equal(t, test.want, got, test.text)
			assert.Equal(t, test.form, got.String())
		}
	}
	assert.Equal(t, tests[0].want, MustParse(tests[0].text))
}

func TestParseWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2s": 2 * time.Second, "1m": time.Minute, "1h": time.Hour, "1d": day, "366d": 366 * day,
		"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "ms": time.Millisecond,
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "2minute": 2 * time.Minute,
		"1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "1m1m": 2 * time.Minute,
		"1.5s": 1500 * time.Millisecond, "0.25d": 6 * time.Hour, "2.s": 2 * time.Second, "1.000s": time.Second,
		"1ms250µs": 1250 * time.Microsecond, "1ms250μs": 1250 * time.Microsecond, "1250us": 1250 * time.Microsecond,
		"1250000ns": 1250 * time.Microsecond, "0s2s": 2 * time.Second,
	} {
		set, err := Parse("5/" + text + " per ip")
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, set.rules[0].Window, text)
		}
	}
}

func TestParseError(t *testing.T) {
	const (
		count  = `a count and a window, such as "5/2s"`
		window = "a window such as 2s, 1m, 1h or 1d right behind the slash"
		per    = `"per" and a key such as ip or user, or "global"`
		more   = `"and" or "or" and another key, one of sliding-log, fixed-window, sliding-cells, sliding-counter, ` +
			`token-bucket, leaky-bucket, queue, concurrency, aligned, zone, cells, burst, missing, empty, wait, on-error, or ";" and another rule`
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

		{"5", 1, "", `"/" and a window right behind the count, such as "5/2s"`},
		{"5 per", 2, "per", `"/" and a window right behind the count, such as "5/2s"`},
		{"5 / 2s per ip", 2, "/", `"/" and a window right behind the count, such as "5/2s"`},
		{"1e9/s", 1, "e9/s", `"/" and a window right behind the count, such as "1/2s"`},
		{"1.5/s", 1, ".5/s", `"/" and a window right behind the count, such as "1/2s"`},
		{"5K/s", 1, "K/s", `"/" and a window right behind the count, such as "5/2s"`},

		{"5/", 2, "", window},
		{"5/ 2s per ip", 3, "2s", window},
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
		{"5/2s per ip, user", 9, "ip,", key},
		{"5/2s per ip)", 11, ")", more},
		{"5/2s per ip shadow", 12, "shadow", more},
		{"5/2s global 5/2s per ip", 12, "5/2s", more},
		{"5/2s global or ip", 12, "or", more},
		{"1/s global\n5/2s per ip 3", 23, "3", more},

		{"5/s per (((((((((ip)))))))))", 16, "(", "at most 8 parentheses inside each other"},
		{"5/s per " + strings.Repeat("(", 1<<20), 16, "(", "at most 8 parentheses inside each other"},
		{strings.Repeat("(", 1<<20), 0, "(", count},
		{strings.Repeat("1/s global;", 17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
		{strings.Repeat("1/s global;", 1<<17), 16 * len("1/s global;"), "1/s", "at most 16 rules"},
	}
	for _, test := range tests {
		set, err := Parse(test.text)
		var parse *ParseError
		if assert.ErrorAs(t, err, &parse, "%.60q", test.text) {
			assert.Equal(t, ParseError{test.text, test.offset, test.found, test.want}, *parse, "%.60q", test.text)
			assert.Less(t, len(err.Error()), 1000)
		}
		assert.Zero(t, set)
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
	assert.PanicsWithError(t, "limit: column 1 of \"\": found the end, want a count and a window, such as \"5/2s\"\n\t\n\t^",
		func() { MustParse("") })
}

func TestParseInvalidRules(t *testing.T) {
	set, err := Parse("0/1m per ip; 5/1us global; 1M/1m per user; 1/400d per ip; 5/1500ns per header A:B; 1/1h per ip; 2/1h per ip")
	assert.Zero(t, set)
	for _, want := range []string{
		`rule "0/1m per ip": limit 0: write at least 1`,
		`rule "5/1µs global": window 1µs: write at least 1ms`,
		`rule "1000000/1m per user": limit 1000000 is too large for an exact window`,
		`rule "1/400d per ip": window 9600h0m0s: write at most 8784h (366 days)`,
		`key "header A:B": write a name such as X-API-Key`,
		`rule "2/1h per ip": the name "per-ip-1h" is taken by "1/1h per ip"`,
	} {
		assert.ErrorContains(t, err, want)
	}
	var invalid *RuleError
	assert.ErrorAs(t, err, &invalid)
	assert.False(t, errors.As(err, new(*ParseError)))
}

func FuzzParse(t *testing.F) {
	f := fuzzloop.New(t)
	for _, seed := range []string{
		"5/2s per ip; 1000/1m global", "login: 20/1h per user or ip", "3/1s per (user or ip) and header X-Org\n",
		"5/2x per ip", "1e9/s", "٥/s", " 5/2s\n", "", "5/2s per ip per user", "1k/1d12h per path id;", "1/1.5h global",
		"1/1ms250µs per cookie a and query b", "5/s per ((((((((((ip", "a:b:c", "1/s global;;",
		"100/1m per ip token-bucket burst 10 missing 3; 9/s global queue burst 1k wait 1.5s", "5/month per user zone Europe/Berlin",
		"5/1m per ip fixed-window aligned; 5/1m per user sliding-cells cells 20", "5/week per ip zone ../UTC empty",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			var parse *ParseError
			if errors.As(err, &parse) {
				require.True(t, strings.HasPrefix(text[parse.Offset:], parse.Found), "%#v", parse)
			}
			return
		}
		again, err := Parse(set.String())
		require.NoError(t, err, "%q", set)
		require.Equal(t, set, again)
		require.Equal(t, set.String(), again.String())
	})
}
