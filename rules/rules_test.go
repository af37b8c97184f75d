package rules

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

func TestConstructors(t *testing.T) {
	for text, rule := range map[string]Rule{
		"5/2s per ip":              PerIP(2*time.Second, 5),
		"20/1h per user":           PerUser(time.Hour, 20),
		"100/1m per header X-Org":  Per(ByHeader("x-org"), time.Minute, 100),
		"1000/1m global":           Global(time.Minute, 1000),
		"1/1d per cookie sid":      Per(ByCookie("sid"), day, 1),
		"login: 5/1m per user":     {Name: "login", Key: ByUser, Limit: 5, Window: time.Minute},
		"1/1s per tenant":          Per(By("tenant", (*http.Request).UserAgent), time.Second, 1),
		"0/0s":                     {},
		"-5/-1m0s per ip and user": Per(ByIP.And(ByUser), -time.Minute, -5),
	} {
		assert.Equal(t, text, rule.String())
	}
	rule := PerIP(2*time.Second, 5)
	assert.Equal(t, core.Quota{Limit: 5, Window: 2_000_000}, rule.Quota())
}

func TestRuleNames(t *testing.T) {
	for want, rule := range map[string]Rule{
		"per-ip-2s":                          PerIP(2*time.Second, 5),
		"per-user-1h30m":                     PerUser(90*time.Minute, 5),
		"global-1d":                          Global(24*time.Hour, 5),
		"per-header-x-api-key-1m":            Per(ByHeader("X-API-Key"), time.Minute, 5),
		"per-user-or-ip-1s500ms":             Per(ByUser.Or(ByIP), 1500*time.Millisecond, 5),
		"per-ip-1ms250us":                    PerIP(1250*time.Microsecond, 5),
		"per--user-or-ip--and-path-id-1s":    Per(ByUser.Or(ByIP).And(ByPathValue("id")), time.Second, 5),
		"per-user-or--ip-and-path-id--1s":    Per(ByUser.Or(ByIP.And(ByPathValue("id"))), time.Second, 5),
		"per-query------1s":                  Per(ByQuery("ключ"), time.Second, 5),
		"login":                              {Name: "login", Key: ByIP, Limit: 5, Window: time.Second},
		"Login.v2_x":                         {Name: "Login.v2_x", Key: ByIP, Limit: 5, Window: time.Second},
		strings.Repeat("a", grammar.MaxName): {Name: strings.Repeat("a", grammar.MaxName), Key: ByIP, Limit: 5, Window: time.Second},
		"per-header-" + long(50) + "-1s":     Per(ByHeader(long(50)), time.Second, 5),
		"per-cookie-sid-366d":                Per(ByCookie("Sid"), 366*day, 100_000),
		"per-tenant-1ms":                     Per(By("tenant", (*http.Request).UserAgent), time.Millisecond, 1),
		"per-query-a.b_c-1s":                 Per(ByQuery("a.b_c"), time.Second, 1),
		"per-cookie-a-b-1s":                  Per(ByCookie("a!b"), time.Second, 1),
	} {
		assert.Equal(t, want, rule.name())
		assert.NoError(t, Rules(rule).Validate(), want)
		assert.Equal(t, want, Rules(rule).Rules()[0].Name)
	}
	assert.Equal(t, "per--0s", new(Rule).name(), "an invalid rule has a name for messages")
}

func long(n int) string { return strings.Repeat("x", n) }

