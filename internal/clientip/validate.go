package clientip

import (
	"errors"
	"fmt"
	"strings"
)

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
