package limit

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routelimit/limit/internal/grammar"
)

// exemptProblems returns what is wrong with the exemptions of r.
func (r *Rule) exemptProblems() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if len(r.Exempt) > grammar.MaxCallers {
		add("%d exemptions: write at most %d, and put more into a list of package access", len(r.Exempt), grammar.MaxCallers)
		return list
	}
	for i, entry := range r.Exempt {
		kind, value := grammar.SplitExemption(entry)
		switch {
		case value == "":
			add("exempt %q: write ip and a prefix, or user, plan or class and a name of one word", entry)
		case slices.Contains(r.Exempt[:i], entry):
			add("exempt %s: it stands twice: remove one", entry)
		case kind == "ip":
			if _, problem := exemptPrefix(value); problem != "" {
				add("exempt %s: %s", entry, problem)
			}
		case kind != "user" && !grammar.ValidName(value):
			add("exempt %s: write a name of 1 to %d letters, digits, '.', '_' or '-'", entry, grammar.MaxName)
		}
	}
	return list
}

// exemptPrefix reads an address or a prefix.
func exemptPrefix(text string) (p netip.Prefix, problem string) {
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