func TestRuleProblems(t *testing.T) {
	const (
		tooShort = "write at least 1ms (the window comes first, then the limit)"
		tooLarge = "is too large for an exact window, which logs each unit: write at most 100000, or use sliding-cells"
	)
	fn := (*http.Request).UserAgent
	tests := []struct {
		rule Rule
		want []string
	}{
		{PerIP(time.Millisecond, 1), nil},
		{PerIP(366*day, 100_000), nil},

		{PerIP(time.Second, 0), []string{"limit 0: write at least 1"}},
		{PerIP(time.Second, -5), []string{"limit -5: write at least 1"}},
		{PerIP(time.Second, 100_001), []string{"limit 100001 " + tooLarge}},
		{PerIP(time.Second, math.MaxInt64), []string{"limit 9223372036854775807 " + tooLarge}},
		{PerIP(0, 1), []string{"window 0s: " + tooShort}},
		{PerIP(-time.Second, 1), []string{"window -1s: " + tooShort}},
		{PerIP(1, 1), []string{"window 1ns: " + tooShort}},
		{PerIP(math.MinInt64, 1), []string{"window -2562047h47m16.854775808s: " + tooShort}},
		{PerIP(time.Millisecond-1, 1), []string{"window 999.999µs: " + tooShort}},
		{PerIP(time.Millisecond+1, 1), []string{"window 1.000001ms: write a whole number of microseconds"}},
		{PerIP(366*day+1, 1), []string{"window 8784h0m0.000000001s: write a whole number of microseconds"}},
		{PerIP(366*day+time.Microsecond, 1), []string{"window 8784h0m0.000001s: write at most 8784h (366 days)"}},
		{PerIP(math.MaxInt64, 1), []string{"window 2562047h47m16.854775807s: write at most 8784h (366 days)"}},

		// Swapped arguments, for which the types are no help.
		{PerIP(5, int64(2*time.Second)), []string{"limit 2000000000 " + tooLarge, "window 5ns: " + tooShort}},

		{Rule{}, []string{
			"no key: write which requests share the quota, such as Key: limit.ByIP",
			"limit 0: write at least 1",
			"window 0s: " + tooShort,
		}},
		{Rule{Name: "log in", Key: ByIP, Limit: 1, Window: time.Second},
			[]string{`name "log in": write 1 to 64 letters, digits, '.', '_' or '-' as its Name`}},
		{Rule{Name: "lögin", Key: ByIP, Limit: 1, Window: time.Second}, []string{`name "lögin": write 1 to 64 letters`}},
		{Rule{Name: "a\r\nb", Key: ByIP, Limit: 1, Window: time.Second}, []string{`name "a\r\nb": write 1 to 64 letters`}},
		{Rule{Name: `a"b`, Key: ByIP, Limit: 1, Window: time.Second}, []string{`name "a\"b": write 1 to 64 letters`}},
		{Rule{Name: long(65), Key: ByIP, Limit: 1, Window: time.Second}, []string{"write 1 to 64 letters"}},
		{Per(ByHeader(long(51)), time.Second, 1), []string{"write 1 to 64 letters"}},

		{Per(ByHeader(""), time.Second, 1), []string{`key "header ": write a name such as X-API-Key`}},
		{Per(ByHeader("X Org"), time.Second, 1), []string{`key "header X Org": write a name such as X-API-Key`}},
		{Per(ByHeader("X:Org"), time.Second, 1), []string{`key "header X:Org": write a name such as X-API-Key`}},
		{Per(ByHeader("Ключ"), time.Second, 1), []string{`key "header Ключ": write a name such as X-API-Key`}},
		{Per(ByHeader("host"), time.Second, 1), []string{"net/http keeps it elsewhere: write limit.By with a function that returns Request.Host"}},
		{Per(ByCookie("a=b"), time.Second, 1), []string{`key "cookie a=b": write a name`}},
		{Per(ByQuery("a b"), time.Second, 1), []string{`key "query a b": write a name without spaces, semicolons and parentheses`}},
		{Per(ByQuery("a;b"), time.Second, 1), []string{`key "query a;b": write a name without`}},
		{Per(ByQuery("a\u00a0b"), time.Second, 1), []string{`write a name without spaces`}},
		{Per(ByQuery("a\xff"), time.Second, 1), []string{`key "query a\xff": write a name without`}},
		{Per(ByPathValue(""), time.Second, 1), []string{`key "path ": write a name without`}},
		{Per(ByPathValue("{id}("), time.Second, 1), []string{`key "path {id}(": write a name without`}},
		{Per(ByPathValue("a\x00"), time.Second, 1), []string{`key "path a\x00": write a name without`}},

		{Per(By("tenant", nil), time.Second, 1), []string{`limit.By("tenant", …): write a function that is not nil, and a name`}},
		{Per(By("", fn), time.Second, 1), []string{`limit.By("", …): write a function`}},
		{Per(By("a or b", fn), time.Second, 1), []string{`limit.By("a or b", …): write`}},
		{Per(By("ip", fn), time.Second, 1), []string{`limit.By("ip", …): write`, "that is not global, ip, user, header"}},

		{Per(ByUser.Or(Everyone), time.Second, 1), []string{`key "user or global": limit.Everyone has no value: leave it out`}},
		{Per(Everyone.And(ByHeader("")).And(KeyResolver{}), time.Second, 1), []string{
			`limit.Everyone has no value: leave it out`, `key "header ": write a name`, "no key: write which"}},
		{Per(nested(grammar.MaxNesting+1), time.Second, 1), nil},
		{Per(nested(grammar.MaxNesting+2), time.Second, 1), []string{"a key nested more than 8 deep: write a function with limit.By"}},
	}
	for _, test := range tests {
		test.rule.Name = nameFor(test.rule)
		err := Rules(test.rule).Validate()
		if len(test.want) == 0 {
			assert.NoError(t, err)
		}
		for _, want := range test.want {
			assert.ErrorContains(t, err, want)
		}
		for _, err := range list(err) {
			var problem *Error
			if assert.ErrorAs(t, err, &problem) {
				assert.Equal(t, test.rule.String(), problem.Rule)
			}
		}
	}
	assert.ErrorContains(t, Rules(Rule{Limit: 5, Window: time.Second, Algorithm: TokenBucket{}}).Validate(), `rule "5/1s token-bucket": no key: `)
}

