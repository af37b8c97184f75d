package rules

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/must"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone := must.Get(time.LoadLocation(name))(t)
	return zone
}

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want Set
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
		{"5/1s per cookie and or query or", Rules(Per(ByCookie("and").Or(ByQuery("or")), time.Second, 5)), ""},

		{"5/1s per user or ip", Rules(Per(ByUser.Or(ByIP), time.Second, 5)), ""},
		{"5/1s per ip and path id", Rules(Per(ByIP.And(ByPathValue("id")), time.Second, 5)), ""},
		{"5/1s per user or ip or header A", Rules(Per(ByUser.Or(ByIP).Or(ByHeader("a")), time.Second, 5)), ""},
		{"5/1s per (user or ip) and header A", Rules(Per(ByUser.Or(ByIP).And(ByHeader("a")), time.Second, 5)), ""},
		{"5/1s per user or ip and header A", Rules(Per(ByUser.Or(ByIP.And(ByHeader("A"))), time.Second, 5)),
			"5/1s per user or (ip and header A)"},
		{"5/1s per user and ip or header A", Rules(Per(ByUser.And(ByIP).Or(ByHeader("A")), time.Second, 5)),
			"5/1s per (user and ip) or header A"},
		{"5/1s per (user or ip) or header A", Rules(Per(nest(grammar.Or, ByUser.Or(ByIP), ByHeader("A")), time.Second, 5)), ""},
		{"5/1s per ((((((((ip))))))))", Rules(PerIP(time.Second, 5)), "5/1s per ip"},

		// White space and separators.
		{" 5/2s\tper  ip ", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"5/2s per ip;", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"5/2s per ip\n", Rules(PerIP(2*time.Second, 5)), "5/2s per ip"},
		{"\n\n5/2s per ip;\r\n\t1000/1m global\r\n\r\n", Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000)),
			"5/2s per ip; 1000/1m global"},
		{"5/2s per ip\n1000/1m global", Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000)), "5/2s per ip; 1000/1m global"},
		{"5/2s per(user or ip);1/1s global", Rules(Per(ByUser.Or(ByIP), 2*time.Second, 5), Global(time.Second, 1)),
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
			assert.Equal(t, test.want.rules, got.rules, test.text)
			assert.Equal(t, test.form, got.String())
		}
	}
	assert.Equal(t, tests[0].want.rules, MustParse(tests[0].text).rules)
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
		{"100/1m per ip fixed-window", with(func(r *Rule) { r.Algorithm = FixedWindow{} }), ""},
		{"100/1m per ip fixed-window aligned", with(func(r *Rule) { r.Algorithm = FixedWindow{Aligned: true} }), ""},
		{"100/1m per ip aligned fixed-window", with(func(r *Rule) { r.Algorithm = FixedWindow{Aligned: true} }),
			"100/1m per ip fixed-window aligned"},
		{"100/1m per ip sliding-cells", with(func(r *Rule) { r.Algorithm = SlidingCells{} }), ""},
		{"100/1m per ip sliding-cells cells 20", with(func(r *Rule) { r.Algorithm = SlidingCells{Cells: 20} }), ""},
		{"100/1m per ip sliding-counter", with(func(r *Rule) { r.Algorithm = SlidingCounter{} }), ""},
		{"100/1m per ip token-bucket", with(func(r *Rule) { r.Algorithm = TokenBucket{} }), ""},
		{"100/1m per ip token-bucket burst 10 empty", with(func(r *Rule) { r.Algorithm = TokenBucket{Burst: 10, Missing: 10} }), ""},
		{"100/1m per ip empty burst 1k token-bucket", with(func(r *Rule) { r.Algorithm = TokenBucket{Burst: 1000, Missing: 1000} }),
			"100/1m per ip token-bucket burst 1000 empty"},
		{"100/1m per ip token-bucket empty", with(func(r *Rule) { r.Algorithm = TokenBucket{Missing: 100} }), ""},
		{"100/1m per ip token-bucket burst 10 missing 3", with(func(r *Rule) { r.Algorithm = TokenBucket{Burst: 10, Missing: 3} }), ""},
		{"100/1m per ip leaky-bucket burst 10", with(func(r *Rule) { r.Algorithm = LeakyBucket{Burst: 10} }), ""},
		{"100/1m per ip queue", with(func(r *Rule) { r.Algorithm = Queue{} }), ""},
		{"100/1m per ip queue burst 100 wait 2s", with(func(r *Rule) { r.Algorithm = Queue{Burst: 100, MaxWait: 2 * time.Second} }), ""},
		{"100/1m per ip wait 1500ms\tqueue  burst 5", with(func(r *Rule) { r.Algorithm = Queue{Burst: 5, MaxWait: 1500 * time.Millisecond} }),
			"100/1m per ip queue burst 5 wait 1s500ms"},
		{"100/1m per ip on-error refuse", with(func(r *Rule) { r.OnStoreError = core.Refuse }), ""},
		{"100/1m per ip on-error allow queue", with(func(r *Rule) { r.OnStoreError, r.Algorithm = core.Allow, Queue{} }),
			"100/1m per ip queue on-error allow"},
		{"100/1m per ip on-error local", minute, "100/1m per ip"},
		{"10/month per user zone Europe/Berlin",
			Rule{Key: ByUser, Limit: 10, Algorithm: FixedWindow{Calendar: core.Calendar{Unit: core.Month, Zone: berlin}}}, ""},
		{"10/week global fixed-window zone UTC",
			Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow{Calendar: core.Calendar{Unit: core.Week, Zone: time.UTC}}}, "10/week global zone UTC"},
		{"10/day global zone UTC", Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow{Calendar: core.Calendar{Unit: core.Day, Zone: time.UTC}}}, ""},
		{"10/hour global zone UTC", Rule{Key: Everyone, Limit: 10, Algorithm: FixedWindow{Calendar: core.Calendar{Unit: core.Hour, Zone: time.UTC}}}, ""},
		{"10/hour global", Global(time.Hour, 10), "10/1h global"},
		{"10/day global fixed-window", Rule{Key: Everyone, Limit: 10, Window: day, Algorithm: FixedWindow{}}, "10/1d global fixed-window"},
		{"a: 10/s per query burst burst 5 leaky-bucket",
			Rule{Name: "a", Key: ByQuery("burst"), Limit: 10, Window: time.Second, Algorithm: LeakyBucket{Burst: 5}},
			"a: 10/1s per query burst leaky-bucket burst 5"},
		{"100/1m per ip refuse 429", with(func(r *Rule) { r.OnRefusal.Status = 429 }), ""},
		{"100/1m per ip refuse 503 refuse wait 2s", with(func(r *Rule) { r.OnRefusal = Refusal{Status: 503, Wait: 2 * time.Second} }),
			"100/1m per ip refuse wait 2s refuse 503"},
		{"100/1m per ip refuse wait 1m waiters 1k", with(func(r *Rule) { r.OnRefusal = Refusal{Wait: time.Minute, Waiters: 1000} }),
			"100/1m per ip refuse wait 1m waiters 1000"},
		{"100/1m per ip refuse redirect /busy", with(func(r *Rule) { r.OnRefusal.Redirect = "/busy" }), ""},
		{"100/1m per ip refuse redirect https://a.example/b?c=d#e 307 hidden",
			with(func(r *Rule) {
				r.OnRefusal, r.Hidden = Refusal{Redirect: "https://a.example/b?c=d#e", Status: 307}, true
			}), ""},
		{"100/1m per ip refuse degrade", with(func(r *Rule) { r.OnRefusal.Degrade = true }), ""},
		{"100/1m per ip hidden refuse mark queue", with(func(r *Rule) { r.OnRefusal.Mark, r.Hidden, r.Algorithm = true, true, Queue{} }),
			"100/1m per ip queue refuse mark hidden"},
		{"100/1m per ip enforced 10 shadow", with(func(r *Rule) { r.Shadow = &Shadow{Enforced: 10} }), "100/1m per ip shadow enforced 10"},
	} {
		if test.form == "" {
			test.form = test.text
		}
		got, err := Parse(test.text)
		if assert.NoError(t, err, test.text) {
			assert.Equal(t, []Rule{test.want}, got.rules, test.text)
			assert.Equal(t, test.form, got.String())
			text, err := got.MarshalText()
			assert.NoError(t, err)
			assert.Equal(t, test.form, string(text))
		}
	}
}

