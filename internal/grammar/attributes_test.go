package grammar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseAttributesError(t *testing.T) {
	const (
		takes        = "an algorithm that takes it: "
		bursts       = takes + "token-bucket, leaky-bucket or queue "
		once         = "each word once, and one algorithm"
		unit         = "hour, day, week or month, because the rule has a zone"
		noSuch       = "a time zone that this machine knows, such as UTC or Europe/Berlin"
		noZone       = "zone and the time zone of the month, such as zone UTC, or a window of days such as 30d"
		afterBurst   = "a number after burst, such as 10"
		ofACells     = "the number of cells, 2 to 60"
		afterOnError = "local, allow, refuse after on-error"
		afterRefuse  = "429, 503, redirect, degrade, mark or wait after refuse"
		oneOutcome   = "one of 429, 503, redirect, degrade and mark"
		location     = "a path such as /busy, or an http or https URL, after redirect"
		percentage   = "the percentage of keys, 1 to 99, after enforced"
	)
	for _, test := range []struct {
		text        string
		offset      int
		found, want string
	}{
		{"5/1s per ip token", 12, "token", wantWord},
		{"5/1s per ip queue Burst 5", 18, "Burst", wantWord},
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
		{"5/1s per ip refuse 429 waiters 5", 23, "waiters", wantWord},
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
		{"5/1s per ip" + strings.Repeat(" exempt user a", MaxCallers+1), 11 + 14*MaxCallers + 8, "user", "at most 64 exemptions: put more into a list of package access"},
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
		{"5/day per ip zone ../../../etc/passwd", 18, "../../../etc/passwd", noSuch},
		{"5/day per ip zone " + strings.Repeat("x", 1<<20), 18, strings.Repeat("x", 1<<20), noSuch},
		{"5/day per ip zone UTC or user", 22, "or", wantWord},

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
		rules, err := Parse(test.text)
		var parse *ParseError
		if assert.ErrorAs(t, err, &parse, "%.60q", test.text) {
			assert.Equal(t, ParseError{test.text, test.offset, test.found, test.want}, *parse, "%.60q", test.text)
		}
		assert.Nil(t, rules)
	}
}
