package clientip

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
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

		// Separators within quotes do not separate.
		{`for=1.1.1.1;host="a,b", for=2.2.2.2`, []string{"2.2.2.2", "1.1.1.1"}},
		{`host="x;for=6.6.6.6";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="x\",for=6.6.6.6;for=7.7.7.7";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="x\\";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`host="\\\"";for=1.1.1.1`, []string{"1.1.1.1"}},
		{`for="1.1.1\.1"`, []string{"1.1.1.1"}},
		{`for="a\\b"`, []string{`a\b`}},

		// An open quote does not affect the entries right of it.
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
	p := Config{Trusted: prefixes("10.0.0.0/8"), Header: "forwarded"}
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
		assert.Equal(t, want, keyOf(&p, from("10.0.0.1:4000", "Forwarded: "+line)), "%.60s", line)
		assert.Equal(t, "198.51.100.7", keyOf(&p, from("198.51.100.7:4000", "Forwarded: "+line)), "%.60s", line)
	}
	hops := Config{Hops: 2, Header: "Forwarded"}
	assert.Equal(t, "203.0.113.9", keyOf(&hops, from("@", `Forwarded: for=1.1.1.1, for=203.0.113.9, for=10.0.0.2`)))
	assert.Equal(t, "", keyOf(&hops, from("@", `Forwarded: for=10.0.0.2`)))
}

func TestClientAllocations(t *testing.T) {
	var none Config
	r := from("203.0.113.9:51234")
	assert.Zero(t, testing.AllocsPerRun(100, func() { none.Key(r.RemoteAddr, r.Header) }))

	// Entries that a client sends left of the proxies' do not allocate.
	trusted := Config{Trusted: prefixes("10.0.0.0/8")}
	short := from("10.0.0.1:1", "X-Forwarded-For: 203.0.113.9, 10.0.0.2")
	long := from("10.0.0.1:1", "X-Forwarded-For: "+strings.Repeat("1.1.1.1, ", 1<<17)+"203.0.113.9, 10.0.0.2")
	assert.Zero(t, testing.AllocsPerRun(100, func() { trusted.Key(short.RemoteAddr, short.Header) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { trusted.Key(long.RemoteAddr, long.Header) }))
}

// isKey reports whether a key is "" or the canonical key of a client.
func isKey(key string, bits int) bool {
	if key == "" {
		return true
	}
	if ip, err := netip.ParseAddr(key); err == nil {
		return ip.Is4() && ip.String() == key
	}
	prefix, err := netip.ParsePrefix(key)
	return err == nil && prefix.Bits() == bits && prefix == prefix.Masked() && prefix.String() == key &&
		prefix.Addr().Is6() && !prefix.Addr().Is4In6()
}

func FuzzClient(f *testing.F) {
	for _, seed := range []string{
		"203.0.113.9", "[2001:db8::1]:80, ::ffff:10.0.0.2", "unknown", ",,", "for=\"[2001:db8::1]:80\";by=_x, for=\"a,b\\\"c\"",
		"for=1.1.1.1;for=2.2.2.2", "fe80::1%eth0%1", "64:ff9b::1.2.3.4", "[::1", "1.2.3.4:_x",
	} {
		f.Add("203.0.113.9:51234", seed, "10.0.0.2", uint8(0), uint8(0))
		f.Add("10.0.0.1:51234", seed, seed, uint8(2), uint8(56))
		f.Add(seed, seed, seed, uint8(1), uint8(128))
	}
	f.Fuzz(func(t *testing.T, peer, first, second string, hops, bits uint8) {
		for _, header := range []string{"", "Forwarded", "X-Real-IP"} {
			p := Config{Trusted: prefixes("10.0.0.0/8"), Hops: int(hops % 65), IPv6Prefix: 32 + int(bits)%97, Header: header}
			name := header
			if name == "" {
				name = "X-Forwarded-For"
			}
			r := from(peer)
			r.Header.Add(name, first)
			r.Header.Add(name, second)
			key := keyOf(&p, r)
			require.True(t, isKey(key, p.IPv6Prefix), "%q", key)
			if own := parseAddress(peer); !p.trusts(own) {
				require.Equal(t, own.key(p.IPv6Prefix), key, "a forged header counts")
			}
		}
	})
}

// FuzzClientAppended checks that no header of a client changes how an entry that
// the proxy appends is read.
func FuzzClientAppended(f *testing.F) {
	for _, seed := range []string{"", "1.1.1.1", "for=\"", "for=\"\\", "\\", ",\"", "for=1.1.1.1;", "for=\"a, for=\\\"", "\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
			p := Config{Trusted: prefixes("10.0.0.0/8"), Header: header}
			for _, appended := range []string{"2001:db8:1:2::3", "203.0.113.9"} {
				entry := appended
				if header == "Forwarded" {
					entry = fmt.Sprintf(`proto=https;host="a\"b,c;for=1.1.1.1\\";for="[%s]:80"`, appended)
					if !strings.Contains(appended, ":") {
						entry = "by=10.0.0.1;For=" + appended
					}
				}
				want := Key(appended, 0)
				oneLine := from("10.0.0.1:1", header+": "+sent+", "+entry)
				require.Equal(t, want, keyOf(&p, oneLine), "%q", oneLine.Header)
				twoLines := from("10.0.0.1:1", header+": "+sent, header+": "+entry)
				require.Equal(t, want, keyOf(&p, twoLines), "%q", twoLines.Header)
			}
		}
	})
}

// FuzzAddress checks that every spelling of an address has one key, and that two
// addresses share a key only if they belong to one client. A prefix around an address has its
// client.
func FuzzAddress(f *testing.F) {
	for _, text := range []string{"203.0.113.9", "2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::1.2.3.4", "::", "fe80::1", "255.255.255.255"} {
		ip := netip.MustParseAddr(text)
		f.Add(ip.AsSlice(), netip.MustParseAddr("2001:db8:0:1::").AsSlice(), uint8(64), uint16(80), "eth0")
	}
	f.Fuzz(func(t *testing.T, one, two []byte, bits uint8, port uint16, zone string) {
		a, b := anAddress(one), anAddress(two)
		prefix := 32 + int(bits)%97
		key := Key(a.String(), prefix)
		require.NotEmpty(t, key, "%v", a)
		require.True(t, isKey(key, prefix), "%q", key)
		spellings := []string{fmt.Sprint(netip.AddrPortFrom(a, port))}
		if ip := a.Unmap(); ip.Is4() {
			four := ip.As4()
			spellings = append(spellings, ip.String(), "::ffff:"+ip.String(),
				fmt.Sprintf("::FFFF:%02x%02x:%02x%02x", four[0], four[1], four[2], four[3]),
				fmt.Sprintf("[64:ff9b::%s]:%d", ip, port), "64:ff9b::"+ip.String())
		} else {
			spellings = append(spellings, a.StringExpanded(), strings.ToUpper(a.String()), "["+a.String()+"]")
			if zone != "" && !strings.ContainsAny(zone, "]%") && len(zone) < 50 {
				spellings = append(spellings, a.String()+"%"+zone, "["+a.String()+"%"+zone+"]:1")
			}
		}
		for _, s := range spellings {
			require.Equal(t, key, Key(s, prefix), "%q", s)
		}
		around := must.Get(a.WithZone("").Prefix(a.BitLen() - int(bits)%33))(t)
		require.True(t, Prefix(around).Contains(client(a, 128).Addr()), "%v in %v", a, around)
		same := client(a, prefix) == client(b, prefix)
		require.Equal(t, same, key == Key(b.String(), prefix), "%v, %v", a, b)
	})
}

// anAddress makes an address of any bytes.
func anAddress(from []byte) netip.Addr {
	var b [16]byte
	if n := copy(b[:], from); n <= 4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// client returns the bits of an address that identify a client.
func client(ip netip.Addr, prefix int) netip.Prefix {
	if ip = ip.Unmap(); nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.Is4() {
		prefix = 32
	}
	p, _ := ip.WithZone("").Prefix(prefix)
	return p
}

// FuzzIPv4 compares the short way for IPv4 addresses with the one for all.
func FuzzIPv4(f *testing.F) {
	for _, text := range []string{"203.0.113.9", "203.0.113.9:80", "203.0.113.9:_x", "203.0.113.9:", "203.0.113.09", "256.1.1.1", "1.2.3", "1.2.3.4.5",
		"0.0.0.0", "1..2.3", ".1.2.3", "1.2.3.4:99999", "::ffff:1.2.3.4", "1.2.3.4:_" + strings.Repeat("x", 120), "1.2.3.4%eth0", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := parseAddress(text)
		want := ""
		if a.ip.Is4() && !strings.Contains(a.text, ":") {
			want = a.text
		}
		require.Equal(t, want, ipv4Of(text), "%q", text)
	})
}
