package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
)

// TestAbsentKeys replays rules whose key no request of the log has: they are left out,
// and other rules count as if they were not there.
func TestAbsentKeys(t *testing.T) {
	var hits []hit
	for i := range 1200 {
		hits = append(hits, hit{at: float64(i), ip: fmt.Sprintf("192.0.2.%d", i%2)})
	}
	for rule, want := range map[string]string{
		"2/1h per user":             "has a user in this log",
		"2/1h per header X-Api-Key": "has the header X-Api-Key in this log",
		"2/1h per cookie sid":       "has the cookie sid in this log",
		"2/1h per query q":          "has the query q in this log",
		"2/1h per path id":          "has the path id in this log",
		"2/1h per user and path id": "has a key (user and path id) in this log",
	} {
		result := replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.MustParse(rule + "; 500/1h per ip")}}})
		rules := result.Policies[0].Rules
		assert.Equal(t, []int64{200, 0, 0, 1200, 1200}, []int64{result.Refused, result.RefusedNoKey, rules[0].Refused, rules[0].NoKey, rules[0].LeftOut}, rule)
		assert.Equal(t, []int64{200, 0, 0}, []int64{rules[1].Refused, rules[1].NoKey, rules[1].LeftOut}, rule)
		assert.Contains(t, result.Notes[0], fmt.Sprintf("rule %q: none of 1,200 requests %s, so the rule is left out", rule, want))
		assert.Len(t, result.Notes, 1)
	}
	result := replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.MustParse("2/1h per user or ip")}}})
	assert.EqualValues(t, 1196, result.Refused)
	assert.Contains(t, strings.Join(result.Notes, "\n"), `rule "2/1h per user or ip": no request has a user in this log, so the rule counts by the rest of its key`)

	result = replayed(t, hits, &Options{Policies: []Policy{{Rules: limit.MustParse("500/1h per ip; 5/1h per user ban 1h")}}})
	assert.Contains(t, result.Notes[0], "so all of them share one ban")
	assert.Positive(t, result.RefusedNoKey)

	result = replayed(t, []hit{{at: 1}, {at: 2}}, &Options{Policies: []Policy{{Rules: limit.MustParse("1/1h per ip")}}})
	assert.Contains(t, result.Notes[0], "none of 2 requests has an address of a client in this log")
	assert.Zero(t, result.Refused)
}

// TestSomeKeys replays a log with a user in some requests: the others share a quota, the
// first ones too.
func TestSomeKeys(t *testing.T) {
	hits := []hit{{at: 0, ip: "1.1.1.1"}, {at: 1, ip: "2.2.2.2"}, {at: 2, ip: "3.3.3.3", user: "al"}, {at: 3, ip: "3.3.3.3", user: "al"}}
	o := &Options{NoSuggestions: true, Policies: []Policy{{Rules: limit.MustParse("1/1m per user")}}}
	result := replayed(t, hits, o)
	rule := result.Policies[0].Rules[0]
	assert.Equal(t, []int64{2, 1, 2, 2, 0}, []int64{result.Refused, result.RefusedNoKey, rule.Refused, rule.NoKey, rule.LeftOut})
	assert.Equal(t, []string{`rule "1/1m per user": 50.0% of 4 requests have no user and share one quota`}, result.Notes)

	// Without lines to look ahead at, the first two are decided before the first user.
	o.Reorder = -1
	result = replayed(t, hits, o)
	rule = result.Policies[0].Rules[0]
	assert.Equal(t, []int64{1, 0, 1, 2, 2}, []int64{result.Refused, result.RefusedNoKey, rule.Refused, rule.NoKey, rule.LeftOut})
	assert.Contains(t, result.Notes[0], "the rule is left out for the first 2 of them")

	// The log has users elsewhere, so requests of this route really have none.
	o = &Options{Policies: []Policy{{Name: "open", Routes: []string{"GET /open"}, Rules: limit.MustParse("1/1m per user")}}}
	result = replayed(t, []hit{{at: 0, request: "GET /open"}, {at: 1, request: "GET /open"}, {at: 2, user: "al"}}, o)
	assert.EqualValues(t, 1, result.Refused)
	assert.Contains(t, result.Notes[0], `rule "1/1m per user": 100% of 2 requests have no user and share one quota`)
}
