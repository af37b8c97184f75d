package limit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChainOfForwarded(t *testing.T) {
	tests := []struct {
		line string
		want []string // from right to left
	}{
		{`for=192.0.2.43`, []string{"192.0.2.43"}},
		{`For="[2001:db8:cafe::17]:4711"`, []string{"[2001:db8:cafe::17]:4711"}},
		{`for=192.0.2.60;proto=http;by=203.0.113.43`, []string{"192.0.2.60"}},
		{`for=192.0.2.43, for=198.51.100.17`, []string{"198.51.100.17", "192.0.2.43"}},
		{`by=203.0.113.43 ; FOR=192.0.2.60`, []string{"192.0.2.60"}},
		{`for=_gazonk, for=unknown`, []string{"unknown", "_gazonk"}},
		{`proto=http`, []string{""}},
		{``, []string{""}},
		{`,`, []string{"", ""}},
		{`for=1.1.1.1;for=2.2.2.2`, []string{""}},
		{`for=;for=2.2.2.2`, []string{""}},
		{`;;for=1.1.1.1;;`, []string{"1.1.1.1"}},
		{`for`, []string{""}},

		// Separators within quotes separate nothing.
		{`for=1.1.1.1;host="a,b", for=2.2.2.2`, []string{"2.2.2.2", "1.1.1.1"}},
		{`host="x;for=6.6.6.6";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="x\",for=6.6.6.6;for=7.7.7.7";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="x\\";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="\\\"";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`for="1.1.1\.1"`, []string{"1.1.1.1"}},
		{`for="a\\b"`, []string{`a\b`}},

		// A quote left open reaches no further right than it stands.
		{`for=", for=1.1.1.1`, []string{"1.1.1.1", `"`}},
		{`for="x, for="[2001:db8::1]"`, []string{"[2001:db8::1]", `"x`}},
		{`host="a\, for="[2001:db8::1]";by=x`, []string{"[2001:db8::1]", ""}},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, entriesOf(chain{lines: []string{test.line}, nodes: true}), test.line)
	}
	lines := []string{`for=1.1.1.1, for=2.2.2.2`, `for=3.3.3.3`}
	assert.Equal(t, []string{"3.3.3.3", "2.2.2.2", "1.1.1.1"}, entriesOf(chain{lines: lines, nodes: true}))
	assert.Empty(t, entriesOf(chain{}))
}

func entriesOf(c chain) (entries []string) {
	for entry, ok := c.next(); ok; entry, ok = c.next() {
		entries = append(entries, entry)
	}
	return entries
}

func TestClientForwarded(t *testing.T) {
	p := Proxies{Trusted: prefixes("10.0.0.0/8"), Header: "forwarded"}
	require.NoError(t, p.validate())
	for line, want := range map[string]string{
		`for=1.1.1.1, for=203.0.113.9, for=10.0.0.2`:         "203.0.113.9",
		`for="[2001:db8::1]:80";by="10.0.0.1:4000"`:          "2001:db8::/64",
		`for="[2001:db8::1%eth0]:_port";proto=https`:         "2001:db8::/64",
		`for="203.0.113.9:80"`:                               "203.0.113.9",
		`for=203.0.113.9, for=unknown`:                       "10.0.0.1",
		`for=203.0.113.9, for=_hidden, for=10.0.0.2`:         "10.0.0.2",
		`for=203.0.113.9, by=10.0.0.2`:                       "10.0.0.1",
		`for=203.0.113.9,`:                                   "10.0.0.1",
		`203.0.113.9`:                                        "10.0.0.1",
		`for="` + strings.Repeat(`\`, 1<<20) + `1.1.1.1"`:    "10.0.0.1",
		strings.Repeat(`"`, 1<<20) + `,for=203.0.113.9`:      "203.0.113.9",
		strings.Repeat(`for=1.1.1.1;`, 1<<17):                "10.0.0.1",
		`for="203.0.113.9`:                                   "10.0.0.1",
		`for=203.0.113.9"`:                                   "10.0.0.1",
		`for='203.0.113.9'`:                                  "10.0.0.1",
		`for="unknown, for=1.1.1.1"`:                         "10.0.0.1",
		`for=203.0.113.9;host="h, for=1.1.1.1";proto="http"`: "203.0.113.9",
	} {
		assert.Equal(t, want, p.client(from("10.0.0.1:4000", "Forwarded: "+line)), "%.60s", line)
		assert.Equal(t, "198.51.100.7", p.client(from("198.51.100.7:4000", "Forwarded: "+line)), "%.60s", line)
	}
	hops := Proxies{Hops: 2, Header: "Forwarded"}
	assert.Equal(t, "203.0.113.9", hops.client(from("@", `Forwarded: for=1.1.1.1, for=203.0.113.9, for=10.0.0.2`)))
	assert.Equal(t, "", hops.client(from("@", `Forwarded: for=10.0.0.2`)))
}
