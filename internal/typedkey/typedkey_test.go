package typedkey_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/typedkey"
)

func TestKeys(t *testing.T) {
	of := func(name string) *typedkey.Form {
		for _, r := range limit.MustParse("ip: 1/1h per ip; user: 1/1h per user; either: 1/1h per user or ip; " +
			"both: 1/1h per ip and user; all: 1/1h global; nested: 1/1h per user or (ip and user)").Rules() {
			if r.Name == name {
				form := must.Get(typedkey.Of(&r, 0))(t)
				return &form
			}
		}
		return nil
	}
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		rule, text string
		keys       []string
		one        string
	}{
		{"ip", "192.0.2.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"ip", "2001:db8:1:2:3::4", []string{"2001:db8:1:2::/64", "2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		{"ip", "2001:db8:1:2::/64", []string{"2001:db8:1:2::/64"}, "2001:db8:1:2::/64"},
		{"ip", "::ffff:192.0.2.1", []string{"192.0.2.1", "::ffff:192.0.2.1"}, "192.0.2.1"},
		{"ip", "alice", []string{"alice"}, "error"},
		{"ip", "10.0.0.0/8", []string{"10.0.0.0/8"}, "error"},
		{"user", "alice", []string{"alice"}, "alice"},
		{"user", "", []string{""}, ""},
		{"either", "alice", []string{"0=alice", "alice"}, "0=alice"},
		{"either", "192.0.2.1", []string{"0=192.0.2.1", "1=192.0.2.1", "192.0.2.1"}, "error"},
		{"either", "1=192.0.2.1", []string{"0=1=192.0.2.1", "1=192.0.2.1"}, "1=192.0.2.1"},
		{"either", "7=x", []string{"0=7=x", "7=x"}, "0=7=x"},
		{"both", "alice", []string{"alice"}, "error"},
		{"both", "9:192.0.2.15:alice", []string{"9:192.0.2.15:alice"}, "9:192.0.2.15:alice"},
		{"both", "192.0.2.1, alice", []string{"9:192.0.2.15:alice", "192.0.2.1, alice"}, "9:192.0.2.15:alice"},
		{"both", "2001:db8:1:2:3::4,alice", []string{"17:2001:db8:1:2::/645:alice", "2001:db8:1:2:3::4,alice"}, "17:2001:db8:1:2::/645:alice"},
		{"both", "alice, 192.0.2.1", []string{"alice, 192.0.2.1"}, "error"},
		{"both", "192.0.2.1, alice, bob", []string{"192.0.2.1, alice, bob"}, "error"},
		{"both", "9:192.0.2.15:alic", []string{"9:192.0.2.15:alic"}, "error"},
		{"both", "9:192.0.2.15:alice1", []string{"9:192.0.2.15:alice1"}, "error"},
		{"both", "9:192.0.2.1", []string{"9:192.0.2.1"}, "error"},
		{"nested", "alice", []string{"0=alice", "alice"}, "0=alice"},
		{"all", "", []string{""}, ""},
		{"all", "alice", nil, "error"},
	} {
		form := of(c.rule)
		assert.Equal(t, c.keys, form.Keys(c.text), "%s %s", c.rule, c.text)
		one, err := form.One(c.text)
		if c.one == "error" {
			assert.Error(t, err, "%s %s", c.rule, c.text)
			continue
		}
		assert.NoError(t, err)
		assert.Equal(t, c.one, one, "%s %s", c.rule, c.text)
	}
	hash := must.Get(of("user").One(long))(t)
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, hash)
	again := must.Get(of("user").One(hash))(t)
	assert.Equal(t, hash, again, "as it is shown")
	for name, want := range map[string][2]bool{"both": {true, false}, "nested": {true, false}, "either": {false, false}, "all": {false, true}} {
		assert.Equal(t, want, [2]bool{of(name).Composite(), of(name).Shared()}, name)
	}
	for key, want := range map[string]string{
		"9:192.0.2.15:alice": "192.0.2.1, alice", "17:2001:db8:1:2::/645:alice": "2001:db8:1:2::/64, alice", "": "",
		// What would not be read as this key stays as it is.
		"9:192.0.2.16:a, bob": "9:192.0.2.16:a, bob", "9:192.0.2.10:": "9:192.0.2.10:", "9:192.0.2.16: alice": "9:192.0.2.16: alice", "alice": "alice",
	} {
		assert.Equal(t, want, of("both").Shown(key), key)
	}
	assert.Equal(t, "1=192.0.2.1", of("either").Shown("1=192.0.2.1"), "it says which")
	for text, want := range map[string]bool{"9:192.0.2.15:alice": true, "alice": false, "": true} {
		assert.Equal(t, want, of("both").Whole(text), text)
	}
}
