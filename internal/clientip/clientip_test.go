package clientip

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// from returns a request from a peer with lines of headers, each "Name: value".
func from(peer string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// keyOf returns the key of the client of a request. It panics if the client's
// address has another key.
func keyOf(c *Config, r *http.Request) string {
	key := c.Key(r.RemoteAddr, r.Header)
	if addr := c.Addr(r.RemoteAddr, r.Header); Key(addr.String(), c.IPv6Prefix) != key {
		panic(fmt.Sprintf("the address %v has not the key %q", addr, key))
	}
	return key
}

func TestAddr(t *testing.T) {
	trusted := Config{Trusted: prefixes("10.0.0.0/8")}
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "[2001:db8:1:2::3]:80": "2001:db8:1:2::3", "fe80::1%eth0": "fe80::1",
		"::ffff:203.0.113.9": "203.0.113.9", "64:ff9b::203.0.113.9": "203.0.113.9", "unknown": "10.0.0.1",
	} {
		r := from("10.0.0.1:4000", "X-Forwarded-For: "+text)
		assert.Equal(t, netip.MustParseAddr(want), trusted.Addr(r.RemoteAddr, r.Header), text)
	}
	assert.Equal(t, netip.Addr{}, trusted.Addr("@", nil), "a unix socket has no address")
}

func TestKey(t *testing.T) {
	tests := []struct {
		bits          int
		address, want string
	}{
		{0, "203.0.113.9", "203.0.113.9"},
		{0, "203.0.113.9:51234", "203.0.113.9"},
		{56, "203.0.113.9:51234", "203.0.113.9"},

		// One client, however its address is spelled.
		{0, "2001:db8:1:2::1", "2001:db8:1:2::/64"},
		{0, "[2001:db8:1:2::1]:443", "2001:db8:1:2::/64"},
		{0, "[2001:db8:1:2::1]", "2001:db8:1:2::/64"},
		{0, "2001:0db8:0001:0002:0000:0000:0000:0001", "2001:db8:1:2::/64"},
		{0, "2001:DB8:1:2:0:0:0:1", "2001:db8:1:2::/64"},
		{0, "2001:db8:1:2::0.0.0.1", "2001:db8:1:2::/64"},
		{0, "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"},
		{0, "2001:db8:1:3::", "2001:db8:1:3::/64"},
		{0, "2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5678::/64"},
		{48, "2001:db8:1:2::1", "2001:db8:1::/48"},
		{56, "2001:db8:1:2ff::1", "2001:db8:1:200::/56"},
		{128, "[2001:db8::1]:1", "2001:db8::1/128"},
		{0, "::1", "::/64"},

		// IPv4 in IPv6.
		{0, "::ffff:1.2.3.4", "1.2.3.4"},
		{0, "::ffff:102:304", "1.2.3.4"},
		{0, "0:0:0:0:0:ffff:1.2.3.4", "1.2.3.4"},
		{32, "[::FFFF:1.2.3.4]:80", "1.2.3.4"},
		{0, "::ffff:1.2.3.4%eth0", "1.2.3.4"},
		{0, "64:ff9b::1.2.3.4", "1.2.3.4"},
		{0, "64:ff9b::102:304", "1.2.3.4"},
		{0, "64:ff9b:1::1.2.3.4", "64:ff9b:1::/64"},

		// Zones.
		{0, "fe80::1%eth0", "fe80::/64"},
		{0, "[fe80::1%25eth0]:80", "fe80::/64"},
		{0, "2001:db8::1%a%b", "2001:db8::/64"},
		{0, "1.2.3.4%eth0", ""},
		{0, "%eth0", ""},

		// Peers without an address, and texts that only look like one.
		{0, "", ""},
		{0, "@", ""},
		{0, "pipe", ""},
		{0, "/run/app.sock", ""},
		{0, "localhost:80", ""},
		{0, ":80", ""},
		{0, "01.2.3.4", ""},
		{0, "0x7f.1", ""},
		{0, "1.2.3", ""},
		{0, "1.2.3.256", ""},
		{0, "2130706433", ""},
		{0, "1.2.3.4:", ""},
		{0, "1.2.3.4:http", ""},
		{0, "1.2.3.4:123456", ""},
		{0, "1.2.3.4:80:80", ""},
		{0, "1.2.3.4/32", ""},
		{0, " 1.2.3.4", ""},
		{0, "1.2.3.4\x00", ""},
		{0, "١.٢.٣.٤", ""},
		{0, "[1.2.3.4]:80", ""},
		{0, "[::1", ""},
		{0, "::1]", ""},
		{0, "[::1]x", ""},
		{0, "[::1]80", ""},
		{0, "[::1]:", ""},
		{0, "[]", ""},
		{0, "[", ""},
		{0, "2001:db8::1::", ""},
		{0, "12345::", ""},
		{0, "fe80::1%" + strings.Repeat("z", 1<<20), ""},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, Key(test.address, test.bits), "%.40q /%d", test.address, test.bits)
	}
}