func TestParseInvalidAttributes(t *testing.T) {
	for text, want := range map[string]string{
		"5/1s per ip token-bucket missing 6":                     "6 missing: write 0 for a full bucket to 5 for an empty one",
		"5/1s per ip sliding-cells cells 1":                      "1 cells: write 2 to 60",
		"5/day per ip aligned zone UTC":                          "aligned and calendar: write one of them",
		"5/1s per ip queue wait 367d":                            "wait of 8808h0m0s: write 0 for any, or at most 366 days",
		"1M/1s per ip":                                           "is too large for an exact window",
		"5/day per ip zone UTC; 6/day per ip zone Europe/Berlin": `the name "per-ip-day" is taken by "5/day per ip zone UTC"`,
		"5/1s per ip refuse mark refuse wait 1s":                 "a rule that marks refuses nothing: leave out the Wait",
		"5/1s per ip refuse redirect busy":                       `redirect to "busy": write a path such as "/busy"`,
		"5/1s per ip enforced 10":                                `found "enforced", want shadow beside enforced: write shadow enforced, or leave it out`,
		"5/1s per ip shadow replaces old":                        `replaces "old": write the name of a rule of the same set`,
		"5/1s per ip replaces b; b: 6/1s per ip":                 `found "replaces", want shadow beside replaces`,
		"5/1s per ip plan pro 1M":                                "plan pro: limit 1000000 is too large for an exact window",
		"5/1s per ip reserve critical 3 reserve default 2":       "reserves of 5 units: the rule has 5: leave at least one for the lowest class",
		"5/1s per ip; 5/1s per ip ban 1m reserve critical 2":     "ban leaves no reserve",
		"5/1s per ip exempt ip 0.0.0.0/0":                        "exempt ip 0.0.0.0/0: every client: remove the rule, or write the prefix of a network",
		"5/1s per ip exempt ip ::ffff:0.0.0.0/96":                "every client",
		"5/1s per ip exempt ip 64:ff9b::/96":                     "every client",
		"5/1s per ip exempt ip 64:ff9b::cb00:7109":               "clients with such addresses are IPv4: write 203.0.113.9/32",
		"5/1s per ip exempt ip ::ffff:10.0.0.0/104":              "clients with such addresses are IPv4: write 10.0.0.0/8",
		"5/1s per ip exempt ip fe80::1%eth0":                     "an address has no zone here: write fe80::1",
		"5/1s per ip exempt ip 10.0.0.1/8":                       "bits are set behind the prefix: write 10.0.0.0/8",
		"5/1s per ip exempt ip office":                           "write an address such as 203.0.113.9, or a prefix such as 10.0.0.0/8",
		"5/1s per ip exempt user a exempt user a":                "exempt user a: it stands twice: remove one",
		"5/1s per ip exempt plan a/b":                            "exempt plan a/b: write a name of 1 to 64 letters",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
		assert.ErrorAs(t, err, new(*Error), text)
	}
}

