package limit

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

func TestParseAttributes(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	minute := PerIP(time.Minute, 100)
	with := func(change func(*Rule)) Rule {
		r := minute
		change(&r)
		return r
	}
	for _, test := range []struct {
		text string
		want Rule
		form string // the canonical one, if text is not
	}{
		{"100/1m per ip sliding-log", minute, "100/1m per ip"},
		{"100/1m per ip fixed-window", with(func(r *Rule) { r.Algorithm = FixedWindow }), ""},
		{"100/1m per ip fixed-window aligned", with(func(r *Rule) { r.Algorithm, r.Aligned = FixedWindow, true }), ""},
		{"100/1m per ip aligned fixed-window", with(func(r *Rule) { r.Algorithm, r.Aligned = FixedWindow, true }),
			"100/1m per ip fixed-window aligned"},
		{"100/1m per ip sliding-cells", with(func(r *Rule) { r.Algorithm = SlidingCells }), ""},
		{"100/1m per ip sliding-cells cells 20", with(func(r *Rule) { r.Algorithm, r.Cells = SlidingCells, 20 }), ""},
		{"100/1m per ip sliding-counter", with(func(r *Rule) { r.Algorithm = SlidingCounter }), ""},
		{"100/1m per ip token-bucket", with(func(r *Rule) { r.Algorithm = TokenBucket }), ""},
		{"100/1m per ip token-bucket burst 10 empty", with(func(r *Rule) { r.Algorithm, r.Burst, r.Missing = TokenBucket, 10, 10 }), ""},
		{"100/1m per ip empty burst 1k token-bucket", with(func(r *Rule) { r.Algorithm, r.Burst, r.Missing = TokenBucket, 1000, 1000 }),
			"100/1m per ip token-bucket burst 1000 empty"},
		{"100/1m per ip token-bucket empty", with(func(r *Rule) { r.Algorithm, r.Missing = TokenBucket, 100 }), ""},
		{"100/1m per ip token-bucket burst 10 missing 3", with(func(r *Rule) { r.Algorithm, r.Burst, r.Missing = TokenBucket, 10, 3 }), ""},
		{"100/1m per ip leaky-bucket burst 10", with(func(r *Rule) { r.Algorithm, r.Burst = LeakyBucket, 10 }), ""},
		{"100/1m per ip queue", with(func(r *Rule) { r.Algorithm = Queue }), ""},
		{"100/1m per ip queue burst 100 wait 2s", with(func(r *Rule) { r.Algorithm, r.Burst, r.MaxWait = Queue, 100, 2*time.Second }), ""},
		{"100/1m per ip wait 1500ms\tqueue  burst 5", with(func(r *Rule) { r.Algorithm, r.Burst, r.MaxWait = Queue, 5, 1500*time.Millisecond }),
			"100/1m per ip queue burst 5 wait 1s500ms"},
		{"100/1m per ip on-error refuse", with(func(r *Rule) { r.OnStoreError = Refuse }), ""},
		{"100/1m per ip on-error allow queue", with(func(r *Rule) { r.OnStoreError, r.Algorithm = Allow, Queue }),
			"100/1m per ip queue on-error allow"},
		{"100/1m per ip on-error local", minute, "100/1m per ip"},
		{"10/month per user zone Europe/Berlin",
			Rule{Key: ByUser, Limit: 10, Algorithm: FixedWindow, Calendar: Calendar{Unit: Month, Zone: berlin}}, ""},
		{"10/week global fixed-window zone UTC",
			Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow, Calendar: Calendar{Unit: Week, Zone: time.UTC}}, "10/week global zone UTC"},
		{"10/day global zone UTC", Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow, Calendar: Calendar{Unit: Day, Zone: time.UTC}}, ""},
		{"10/hour global zone UTC", Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow, Calendar: Calendar{Unit: Hour, Zone: time.UTC}}, ""},
		{"10/hour global", Global(time.Hour, 10), "10/1h global"},
		{"10/day global fixed-window", Rule{Key: Everyone, Limit: 10, Window: day, Algorithm: FixedWindow}, "10/1d global fixed-window"},
		{"a: 10/s per query burst burst 5 leaky-bucket",
			Rule{Name: "a", Key: ByQuery("burst"), Limit: 10, Window: time.Second, Algorithm: LeakyBucket, Burst: 5},
			"a: 10/1s per query burst leaky-bucket burst 5"},
	} {
		if test.form == "" {
			test.form = test.text
		}
		got, err := Parse(test.text)
		if assert.NoError(t, err, test.text) {
			assert.Equal(t, Rules(test.want), got, test.text)
			assert.Equal(t, test.form, got.String())
			text, err := got.MarshalText()
			assert.NoError(t, err)
			assert.Equal(t, test.form, string(text))
		}
	}
}

