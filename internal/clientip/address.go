package clientip

import (
	"net/netip"
	"strings"
)

// maxAddress is the length in bytes of the longest text that may be an address.
const maxAddress = 128

// An address is a parsed address with its text, which saves allocating the key of an IPv4 one. The
// zero one is none.
type address struct {
	text string // without port, brackets and zone
	ip   netip.Addr
}

func parseAddress(s string) address {
	host := hostOf(s)
	if host == "" {
		return address{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return address{}
	}
	return address{host, ip.Unmap()}
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052

// client returns the address of the client: behind NAT64 the IPv4 address that an IPv6 address
// contains.
func (a address) client() netip.Addr {
	if nat64.Contains(a.ip) {
		b := a.ip.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a.ip
}

// Prefix returns a prefix with the addresses that its clients have: those of IPv4-mapped and NAT64
// addresses are IPv4. One with all of either is 0.0.0.0/0.
func Prefix(p netip.Prefix) netip.Prefix {
	a := address{ip: p.Addr().Unmap()}
	if ip := a.client(); p.Addr().Is6() && ip.Is4() {
		return netip.PrefixFrom(ip, max(0, p.Bits()-96))
	}
	return p
}

// key returns the text that all spellings of an address share.
func (a address) key(ipv6Prefix int) string {
	ip := a.client()
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is4():
		// netip accepts only one spelling of an IPv4 address.
		if strings.IndexByte(a.text, ':') < 0 {
			return a.text
		}
		return ip.String()
	}
	if ipv6Prefix == 0 {
		ipv6Prefix = DefaultIPv6Prefix
	}
	return netip.PrefixFrom(ip, ipv6Prefix).Masked().String()
}

// ipv4Of returns the IPv4 address that a text is, with or without a port, or "". Most
// clients have one, and [netip.ParseAddr] takes three times as long.
func ipv4Of(s string) string {
	if len(s) > maxAddress {
		return ""
	}
	number, digits, dots := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			if number = number*10 + int(c-'0'); number > 255 || digits > 0 && number < 10 { // or it begins with a zero
				return ""
			}
			digits++
		case c == '.' && digits > 0 && dots < 3:
			number, digits, dots = 0, 0, dots+1
		case c == ':' && digits > 0 && dots == 3 && validPort(s[i+1:]):
			return s[:i]
		default:
			return ""
		}
	}
	if digits == 0 || dots < 3 {
		return ""
	}
	return s
}

// hostOf returns an address without its port, brackets and zone. A text that is not an address does
// not become one.
func hostOf(address string) string {
	if len(address) > maxAddress {
		return ""
	}
	host := address
	if strings.HasPrefix(address, "[") {
		inside, port, closed := strings.Cut(address[1:], "]")
		if !closed || port != "" && (port[0] != ':' || !validPort(port[1:])) || !strings.Contains(inside, ":") {
			return ""
		}
		host = inside
	} else if before, port, _ := strings.Cut(address, ":"); port != "" && !strings.Contains(port, ":") {
		if !validPort(port) {
			return ""
		}
		return before
	}
	if before, _, zoned := strings.Cut(host, "%"); zoned && strings.Contains(before, ":") {
		host = before
	}
	return host
}

// validPort reports whether s is a port, or an obfuscated one (RFC 7239, section 6.3).
func validPort(s string) bool {
	if name, ok := strings.CutPrefix(s, "_"); ok {
		return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
			return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
		})
	}
	if s == "" || len(s) > 5 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
