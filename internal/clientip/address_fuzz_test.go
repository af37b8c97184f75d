package clientip

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

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
