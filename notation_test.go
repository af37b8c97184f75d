package limit

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
)

func TestFormatWindow(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"2s": 2 * time.Second, "1m": time.Minute, "1h": time.Hour, "1d": day, "366d": 366 * day, "1m30s": 90 * time.Second,
		"1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond, "1s500ms": 1500 * time.Millisecond,
		"250µs": 250 * time.Microsecond, "1d1h1m1s1ms1µs": day + time.Hour + time.Minute + time.Second + time.Millisecond + time.Microsecond,
		// Invalid ones, which stand in messages.
		"0s": 0, "1ns": 1, "1µs500ns": 1500, "-2s": -2 * time.Second,
		"-2562047h47m16.854775808s": math.MinInt64, "106751d23h47m16s854ms775µs807ns": math.MaxInt64,
	} {
		assert.Equal(t, want, formatWindow(d))
	}
}

func TestRuleSetAsText(t *testing.T) {
	type config struct {
		Rules RuleSet `json:"rules"`
	}
	want := config{Rules(PerIP(2*time.Second, 5), Global(time.Minute, 1000))}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	assert.JSONEq(t, `{"rules":"5/2s per ip; 1000/1m global"}`, string(text))
	var got config
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, want, got)

	kept := got
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"rules":"5/2x per ip"}`), &got), "column 4")
	assert.Error(t, json.Unmarshal([]byte(`{"rules":""}`), &got))
	assert.Equal(t, kept, got)

	flags := flag.NewFlagSet("", flag.ContinueOnError)
	var set RuleSet
	flags.TextVar(&set, "limit", want.Rules, "rules")
	assert.Equal(t, want.Rules, set)
	require.NoError(t, flags.Parse([]string{"-limit", "1/1s global"}))
	assert.Equal(t, "1/1s global", set.String())

	_, err = RuleSet{}.MarshalText()
	assert.ErrorContains(t, err, "no rules")
	_, err = Rules(Per(FirstOf(By("tenant", (*http.Request).UserAgent), ByIP), time.Second, 1)).MarshalText()
	assert.EqualError(t, err, `limit: rule "1/1s per tenant or ip": a function has no text: write a resolver other than limit.By`)
}

// randomKey returns a resolver made by the constructors that have a text.
func randomKey(r *rand.Rand, depth int) KeyResolver {
	names := []string{"X-API-Key", "id", "and", "or", "per", "global", "a:b", "*", "0", "x-y_z", "!#$%&'*+-.^_`|~"}
	name := names[r.IntN(len(names))]
	kind := r.IntN(8)
	if depth > maxNesting {
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
	if kind == 6 {
		return FirstOf(parts...)
	}
	return Joined(parts...)
}

// TestTextRoundTrip makes random sets of all resolvers, windows, counts and
// attributes.
func TestTextRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zones := []*time.Location{time.UTC, time.Local, zone(t, "Europe/Berlin"), zone(t, "America/Argentina/Buenos_Aires")}
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
			if r.IntN(2) == 0 || !validName(rules[i].name()) {
				rules[i].Name = string(rune('a'+i)) + "-1_2.X"
			}
		}
		set := Rules(rules...)
		if set.Validate() != nil {
			continue // two of them have one name
		}
		read++
		got, err := Parse(set.String())
		require.NoError(t, err)
		require.Equal(t, set, got)
	}
	assert.Greater(t, read, 10_000)
}