func TestParseAttributesError(t *testing.T) {
	const (
		once     = "each word once, and one algorithm"
		unit     = "hour, day, week or month, since the rule has a zone"
		noSuch   = "a time zone that this machine knows, such as UTC or Europe/Berlin"
		noZone   = "zone and the time zone of the month, such as zone UTC, or a window of days such as 30d"
		behind   = "a number behind burst, such as 10"
		ofACells = "the number of cells, 2 to 60"
		onError  = "local, allow, refuse behind on-error"
	)
	for _, test := range []struct {
		text        string
		offset      int
		found, want string
	}{
		{"5/1s per ip token", 12, "token", wantWord},
		{"5/1s per ip queue Burst 5", 18, "Burst", wantWord},
		{"5/1s per ip burst", 17, "", behind},
		{"5/1s per ip burst;", 17, ";", behind},
		{"5/1s per ip burst 0", 18, "0", behind},
		{"5/1s per ip burst -1", 18, "-1", behind},
		{"5/1s per ip burst 1.5", 18, "1.5", behind},
		{"5/1s per ip burst queue", 18, "queue", behind},
		{"5/1s per ip burst 9999999999999999999999", 18, "9999999999999999999999", behind},
		{"5/1s per ip burst 1000000000001", 18, "1000000000001", behind},
		{"5/1s per ip missing x", 20, "x", "a number behind missing, such as 10"},
		{"5/1s per ip cells 61", 18, "61", ofACells},
		{"5/1s per ip cells 0", 18, "0", ofACells},
		{"5/1s per ip queue queue", 18, "queue", once},
		{"5/1s per ip queue token-bucket", 18, "token-bucket", once},
		{"5/1s per ip burst 5 burst 5", 20, "burst", once},
		{"5/1s per ip empty missing 1", 18, "missing", once},
		{"5/1s per ip queue wait", 22, "", `a wait such as 2s, 1m, 1h or 1d behind "wait"`},
		{"5/1s per ip queue wait long", 23, "long", `a wait such as 2s, 1m, 1h or 1d behind "wait"`},
		{"5/1s per ip queue wait 5", 24, "", "a unit such as s, m, h or d"},
		{"5/1s per ip queue wait 0s", 23, "0s", "a wait of at least 1ms"},
		{"5/1s per ip queue wait 99999999d", 23, "99999999d", "a wait of at most 366d, with numbers such as 2 or 1.5"},
		{"5/1s per ip on-error", 20, "", onError},
		{"5/1s per ip on-error open", 21, "open", onError},
		{"5/1s per ip on-error Allow", 21, "Allow", onError},
		{"5/1s per ip on-error allow on-error refuse", 27, "on-error", once},
		{"5/month per ip", 14, "", noZone},
		{"5/month per ip; 5/s global", 14, ";", noZone},
		{"5/month per ip fixed-window\n", 27, "\n", noZone},
		{"5/1month per ip zone UTC", 3, "month", "a unit such as s, m, h or d"},
		{"5/months per ip zone UTC", 2, "months", "a window such as 2s, 1m, 1h or 1d right behind the slash"},
		{"5/24h per ip zone UTC", 2, "24h", unit},
		{"5/1day per ip zone UTC", 2, "1day", unit},
		{"5/d per ip zone UTC", 2, "d", unit},
		{"5/day per ip zone", 17, "", noSuch},
		{"5/day per ip zone\nUTC", 17, "\n", noSuch},
		{"5/day per ip zone Mars/Olympus", 18, "Mars/Olympus", noSuch},
		{"5/day per ip zone ../../../etc/passwd", 18, "../../../etc/passwd", noSuch},
		{"5/day per ip zone " + strings.Repeat("x", 1<<20), 18, strings.Repeat("x", 1<<20), noSuch},
		{"5/day per ip zone UTC or user", 22, "or", wantWord},
	} {
		set, err := Parse(test.text)
		var parse *ParseError
		if assert.ErrorAs(t, err, &parse, "%.60q", test.text) {
			assert.Equal(t, ParseError{test.text, test.offset, test.found, test.want}, *parse, "%.60q", test.text)
		}
		assert.Zero(t, set)
	}
	for text, want := range map[string]string{
		"5/1s per ip burst 5":                                    "algorithm sliding-log: burst, cells",
		"5/1s per ip empty":                                      "algorithm sliding-log: burst, cells",
		"5/1s per ip queue empty":                                "algorithm queue: burst, cells",
		"5/1s per ip leaky-bucket empty":                         "5 missing: a leaky bucket begins whole",
		"5/1s per ip token-bucket missing 6":                     "6 missing: write 0 for a full bucket to 5 for an empty one",
		"5/1s per ip sliding-cells cells 1":                      "1 cells: write 2 to 60",
		"5/day per ip aligned zone UTC":                          "aligned and calendar: write one of them",
		"5/day per ip queue zone UTC":                            "algorithm queue: burst, cells",
		"5/day per ip sliding-log zone UTC":                      "algorithm sliding-log: burst, cells",
		"5/1s per ip queue wait 367d":                            "wait of 8808h0m0s: write 0 for any, or at most 366 days",
		"1M/1s per ip":                                           "is too large for an exact window",
		"5/day per ip zone UTC; 6/day per ip zone Europe/Berlin": `the name "per-ip-day" is taken by "5/day per ip zone UTC"`,
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
		assert.ErrorAs(t, err, new(*RuleError), text)
	}
}

