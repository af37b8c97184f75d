package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// names tests that no two keys, variants, rules or policies share a quota, whatever bytes are
// in them.
func names() (tests []namedTest) {
	policy, rule, plain, keys := []string{"policy"}, []string{"rule"}, []string{""}, []string{"", "key"}
	parts := []string{"", "a", "b", "ab", ":", "a:", ":b", "~", "a~", "~b", "{a}", "}", "\x00", "a\x00"}
	ends := parts[:8]
	if testing.Short() { // as on miniredis, which takes minutes for all
		parts, ends = parts[:9], []string{"", "b", ":b", "a"}
	}
	for name, of := range map[string]struct{ policies, rules, variants, keys []string }{
		"keys":     {policy, rule, plain, unusual},
		"rules":    {policy, unusual, plain, keys},
		"variants": {policy, rule, unusual, keys},
		"policies": {unusual, rule, plain, keys},
		"borders":  {ends, parts, parts, ends},
	} {
		tests = append(tests, namedTest{name, func(t *testing.T, h Harness) {
			policies, keys := of.policies, of.keys
			if h.Spreads && name == "borders" { // a decision is several calls
				policies, keys = ends[:4], ends[:4]
			}
			apart(t, h, policies, of.rules, of.variants, keys)
		}})
	}
	return append(tests, namedTest{"separators", func(t *testing.T, h Harness) {
		for _, s := range []string{"/", "|", ",", ".", "-", "_", " ", "\t", "\n", "#", "\x1f", "\xff"} {
			same := []string{s, s + s} // as long however they are joined
			apart(t, h, same, same, same, same)
		}
	}})
}

// unusual strings. Many are prefixes of each other, or are the same to a store
// that cuts, cleans, escapes or folds them.
var unusual = []string{
	"", " ", "\x00", "\x00\x00", "\n", "\r\n", "\xff", "\xfe", "\xff\xfe", "\ufffd", "\xc3\x28", "é", "e\u0301", "\u2028",
	"a", "A", "a ", " a", "a\n", "a\x00", "a\x00b", "a:b", "a|b", "a/b", "a%3Ab", "a%3ab", "a\\b", "a\\\\b",
	"{", "}", "{}", "{a}", "{a}b", "a{b}", "{{a}}", "*", "?", "[a]", "%", "%00", "%s", "'", `"`, "$1", "-1", "0", "00",
	"2001:db8::1", "2001:db8::/64", "192.0.2.1",
	strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 65),
	strings.Repeat("x", 10_000), strings.Repeat("x", 10_001), strings.Repeat("x", 10_000) + "y",
	strings.Repeat("\xff", 300), strings.Repeat("{", 300),
}

// apart takes the only unit of each combination once, and then finds none.
func apart(t *testing.T, h Harness, policies, rules, variants, keys []string) {
	t.Helper()
	var all []core.Ask
	for _, policy := range policies {
		for _, rule := range rules {
			for _, variant := range variants {
				for _, key := range keys {
					all = append(all, askFor(core.Charge{Policy: policy, Rule: rule, Variant: variant, Key: key,
						Quota: core.Quota{Limit: 1, Window: hour}, Cost: 1}))
				}
			}
		}
	}
	each := func(time int64, allowed bool, complaint string) {
		h.SetTime(time)
		for asks := range slices.Chunk(all, core.MaxCharges) {
			for _, ask := range takeAll(t, h, asks...) {
				c := ask.Charges[0]
				assert.Equal(t, allowed, ask.Decision.Allowed, "policy %.20q, rule %.20q, variant %.20q, key %.20q: %s",
					c.Policy, c.Rule, c.Variant, c.Key, complaint)
			}
		}
	}
	each(starts[0], true, "shares the quota of another")
	each(starts[0]+sec, false, "was forgotten")
}