// nested returns a resolver of so many within each other.
func nested(depth int) KeyResolver {
	if depth == 0 {
		return ByUser
	}
	if depth%2 == 0 {
		return nested(depth - 1).Or(ByIP)
	}
	return nested(depth - 1).And(ByIP)
}

// nameFor keeps the names under test and shortens those of nested resolvers.
func nameFor(r Rule) string {
	if len(r.Key.parts) > 0 {
		return "short"
	}
	return r.Name
}

// list returns what an error joins.
func list(err error) []error {
	if err == nil {
		return nil
	}
	return err.(interface{ Unwrap() []error }).Unwrap()
}

func TestValidate(t *testing.T) {
	rules := func(n int) []Rule {
		list := make([]Rule, n)
		for i := range list {
			list[i] = PerIP(time.Duration(i+1)*time.Second, 5)
		}
		return list
	}
	ip := PerIP(time.Second, 5)
	tests := []struct {
		set  Set
		want []string
	}{
		{Rules(rules(16)...), nil},
		{Rules(ip, Rule{Name: "burst", Key: ByIP, Limit: 1, Window: time.Second}), nil},
		{Named("login", ip), nil},

		{Set{}, []string{"limit: no rules: write at least one, such as limit.PerIP(time.Minute, 100)"}},
		{Rules(), []string{"limit: no rules: write at least one, such as limit.PerIP(time.Minute, 100)"}},
		{Rules(rules(17)...), []string{
			"limit: 17 rules: a request is decided by at most 16; split the policy over a group and its routes"}},
		{Rules(ip, ip), []string{
			`limit: rule "5/1s per ip": the name "per-ip-1s" is taken by "5/1s per ip": remove one of them, or give it another Name, in text a name and a colon before it`}},
		{Rules(ip, PerIP(time.Second, 6), PerIP(1000*time.Millisecond, 7)), []string{
			`limit: rule "6/1s per ip": the name "per-ip-1s" is taken by "5/1s per ip": remove`,
			`limit: rule "7/1s per ip": the name "per-ip-1s" is taken by`}},
		{Rules(ip, Rule{Name: "per-ip-1s", Key: ByUser, Limit: 1, Window: time.Hour}), []string{
			`limit: rule "per-ip-1s: 1/1h per user": the name "per-ip-1s" is taken by "5/1s per ip"`}},
		{Rules(Per(ByCookie("sid"), time.Second, 1), Per(ByCookie("SID"), time.Second, 1)), []string{
			`the name "per-cookie-sid-1s" is taken by`}},

		{Named("", ip), []string{`limit: policy name "": write 1 to 64 letters, digits, '.', '_' or '-' (so that it cannot be a route)`}},
		{Named("POST /update", ip), []string{`limit: policy name "POST /update": write`}},
		{Named("<unmatched>", ip), []string{`limit: policy name "<unmatched>": write`}},
		{Named("{a}"), []string{`limit: policy name "{a}": write`, "limit: no rules: write"}},
		{Rules(PerIP(0, 0), Global(0, 0)), []string{
			`limit: rule "0/0s per ip": limit 0: write at least 1`,
			`limit: rule "0/0s per ip": window 0s: write`,
			`limit: rule "0/0s global": limit 0: write`,
			`limit: rule "0/0s global": window 0s: write`}},
	}
	for _, test := range tests {
		err := test.set.Validate()
		errs := list(err)
		require.Len(t, errs, len(test.want), "%v", err)
		for i, want := range test.want {
			assert.ErrorContains(t, errs[i], want)
			assert.True(t, errors.As(errs[i], new(*Error)))
		}
	}
}

// TestRuleSetIsImmutable checks that nobody can change a set, by the slice that
// it was made of or by deriving another.
func TestRuleSetIsImmutable(t *testing.T) {
	for _, declare := range []func(...Rule) Set{
		Rules, EachRoute, func(rules ...Rule) Set { return Named("a", rules...) },
	} {
		rules := []Rule{PerIP(time.Second, 1), Global(time.Second, 2)}
		set := declare(rules...)
		rules[0].Limit = 9
		set.Derive("", func(r Rule) Rule { r.Limit = 9; return r })
		set.Rules()[1].Limit = 9
		assert.Equal(t, "1/1s per ip; 2/1s global", set.String())
	}
	three := ByUser.Or(ByIP).Or(ByHeader("A"))
	four, other := three.Or(ByHeader("B")), three.Or(ByHeader("C"))
	assert.Equal(t, []string{"user or ip or header A", "user or ip or header A or header B", "user or ip or header A or header C"},
		[]string{three.syntax().String(), four.syntax().String(), other.syntax().String()})
}
