package lua

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

func TestParseKey(t *testing.T) {
	for _, name := range []Name{
		{Version: "1", Policy: "POST /update", Rule: "per-ip-2s", Key: "203.0.113.9"},
		{Version: "1"},
		{Version: "1", Policy: "p", Rule: "r@", Variant: "gold@~", Key: "k@"},
		{Version: "1", Policy: "{}:", Rule: ":{", Key: "}:\x00\xff\x1b"},
		{Version: "1", Policy: "%", Rule: "%41", Key: "%"},
		{Version: "1", Policy: "", Rule: "r", Key: "k", Part: 1},
		{Version: "1", Policy: "p:3", Rule: "r:4", Key: "k:5", Part: 4096, Beside: true},
		{Version: "1", Policy: "p", Rule: "returned", Key: "returned:", Beside: true},
	} {
		got, ok := ParseKey("a:b", nameKey("a:b", name))
		assert.True(t, ok)
		assert.Equal(t, name, got)
	}
	for _, beside := range []string{"a:b:1:{p%41:7}:r@v:k", "a:b:1:mark:{p%41:7}:r@v:k"} {
		assert.Equal(t, "a:b:1:token:{p%41:7}::", TokenKey("a:b", beside))
	}
	state := Key(Part("a:b", 2, 4), &core.Charge{Policy: "p/:", Rule: "r", Key: "k"})
	got, ok := ParseKey("a:b", TokenKey("a:b", state))
	assert.True(t, ok)
	assert.Equal(t, Name{Version: "1", Policy: "p/:", Part: got.Part, Beside: true}, got)
	for key, version := range map[string]string{
		"limit":                 "",
		"limits:1:{p}:r:k":      "",
		"limit:x:{p}:r:k":       "",
		"limit::{p}:r:k":        "",
		"limit:0:{p}:r:k":       "0", // another version
		"limit:12:p":            "12",
		"limit:1:p:r:k":         "1", // no tag
		"limit:1:{}:r:k":        "1", // an empty tag is none
		"limit:1:{p}:r":         "1",
		"limit:1:{p}:r@:k":      "1", // no variant
		"limit:1:{p}:r@v@w:k":   "1",
		"limit:1:{p}:r:\x1b[2J": "1", // not escaped
		"limit:1:{p}:r:%4":      "1",
		"limit:1:{p}:r:%4g":     "1",
		"limit:1:{p}:r:%41":     "1", // an 'A' is not escaped
		"limit:1:{p}:r:%7b":     "1", // digits are capital
		"limit:1:{p:0}:r:k":     "1", // parts are numbered from 1
		"limit:1:{p:01}:r:k":    "1",
		"limit:1:{p:}:r:k":      "1",
		"limit:1:{p:1:2}:r:k":   "1",
		"limit:1:{:1}:r:k":      "1",
	} {
		got, ok := ParseKey("limit", key)
		assert.False(t, ok, key)
		assert.Equal(t, Name{Version: version}, got, key)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("POST /update", "per-ip-2s", "", "203.0.113.9", "limit:1:{%}:r:%7B")
	f.Fuzz(func(t *testing.T, policy, rule, variant, key, text string) {
		got, ok := ParseKey("limit", Key("limit", &core.Charge{Policy: policy, Rule: rule, Variant: variant, Key: key}))
		if !ok || got != (Name{Version: version, Policy: policy, Rule: rule, Variant: variant, Key: key}) {
			t.Fatalf("%q %q %q came back as %+v", policy, rule, key, got)
		}
		if n, ok := ParseKey("limit", text); ok && nameKey("limit", n) != text {
			t.Fatalf("%q is %+v, whose key is another", text, n)
		}
	})
}

// nameKey returns the key that a name was read from.
func nameKey(prefix string, n Name) string {
	c := core.Charge{Policy: n.Policy, Rule: n.Rule, Variant: n.Variant, Key: n.Key}
	key := Key(prefix, &c)
	if n.Beside {
		key = ReturnedKey(prefix, &c)
	}
	if n.Part > 0 {
		key = strings.Replace(key, "}:", fmt.Sprintf(":%d}:", n.Part), 1)
	}
	return key
}
