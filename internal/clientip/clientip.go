// Package clientip finds the address of the client that sent a request: the
// peer of the connection or, behind trusted proxies, an address that a
// forwarding header names.
package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A Config says which forwarding headers count. Its fields are those of
// limit.Proxies, which documents and validates them.
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

// Addr returns the address of the client that sent a request, or the zero Addr
// if it has none. IPv4 addresses that are written as IPv6 are returned as IPv4,
// and the others without their zone.
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

// Parse returns the address of a client, from a text with or without a port: the zero
// Addr if it is none.
func Parse(text string) netip.Addr { return parseAddress(text).client() }

// Key returns the key of an address with or without a port, or "" if the text
// is not an address.
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
	lines := header.Values(c.Header)
	if len(lines) == 0 {
		return peer
	}
	client := parseAddress(trimBlanks(lines[len(lines)-1]))
	if !client.ip.IsValid() {
		return peer
	}
	return client
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