// TestParseError checks that errors of the grammar reach the caller, and that the
// text of a rule is never another rule.
func TestParseError(t *testing.T) {
	for text, want := range map[string]string{
		"": "limit: column 1 of \"\": found the end, want a count and a window, such as \"5/2s\"\n\t\n\t^",
		"5/1m per user empty": "limit: column 15 of \"5/1m per user empty\": found \"empty\", want an algorithm that takes it: " +
			"token-bucket (this rule is sliding-log, the default)\n\t5/1m per user empty\n\t              ^",
	} {
		set, err := Parse(text)
		assert.EqualError(t, err, want)
		assert.Zero(t, set)
		assert.PanicsWithError(t, want, func() { MustParse(text) })
	}
	_, err := Parse("0/1m per user token-bucket empty")
	assert.EqualError(t, err, "limit: rule \"0/1m per user token-bucket empty\": limit 0: write at least 1\n\t0/1m per user token-bucket empty\n\t^")
}

// FuzzParse checks that the text of the rules in a text has the same rules.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"5/2s per ip; 1000/1m global", "login: 20/1h per user or ip", "3/1s per (user or ip) and header X-Org\n",
		"5/2x per ip", "1e9/s", "٥/s", " 5/2s\n", "", "5/2s per ip per user", "1k/1d12h per path id;", "1/1.5h global",
		"1/1ms250µs per cookie a and query b", "5/s per ((((((((((ip", "a:b:c", "1/s global;;",
		"100/1m per ip token-bucket burst 10 missing 3; 9/s global queue burst 1k wait 1.5s", "5/month per user zone Europe/Berlin",
		"5/1m per ip; 3/1h per ip ban 15m to 1d; 9/1h per ip distinct query a or (header b and user) on-error allow",
		"5/1s per ip refuse wait 2s waiters 3 refuse redirect //evil.example; 1/s global hidden refuse mark refuse wait 1s",
		"a: 5/s per ip; 3/s per ip shadow enforced 10 replaces a refuse redirect /busy 302", "5/s per ip replaces b refuse degrade",
		"5/1m per ip fixed-window aligned; 5/1m per user sliding-cells cells 20", "5/week per ip zone ../UTC empty",
		"100/1m per user plan pro 1k plan free 10 reserve critical 20 exempt ip 10.0.0.0/8 exempt user root",
		"9/1s per ip exempt plan a exempt class b exempt ip 2001:db8::/32 exempt ip 192.0.2.1 reserve a 1 reserve b 2 token-bucket burst 4 plan x 3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			for _, err := range errorsOf(err) {
				var wrong *Error
				require.ErrorAs(t, err, &wrong)
				require.Equal(t, text, wrong.Text)
				require.LessOrEqual(t, wrong.Offset, len(text), "%#v", wrong)
				require.Contains(t, err.Error(), "^")
			}
			return
		}
		again := must.Get(Parse(set.String()))(t, "%q", set)
		require.Equal(t, set.rules, again.rules)
		require.Equal(t, set.String(), again.String())
	})
}

// TestSettleUsed reads and writes the settlement by what handlers say, unless the program has a
// function of that name.
func TestSettleUsed(t *testing.T) {
	own := SettleBy("used", func(*http.Request, int) int64 { return 3 })
	for want, functions := range map[Settlement]Functions{AsUsed: {}, own: {Settlements: []Settlement{own}}} {
		set := must.Get(functions.Parse("5/1m per ip settle used"))(t)
		assert.Equal(t, want, set.Declared()[0].Settle)
		assert.Equal(t, "5/1m per ip settle used", set.String())
	}
	_, err := Parse("5/1m per ip settle use")
	assert.ErrorContains(t, err, "statuses such as 401,403, used, or a function")
}