// TestClientForged lists headers that clients send to pass for another client.
func TestClientForged(t *testing.T) {
	const peer = "203.0.113.9"
	forgeries := []string{
		"X-Forwarded-For: 1.1.1.1",
		"X-Forwarded-For: 127.0.0.1",
		"X-Forwarded-For: 10.0.0.1",
		"X-Forwarded-For: 1.1.1.1, 10.0.0.1",
		"X-Forwarded-For: unknown",
		"x-forwarded-for: 1.1.1.1",
		"Forwarded: for=1.1.1.1",
		"Forwarded: for=\"[2001:db8::1]:80\";by=10.0.0.1",
		"X-Real-Ip: 1.1.1.1",
		"X-Real-Ip: 10.1.2.3",
		"Cf-Connecting-Ip: 1.1.1.1",
		"True-Client-Ip: 1.1.1.1",
		"X-Client-Ip: 1.1.1.1",
		"X-Forwarded: for=1.1.1.1",
		"Connection: X-Forwarded-For",
	}
	for name, p := range map[string]Config{
		"nothing is trusted":    {},
		"others are trusted":    {Trusted: prefixes("10.0.0.0/8", "::1/128")},
		"others and hops":       {Trusted: prefixes("10.0.0.0/8"), Hops: 1},
		"Forwarded from others": {Trusted: prefixes("10.0.0.0/8"), Header: "Forwarded"},
		"X-Real-IP from others": {Trusted: prefixes("10.0.0.0/8"), Header: "X-Real-IP"},
	} {
		for _, forgery := range forgeries {
			assert.Equal(t, peer, keyOf(&p, from(peer+":51234", forgery)), "%s: %s", name, forgery)
		}
		assert.Equal(t, peer, keyOf(&p, from(peer+":51234", forgeries...)), name)
		assert.Equal(t, "", keyOf(&p, from("@", forgeries...)), name)
	}
}

