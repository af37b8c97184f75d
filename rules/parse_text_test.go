package rules

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/must"
)

func TestRuleSetAsText(t *testing.T) {
	type config struct {
		Rules Set `json:"rules"`
	}
	want := config{Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000))}
	text := must.Get(json.Marshal(want))(t)
	assert.JSONEq(t, `{"rules":"5/2s per ip; 1000/1m global"}`, string(text))
	var got config
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, want.Rules.rules, got.Rules.rules)

	kept := got
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"rules":"5/2x per ip"}`), &got), "column 4")
	assert.Error(t, json.Unmarshal([]byte(`{"rules":""}`), &got))
	assert.Equal(t, kept, got)

	named := Named("login", PerIP(time.Minute, 5))
	require.NoError(t, named.UnmarshalText([]byte("7/1h per user")))
	assert.Equal(t, Named("login", PerUser(time.Hour, 7)).rules, named.rules)
	assert.Equal(t, "login", named.name, "the name is kept")
	invalid := Named("a b")
	assert.ErrorContains(t, invalid.UnmarshalText([]byte("7/1h per user")), `policy name "a b"`)
	assert.Equal(t, Named("a b"), invalid)

	flags := flag.NewFlagSet("", flag.ContinueOnError)
	var set Set
	flags.TextVar(&set, "limit", want.Rules, "rules")
	assert.Equal(t, want.Rules.rules, set.rules)
	require.NoError(t, flags.Parse([]string{"-limit", "1/1s global"}))
	assert.Equal(t, "1/1s global", set.String())

	_, err := Set{}.MarshalText()
	assert.ErrorContains(t, err, "no rules")
}

// TestNoText checks that MarshalText refuses rules that Parse could not read back.
func TestNoText(t *testing.T) {
	r := PerIP(time.Minute, 1)
	r.OnRefusal = Refusal{Degrade: true, Fallback: http.NotFoundHandler()}
	_, err := Rules(r).MarshalText()
	assert.ErrorContains(t, err, "a handler has no text: leave out the Fallback")

	defer func(was *time.Location) { time.Local = was }(time.Local)
	time.Local = time.FixedZone("Local", 3600) // as without TZ
	for _, zone := range []*time.Location{time.FixedZone("here", 3600), time.FixedZone("Europe/Berlin", 0), time.FixedZone("", 60), time.Local} {
		r := Rule{Key: ByIP, Limit: 1, Algorithm: FixedWindow{Calendar: core.Calendar{Unit: core.Day, Zone: zone}}}
		require.NoError(t, Rules(r).Validate(), "it is good in a program")
		_, err = Rules(r).MarshalText()
		assert.ErrorContains(t, err, "has no text: write one that every machine knows", zone)
	}

	time.Local = zone(t, "Europe/Berlin") // as with TZ
	const text = "1/day per ip zone Europe/Berlin"
	assert.Equal(t, text, string(must.Get(must.Get(Parse(text))(t).MarshalText())(t)))
}

// randomKey returns a random resolver that has a text.
func randomKey(r *rand.Rand, depth int) KeyResolver {
	names := []string{"X-API-Key", "id", "and", "or", "per", "global", "a:b", "*", "0", "x-y_z", "!#$%&'*+-.^_`|~"}
	name := names[r.IntN(len(names))]
	kind := r.IntN(8)
	if depth > grammar.MaxNesting {
		kind %= 6
	}
	if kind < 4 {
		name = strings.ReplaceAll(name, ":", "")
	}
	switch kind {
	case 0:
		return ByIP
	case 1:
		return ByUser
	case 2:
		return ByHeader(name)
	case 3:
		return ByCookie(name)
	case 4:
		return ByQuery(name)
	case 5:
		return ByPathValue(name)
	}
	parts := make([]KeyResolver, 2+r.IntN(3))
	for i := range parts {
		parts[i] = randomKey(r, depth+1+r.IntN(3))
	}
	return nest([]grammar.Kind{grammar.Or, grammar.And}[kind-6], parts...)
}

// randomAttributes gives a rule a random algorithm with options that it takes.
func randomAttributes(r *rand.Rand, rule *Rule, zones []*time.Location) {
	some := func(n int64) int64 { return r.Int64N(2) * (1 + r.Int64N(n)) }
	rule.OnStoreError = core.OnError(r.IntN(int(core.Refuse) + 1))
	duration := func() time.Duration {
		return time.Millisecond + time.Duration(r.Int64N(int64(day/time.Microsecond)))*time.Microsecond
	}
	switch core.Algorithm(r.IntN(len(core.Algorithms()))) {
	case core.Concurrency:
		rule.Limit, rule.Window, rule.Algorithm = 1+rule.Limit%core.MaxLeases, max(time.Second, rule.Window), Concurrency{}
	case core.Ban:
		bar := duration()
		rule.Limit, rule.Algorithm = 1+rule.Limit%core.MaxStrikes, Ban{Bar: bar, MaxBar: time.Duration(r.IntN(2)) * (bar + duration())}
	case core.Distinct:
		rule.Limit, rule.Algorithm = 1+rule.Limit%core.MaxValues, Distinct{Values: randomKey(r, 0)}
	case core.FixedWindow:
		switch r.IntN(3) {
		case 0:
			rule.Algorithm = FixedWindow{Aligned: true}
		case 1:
			rule.Window, rule.Algorithm = 0, FixedWindow{Calendar: core.Calendar{Unit: core.Hour + core.CalendarUnit(r.IntN(4)), Zone: zones[r.IntN(len(zones))]}}
		default:
			rule.Algorithm = FixedWindow{}
		}
	case core.SlidingCells:
		rule.Algorithm = SlidingCells{Cells: []int{0, 2 + r.IntN(59)}[r.IntN(2)]}
	case core.SlidingCounter:
		rule.Algorithm = SlidingCounter{}
	case core.TokenBucket:
		bucket := TokenBucket{Burst: some(100)}
		rule.Algorithm = bucket
		bucket.Missing = min(some(100), rule.Quota().Burst)
		rule.Algorithm = bucket
	case core.LeakyBucket:
		rule.Algorithm = LeakyBucket{Burst: some(100)}
	case core.Queue:
		rule.Algorithm = Queue{Burst: some(100), MaxWait: time.Duration(some(int64(366*day/time.Microsecond))) * time.Microsecond}
	}
}

