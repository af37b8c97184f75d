package grammar

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/routelimit/limit/internal/clientip"
)

// ExemptPrefix reads an address or a prefix.
func ExemptPrefix(text string) (p netip.Prefix, problem string) {
	address, err := netip.ParseAddr(text)
	if err == nil {
		p = netip.PrefixFrom(address, address.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return p, "write an address such as 203.0.113.9, or a prefix such as 10.0.0.0/8"
	}
	switch meant := clientip.Prefix(p); {
	case address.Zone() != "":
		return p, fmt.Sprintf("an address has no zone here: write %s", address.WithZone(""))
	case meant.Bits() == 0:
		return p, "every client: remove the rule, or write the prefix of a network, such as 10.0.0.0/8"
	case meant != p:
		return p, fmt.Sprintf("clients with such addresses are IPv4: write %s", meant)
	case p != p.Masked():
		return p, fmt.Sprintf("bits are set behind the prefix: write %s", p.Masked())
	}
	return p, ""
}

// An Exemption says which callers a rule does not count.
type Exemption struct {
	Prefixes     []netip.Prefix
	Users, Plans []string
	Classes      uint16 // a bit for each
}

// ParseExemption reads valid entries, such as "ip 10.0.0.0/8". Class returns the number of a class.
func ParseExemption(entries []string, class func(string) uint8) (e Exemption) {
	for _, entry := range entries {
		switch kind, value := SplitExemption(entry); kind {
		case "ip":
			prefix, _ := ExemptPrefix(value)
			e.Prefixes = append(e.Prefixes, prefix)
		case "user":
			e.Users = append(e.Users, value)
		case "plan":
			e.Plans = append(e.Plans, value)
		case "class":
			e.Classes |= 1 << class(value)
		}
	}
	return e
}

// Matches reports whether e exempts a caller.
func (e *Exemption) Matches(address netip.Addr, user, plan string, class uint8) bool {
	return e.Classes>>class&1 != 0 || slices.Contains(e.Plans, plan) || slices.Contains(e.Users, user) ||
		slices.ContainsFunc(e.Prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

// maxClasses bounds the classes of a limiter: an exemption has a bit for each.
const maxClasses = 16

// CheckClasses returns what is wrong with the classes of a limiter.
func CheckClasses(classes []string) error {
	if classes == nil {
		return nil
	}
	var errs []error
	if !slices.Contains(classes, DefaultClass) || len(classes) > maxClasses {
		errs = append(errs, fmt.Errorf("limit: Classes %q: write at most %d, with %q for requests without a class", classes, maxClasses, DefaultClass))
	}
	for i, name := range classes {
		if !ValidName(name) || slices.Contains(classes[:i], name) {
			errs = append(errs, fmt.Errorf("limit: Classes[%d] %q: write different names of 1 to %d letters, digits, '.', '_' or '-'", i, name, MaxName))
		}
	}
	return errors.Join(errs...)
}