func TestClient(t *testing.T) {
	trusted := Config{Trusted: prefixes("10.0.0.0/8", "2001:db8:ffff::/48")}
	hops := func(n int) Config { return Config{Hops: n} }
	both := func(n int) Config { return Config{Trusted: trusted.Trusted, Hops: n} }
	header := func(name string) Config { return Config{Trusted: trusted.Trusted, Header: name} }
	const proxy = "10.0.0.1:4000"

	tests := []struct {
		name   string
		config Config
		peer   string
		lines  []string // values of X-Forwarded-For, or lines "Name: value"
		want   string
	}{
		{"no header", trusted, proxy, nil, "10.0.0.1"},
		{"one entry", trusted, proxy, []string{"203.0.113.9"}, "203.0.113.9"},
		{"forged left of it", trusted, proxy, []string{"1.1.1.1, 10.9.9.9, 203.0.113.9"}, "203.0.113.9"},
		{"behind two proxies", trusted, proxy, []string{"1.1.1.1, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"forged in a line of its own", trusted, proxy, []string{"1.1.1.1", "203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		{"all are proxies", trusted, proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"by IPv6", trusted, "[2001:db8:ffff::1]:4000", []string{"2001:db8::7, 2001:db8:ffff::2"}, "2001:db8::/64"},
		{"a mapped proxy", trusted, "[::ffff:10.0.0.1]:4000", []string{"::ffff:203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		{"a proxy with a zone", Config{Trusted: prefixes("fe80::/10")}, "[fe80::1%eth0]:4000", []string{"203.0.113.9"}, "203.0.113.9"},
		{"ports", trusted, proxy, []string{"203.0.113.9:80, 10.0.0.2:81"}, "203.0.113.9"},
		{"brackets", trusted, proxy, []string{"[2001:db8::1]:80"}, "2001:db8::/64"},
		{"blanks", trusted, proxy, []string{" \t203.0.113.9\t , 10.0.0.2 "}, "203.0.113.9"},
		{"no blanks", trusted, proxy, []string{"203.0.113.9,10.0.0.2"}, "203.0.113.9"},

		{"unknown", trusted, proxy, []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"unknown behind a proxy", trusted, proxy, []string{"203.0.113.9, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"hidden", trusted, proxy, []string{"203.0.113.9, _hidden"}, "10.0.0.1"},
		{"empty", trusted, proxy, []string{""}, "10.0.0.1"},
		{"comma", trusted, proxy, []string{","}, "10.0.0.1"},
		{"comma at the end", trusted, proxy, []string{"203.0.113.9,"}, "10.0.0.1"},
		{"empty last line", trusted, proxy, []string{"203.0.113.9", ""}, "10.0.0.1"},
		{"smuggled line break", trusted, proxy, []string{"203.0.113.9\r\nX: 1"}, "10.0.0.1"},
		{"smuggled tab", trusted, proxy, []string{"1.1.1.1\t203.0.113.9"}, "10.0.0.1"},
		{"NUL", trusted, proxy, []string{"203.0.113.9\x00"}, "10.0.0.1"},
		{"octal", trusted, proxy, []string{"0203.0.113.9"}, "10.0.0.1"},
		{"a number", trusted, proxy, []string{"3405803785"}, "10.0.0.1"},
		{"a megabyte of commas", trusted, proxy, []string{strings.Repeat(",", 1<<20)}, "10.0.0.1"},
		{"a megabyte of letters", trusted, proxy, []string{strings.Repeat("x", 1<<20)}, "10.0.0.1"},
		{"a megabyte left of it", trusted, proxy, []string{strings.Repeat("1.1.1.1, ", 1<<17) + "203.0.113.9"}, "203.0.113.9"},
		{"more proxies than are read", trusted, proxy,
			[]string{"203.0.113.9, 10.0.0.66" + strings.Repeat(", 10.0.0.65", 64)}, "10.0.0.65"},
		{"as many proxies as are read", trusted, proxy,
			[]string{"203.0.113.9" + strings.Repeat(", 10.0.0.65", 63)}, "203.0.113.9"},

		{"one hop", hops(1), proxy, []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"two hops", hops(2), proxy, []string{"1.1.1.1, 203.0.113.9, 198.51.100.7"}, "203.0.113.9"},
		{"two hops on two lines", hops(2), proxy, []string{"1.1.1.1, 203.0.113.9", "198.51.100.7"}, "203.0.113.9"},
		{"around a hop", hops(2), proxy, []string{"203.0.113.9"}, "10.0.0.1"},
		{"around all hops", hops(2), "203.0.113.9:1", nil, "203.0.113.9"},
		{"a hop that is no address", hops(2), proxy, []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"a client that is no address", hops(2), proxy, []string{"unknown, 198.51.100.7"}, "198.51.100.7"},
		{"64 hops", hops(64), proxy, []string{"1.1.1.1, 203.0.113.9" + strings.Repeat(", 8.8.8.8", 63)}, "203.0.113.9"},
		{"a unix socket", hops(1), "@", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a unix socket without header", hops(1), "@", nil, ""},
		{"a unix socket is in no prefix", trusted, "@", []string{"203.0.113.9"}, ""},

		{"both, client at the end of the hops", both(2), proxy, []string{"1.1.1.1, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"both, client before", both(2), proxy, []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"both, proxies only", both(2), proxy, []string{"10.0.0.4, 10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"both, around a hop", both(3), proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.1"},
		{"both, peer not trusted", both(1), "203.0.113.9:1", []string{"1.1.1.1"}, "203.0.113.9"},
		{"everybody is trusted, but hops count", Config{Trusted: prefixes("0.0.0.0/0"), Hops: 1}, proxy,
			[]string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"everybody is trusted, around a hop", Config{Trusted: prefixes("0.0.0.0/0"), Hops: 2}, "203.0.113.9:1",
			[]string{"1.1.1.1"}, "203.0.113.9"},

		{"the header's name", header("x-forwarded-for"), proxy, []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"another header", header("Forwarded"), proxy, []string{"X-Forwarded-For: 1.1.1.1"}, "10.0.0.1"},
		{"bits", Config{Trusted: trusted.Trusted, IPv6Prefix: 48}, proxy, []string{"2001:db8:1:2::3"}, "2001:db8:1::/48"},
	}
	for _, test := range tests {
		r := from(test.peer)
		for _, line := range test.lines {
			name, value, ok := strings.Cut(line, ": ")
			if !ok || strings.Contains(name, "\n") {
				name, value = "X-Forwarded-For", line
			}
			r.Header.Add(name, value)
		}
		assert.Equal(t, test.want, keyOf(&test.config, r), test.name)
	}
}

func TestClientOfOneAddress(t *testing.T) {
	for _, name := range []string{"X-Real-IP", "cf-connecting-ip", "True-Client-IP"} {
		p := Config{Trusted: prefixes("10.0.0.0/8"), Header: name}
		for _, test := range []struct {
			lines []string
			want  string
		}{
			{nil, "10.0.0.1"},
			{[]string{"203.0.113.9"}, "203.0.113.9"},
			{[]string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9"},
			{[]string{"203.0.113.9", "garbage"}, "10.0.0.1"},
			{[]string{"1.1.1.1, 203.0.113.9"}, "10.0.0.1"},
			{[]string{" [2001:db8::1]:80\t"}, "2001:db8::/64"},
			{[]string{"10.1.2.3"}, "10.1.2.3"}, // a request by a proxy itself
			{[]string{""}, "10.0.0.1"},
		} {
			r := from("10.0.0.1:4000")
			for _, line := range test.lines {
				r.Header.Add(name, line)
			}
			assert.Equal(t, test.want, keyOf(&p, r), "%s: %q", name, test.lines)
		}
	}
	anyPeer := Config{Hops: 1, Header: "X-Real-IP"}
	assert.Equal(t, "203.0.113.9", keyOf(&anyPeer, from("@", "X-Real-Ip: 203.0.113.9")))
}