// TestNoText checks that what Parse cannot read back is not written.
func TestNoText(t *testing.T) {
	base := PerIP(time.Minute, 1)
	base.Cost = func(*http.Request) int64 { return 1 }
	_, err := Rules(base).MarshalText()
	assert.ErrorContains(t, err, "a function has no text: leave out the Cost")

	for _, zone := range []*time.Location{time.FixedZone("here", 3600), time.FixedZone("Europe/Berlin", 0), time.FixedZone("", 60)} {
		r := Rule{Key: ByIP, Limit: 1, Algorithm: FixedWindow, Calendar: Calendar{Unit: Day, Zone: zone}}
		require.NoError(t, Rules(r).Validate(), "it is good in a program")
		_, err = Rules(r).MarshalText()
		assert.ErrorContains(t, err, "has no text: write one that time.LoadLocation knows", zone)
	}
}

// randomAttributes gives a rule an algorithm and what belongs to it.
func randomAttributes(r *rand.Rand, rule *Rule, zones []*time.Location) {
	some := func(n int64) int64 { return r.Int64N(2) * (1 + r.Int64N(n)) }
	rule.Algorithm = Algorithm(r.IntN(int(Queue) + 1))
	rule.OnStoreError = OnError(r.IntN(int(Refuse) + 1))
	switch rule.Algorithm {
	case FixedWindow:
		switch r.IntN(3) {
		case 0:
			rule.Aligned = true
		case 1:
			rule.Calendar = Calendar{Unit: Hour + core.CalendarUnit(r.IntN(4)), Zone: zones[r.IntN(len(zones))]}
			rule.Window = 0
		}
	case SlidingCells:
		if r.IntN(2) == 0 {
			rule.Cells = 2 + r.IntN(59)
		}
	case TokenBucket:
		rule.Burst = some(100)
		rule.Missing = min(some(100), rule.quota().Burst)
	case LeakyBucket:
		rule.Burst = some(100)
	case Queue:
		rule.Burst = some(100)
		rule.MaxWait = time.Duration(some(int64(366*day/time.Microsecond))) * time.Microsecond
	}
}
