// Package clientip finds the address of the client that sent a request: the peer of the connection
// or, behind trusted proxies, an address that a forwarding header names.
package clientip

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A Config says which forwarding headers count. Its fields are those of limit.Proxies, which
// documents them.
type Config struct {
	Trusted    []netip.Prefix
	Hops       int
	Header     string
	IPv6Prefix int
}

const (
	// MaxHops is the most entries of a header that are read.
	MaxHops = 64

	// DefaultIPv6Prefix is the number of bits that an IPv6Prefix of 0 means.
	DefaultIPv6Prefix = 64
)

// Addr returns the address of the client that sent a request, or the zero Addr if it has none: IPv4
// addresses that are written as IPv6 as IPv4, and the others without their zone.
func (c *Config) Addr(remoteAddr string, header http.Header) netip.Addr {
	return c.client(remoteAddr, header).client()
}

// Key returns the text that identifies the client that sent a request:
// "203.0.113.9", "2001:db8:1:2::/64", or "" if the client has no address.
func (c *Config) Key(remoteAddr string, header http.Header) string {
	if len(c.Trusted) == 0 && c.Hops == 0 {
		return Key(remoteAddr, c.IPv6Prefix)
	}
	return c.client(remoteAddr, header).key(c.IPv6Prefix)
}

// Parse returns the address of a client, from a text with or without a port: the zero Addr if it is
// none.
func Parse(text string) netip.Addr { return parseAddress(text).client() }

// Key returns the key of an address with or without a port, or "" if the text is not an address.
func Key(text string, ipv6Prefix int) string {
	if v4 := ipv4Of(text); v4 != "" {
		return v4
	}
	return parseAddress(text).key(ipv6Prefix)
}

func (c *Config) client(remoteAddr string, header http.Header) address {
	peer := parseAddress(remoteAddr)
	if len(c.Trusted) == 0 && c.Hops == 0 || len(c.Trusted) > 0 && !c.trusts(peer) {
		return peer
	}
	return c.forwarded(peer, header)
}

func (c *Config) trusts(a address) bool {
	return slices.ContainsFunc(c.Trusted, func(t netip.Prefix) bool { return t.Contains(a.ip) })
}

// forwarded returns the client that a trusted peer names.
func (c *Config) forwarded(peer address, header http.Header) address {
	switch {
	case c.Header == "" || strings.EqualFold(c.Header, "X-Forwarded-For"):
		return c.walk(peer, chain{lines: header["X-Forwarded-For"]})
	case strings.EqualFold(c.Header, "Forwarded"):
		return c.walk(peer, chain{lines: header["Forwarded"], nodes: true})
	}
	if lines := header.Values(c.Header); len(lines) > 0 {
		if client := parseAddress(trimBlanks(lines[len(lines)-1])); client.ip.IsValid() {
			return client
		}
	}
	return peer
}

// walk returns the client that a chain of proxies names. It reads from the
// right, because only the right end is written by proxies.
func (c *Config) walk(peer address, hops chain) address {
	client := peer
	for n := 1; ; n++ {
		entry, ok := hops.next()
		if !ok && c.Hops > 0 {
			return peer
		}
		hop := parseAddress(entry)
		if !ok || !hop.ip.IsValid() {
			return client
		}
		client = hop
		if n == c.Hops || n == MaxHops || len(c.Trusted) > 0 && !c.trusts(hop) {
			return client
		}
	}
}

// Validate returns an error that joins one for each thing wrong with c, which is the
// Proxies of a program's options.
func (c *Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("limit: Proxies."+format, args...))
	}
	if c.Hops < 0 || c.Hops > MaxHops {
		add("Hops %d: write the number of your proxies, 1 to %d, or 0 to use Trusted alone", c.Hops, MaxHops)
	}
	if c.IPv6Prefix != 0 && (c.IPv6Prefix < 32 || c.IPv6Prefix > 128) {
		add("IPv6Prefix %d: write 32 to 128 bits, or 0 for %d", c.IPv6Prefix, DefaultIPv6Prefix)
	}
	for i, prefix := range c.Trusted {
		switch {
		case !prefix.IsValid():
			add("Trusted[%d] is not a prefix: write one such as netip.MustParsePrefix(\"10.0.0.0/8\")", i)
		case prefix.Addr().Is4In6():
			add("Trusted[%d] %v matches no address: write it as an IPv4 prefix, such as 10.0.0.0/8", i, prefix)
		case prefix.Bits() == 0 && c.Hops == 0:
			add("Trusted[%d] %v trusts every client, so any client could forge an address: "+
				"write the prefixes of your proxies, or their number in Hops", i, prefix)
		case prefix != prefix.Masked():
			add("Trusted[%d] %v has bits behind the prefix: write %v for all of its addresses, or %v/%d for one",
				i, prefix, prefix.Masked(), prefix.Addr(), prefix.Addr().BitLen())
		}
	}
	switch {
	case c.Header == "":
	case !ValidName(c.Header):
		add("Header %q: write the name of a header, such as X-Real-IP", c.Header)
	case len(c.Trusted) == 0 && c.Hops == 0:
		add("Header %q is never read, because no proxy is trusted: write the prefixes of your proxies in Trusted, "+
			"or their number in Hops if clients cannot connect directly", c.Header)
	}
	return errors.Join(errs...)
}

// ValidName reports whether s can be the name of a header or a cookie.
func ValidName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
