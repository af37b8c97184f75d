package limit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies says which forwarding headers to believe for [ByIP]. The zero
// Proxies believes none: the client is the peer of the connection.
//
// Each proxy appends the address that it was called from, so that a header is
// as true as those who wrote its right end. It is read from there, and only if
// the peer is a proxy: one within Trusted or, if only Hops is set, any peer.
// An entry that is not an address ends the reading: then the client is the hop
// before it, and never a text of the client's choosing.
type Proxies struct {
	// Trusted are the addresses of the proxies. The client is the first
	// address from the right that is not one of them, or the leftmost one if
	// all are. A peer without an address (a unix socket) is never within them.
	Trusted []netip.Prefix

	// Hops is how many proxies a request passes: the client is the address
	// that many entries from the right, 1 being what the peer has written. A
	// request with fewer came around a proxy, and its client is the peer.
	//
	// Set Hops without Trusted only if nobody but the proxies can connect.
	// With both, the client is whatever comes first: an address not within
	// Trusted, or the end of the hops. At most 64.
	Hops int

	// Header is where the proxies write: "X-Forwarded-For" (which is also what
	// "" means), "Forwarded" as in RFC 7239, or a header with one address that
	// the peer overwrites, such as "X-Real-IP" or "CF-Connecting-IP". The
	// number of Hops does not matter to the latter.
	Header string

	// IPv6Prefix is how many bits of an IPv6 address make a client: 32 to 128.
	// 0 means 64. Networks usually hand out a /64 to each customer or a
	// shorter prefix, and whoever has one can write all of its addresses.
	IPv6Prefix int
}

const (
	maxHops           = 64  // entries read of a header
	maxAddress        = 128 // bytes of an entry that may be an address
	defaultIPv6Prefix = 64
)

// validate returns an error that joins one for each thing wrong with p.
func (p *Proxies) validate() error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("limit: Proxies."+format, args...))
	}
	if p.Hops < 0 || p.Hops > maxHops {
		add("Hops %d: write the number of your proxies, 1 to %d, or 0 to read by Trusted alone", p.Hops, maxHops)
	}
	if p.IPv6Prefix != 0 && (p.IPv6Prefix < 32 || p.IPv6Prefix > 128) {
		add("IPv6Prefix %d: write 32 to 128 bits, or 0 for %d", p.IPv6Prefix, defaultIPv6Prefix)
	}
	for i, prefix := range p.Trusted {
		switch {
		case !prefix.IsValid():
			add("Trusted[%d] is not a prefix: write one such as netip.MustParsePrefix(\"10.0.0.0/8\")", i)
		case prefix.Addr().Is4In6():
			add("Trusted[%d] %v would match nothing: write it as an IPv4 prefix, such as 10.0.0.0/8", i, prefix)
		case prefix.Bits() == 0 && p.Hops == 0:
			add("Trusted[%d] %v trusts everybody, so that anyone could forge an address: "+
				"write the prefixes of your proxies, or their number in Hops", i, prefix)
		}
	}
	switch {
	case p.Header == "":
	case !validToken(p.Header):
		add("Header %q: write the name of a header, such as X-Real-IP", p.Header)
	case len(p.Trusted) == 0 && p.Hops == 0:
		add("Header %q would be believed from nobody: write the prefixes of your proxies in Trusted, "+
			"or their number in Hops if nobody else can connect", p.Header)
	}
	return errors.Join(errs...)
}

// clientKey returns the key of the client of a request: "203.0.113.9",
// "2001:db8:1:2::/64", or "" if it has no address.
func (p *Proxies) clientKey(r *http.Request) string { return p.client(r).key(p.IPv6Prefix) }

func (p *Proxies) client(r *http.Request) address {
	client := parseAddress(r.RemoteAddr)
	if len(p.Trusted) == 0 && p.Hops == 0 {
		return client
	}
	if len(p.Trusted) == 0 || p.trusts(client) {
		client = p.forwarded(client, r.Header)
	}
	return client
}

func (p *Proxies) trusts(a address) bool {
	return slices.ContainsFunc(p.Trusted, func(t netip.Prefix) bool { return t.Contains(a.ip) })
}

// forwarded returns the client that a trusted peer speaks for.
func (p *Proxies) forwarded(peer address, h http.Header) address {
	switch {
	case p.Header == "" || strings.EqualFold(p.Header, "X-Forwarded-For"):
		return p.walk(peer, chain{lines: h["X-Forwarded-For"]})
	case strings.EqualFold(p.Header, "Forwarded"):
		return p.walk(peer, chain{lines: h["Forwarded"], nodes: true})
	}
	lines := h.Values(p.Header)
	if len(lines) == 0 {
		return peer
	}
	client := parseAddress(trimBlanks(lines[len(lines)-1]))
	if !client.ip.IsValid() {
		return peer
	}
	return client
}

// walk returns the client that a chain of proxies speaks for.
func (p *Proxies) walk(peer address, hops chain) address {
	client := peer
	for n := 1; ; n++ {
		entry, ok := hops.next()
		if !ok && p.Hops > 0 {
			return peer
		}
		hop := parseAddress(entry)
		if !ok || !hop.ip.IsValid() {
			return client
		}
		client = hop
		if n == p.Hops || n == maxHops || len(p.Trusted) > 0 && !p.trusts(hop) {
			return client
		}
	}
}

// An address is one as it was written, and what it means. The zero address is
// that of whoever has none.
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

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// key returns the text that all spellings of an address share.
func (a address) key(ipv6Prefix int) string {
	ip := a.ip
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is4():
		// netip takes no other spelling of an IPv4 address than its own.
		if strings.IndexByte(a.text, ':') < 0 {
			return a.text
		}
		return ip.String()
	}
	if ipv6Prefix == 0 {
		ipv6Prefix = defaultIPv6Prefix
	}
	return netip.PrefixFrom(ip, ipv6Prefix).Masked().String()
}

// addressKey returns the key of an address with or without a port, or "" if it
// is none.
func addressKey(address string, ipv6Prefix int) string {
	return parseAddress(address).key(ipv6Prefix)
}

// hostOf returns an address without its port, brackets and zone. What is no
// address stays none.
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
		host = before
	}
	if before, _, zoned := strings.Cut(host, "%"); zoned && strings.Contains(before, ":") {
		host = before
	}
	return host
}

// validPort reports whether s is a port, or one obscured as RFC 7239 says.
func validPort(s string) bool {
	if obscured, ok := strings.CutPrefix(s, "_"); ok {
		return validName(obscured)
	}
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}