// randomRefusal gives a rule a random refusal, and may hide it or make it watch.
func randomRefusal(r *rand.Rand, rule *Rule) {
	f := &rule.OnRefusal
	switch r.IntN(8) {
	case 0:
		f.Status = []int{429, 503}[r.IntN(2)]
	case 1:
		f.Redirect = []string{"/busy", "/", "/a/../b?c=%20&d#e", "https://a.example", "http://[::1]:8080/x,y"}[r.IntN(5)]
		f.Status = []int{0, 302, 303, 307}[r.IntN(4)]
	case 2:
		f.Degrade = true
	case 3:
		f.Mark = true
	}
	if !f.Mark && r.IntN(3) == 0 {
		f.Wait = 1 + time.Duration(math.Exp(r.Float64()*math.Log(float64(day))))
		f.Waiters = r.IntN(2) * (1 + r.IntN(1_000_000))
	}
	rule.Hidden = r.IntN(4) == 0
	if !f.Mark && r.IntN(4) == 0 {
		rule.Shadow = &Shadow{Enforced: r.IntN(100)}
	}
}

// randomCallers gives a rule random plans, reserves and exemptions.
func randomCallers(r *rand.Rand, rule *Rule) {
	names := []string{"pro", "free", "a-b_c.9", "plan", "exempt", "ip", "x"}
	name := func() string { return names[r.IntN(len(names))] }
	for range r.IntN(4) {
		if rule.Plans == nil {
			rule.Plans = make(map[string]int64)
		}
		rule.Plans[name()] = 1 + r.Int64N(1000)
	}
	q := rule.Quota()
	for left := q.Capacity() - 1; !rule.noQuota() && left > 0 && r.IntN(3) == 0; {
		if rule.Reserve == nil {
			rule.Reserve = make(map[string]int64)
		}
		if n := 1 + r.Int64N(left); rule.Reserve[name()] == 0 {
			rule.Reserve[names[len(rule.Reserve)]] += n
			left -= n
		}
	}
	entries := []string{"ip 10.0.0.0/8", "ip 2001:db8::/32", "ip ::1", "user root", "user ip", "user a@b,c:ü", "plan pro", "class critical"}
	for _, i := range r.Perm(len(entries))[:r.IntN(4)] {
		rule.Exempt = append(rule.Exempt, entries[i])
	}
}

// TestTextRoundTrip makes random sets of all resolvers, windows, counts and
// attributes.
func TestTextRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zones := []*time.Location{time.UTC, zone(t, "Asia/Kathmandu"), zone(t, "Europe/Berlin"), zone(t, "America/Argentina/Buenos_Aires")}
	read := 0
	for range 20_000 {
		rules := make([]Rule, 1+r.IntN(4))
		for i := range rules {
			window := time.Duration(math.Exp(r.Float64()*math.Log(float64(366*day)))) + time.Millisecond
			key := randomKey(r, 0)
			if r.IntN(5) == 0 {
				key = Everyone
			}
			rules[i] = Per(key, min(window.Truncate(time.Microsecond), 366*day), 1+r.Int64N(100_000))
			randomAttributes(r, &rules[i], zones)
			if r.IntN(2) == 0 || !grammar.ValidName(rules[i].name()) {
				rules[i].Name = string(rune('a'+i)) + "-1_2.X"
			}
			randomRefusal(r, &rules[i])
			if r.IntN(3) == 0 {
				randomCallers(r, &rules[i])
			}
			if i > 0 && rules[i].Shadow != nil && rules[i-1].Shadow == nil && r.IntN(2) == 0 {
				rules[i].Shadow.Replaces = rules[i-1].name()
			}
		}
		set := Rules(rules...)
		if set.Validate() != nil {
			continue // two of them have one name
		}
		read++
		got := must.Get(Parse(set.String()))(t)
		require.Equal(t, set.rules, got.rules)
	}
	assert.Greater(t, read, 10_000)
}

func TestComplete(t *testing.T) {
	for text, want := range map[string][]string{
		"":                               nil,
		"5/2s per ":                      nil,
		"5/2s per ip tok":                {"5/2s per ip token-bucket"},
		"5/2s per ip; 9/1h global hid":   {"5/2s per ip; 9/1h global hidden"},
		"5/2s per ip on-error ":          {"5/2s per ip on-error local", "5/2s per ip on-error allow", "5/2s per ip on-error refuse"},
		"5/2s per ip refuse re":          {"5/2s per ip refuse redirect"},
		"5/2s per ip plan pro 5 pla":     {"5/2s per ip plan pro 5 plan"},
		"5/2s per ip hidden hid":         nil,
		"5/2s per ip token-bucket burst": {"5/2s per ip token-bucket burst"},
	} {
		assert.Equal(t, want, Complete(text), text)
	}
	for _, text := range Complete("5/2s per ip ") {
		assert.True(t, strings.HasPrefix(text, "5/2s per ip "))
		assert.NotNil(t, attributeOf(strings.TrimPrefix(text, "5/2s per ip ")), text)
	}
	assert.Contains(t, Words(), "burst: how many units may come, or wait, at once\n")
}
