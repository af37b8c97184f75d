package lua

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseKey(t *testing.T) {
	for _, name := range []Name{
		{"1", "POST /update", "per-ip-2s", "203.0.113.9"},
		{"1", "", "", ""},
		{"1", "{}:", ":{", "}:\x00\xff\x1b"},
		{"1", "%", "%41", "%"},
	} {
		got, ok := ParseKey("a:b", Key("a:b", name.Policy, name.Rule, name.Key))
		assert.True(t, ok)
		assert.Equal(t, name, got)
	}
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
		"limit:1:{p}:r:\x1b[2J": "1", // not escaped
		"limit:1:{p}:r:%4":      "1",
		"limit:1:{p}:r:%4g":     "1",
		"limit:1:{p}:r:%41":     "1", // an 'A' is not escaped
		"limit:1:{p}:r:%7b":     "1", // digits are capital
	} {
		got, ok := ParseKey("limit", key)
		assert.False(t, ok, key)
		assert.Equal(t, Name{Version: version}, got, key)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("POST /update", "per-ip-2s", "203.0.113.9", "limit:1:{%}:r:%7B")
	f.Fuzz(func(t *testing.T, policy, rule, key, text string) {
		got, ok := ParseKey("limit", Key("limit", policy, rule, key))
		if !ok || got != (Name{version, policy, rule, key}) {
			t.Fatalf("%q %q %q came back as %q", policy, rule, key, got)
		}
		if n, ok := ParseKey("limit", text); ok && Key("limit", n.Policy, n.Rule, n.Key) != text {
			t.Fatalf("%q is %q, whose key is another", text, n)
		}
	})
}
