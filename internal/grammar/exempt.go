package grammar

import (
	"fmt"
	"net/netip"
)

// ExemptPrefix reads an address or a prefix.
func ExemptPrefix(text string) (p netip.Prefix, problem string) {
	address, err := netip.ParseAddr(text)
	if err == nil {
		p = netip.PrefixFrom(address, address.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return p, "write an address such as 203.0.113.9, or a prefix such as 10.0.0.0/8"
	}
	switch {
	case address.Zone() != "":
		return p, fmt.Sprintf("an address has no zone here: write %s", address.WithZone(""))
	case p.Bits() == 0 || p.Addr().Is4In6() && p.Bits() == 96:
		return p, "every client: remove the rule, or write the prefix of a network, such as 10.0.0.0/8"
	case p.Addr().Is4In6() && p.Bits() > 96:
		return p, fmt.Sprintf("clients with such addresses are IPv4: write %s", netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96))
	case p != p.Masked():
		return p, fmt.Sprintf("bits are set behind the prefix: write %s", p.Masked())
	}
	return p, ""
}
