package limit

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/clientip"
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func TestProxiesValidate(t *testing.T) {
	for _, valid := range []Proxies{
		{}, {Hops: 1}, {Hops: 64}, {IPv6Prefix: 32}, {IPv6Prefix: 128},
		{Trusted: prefixes("10.0.0.0/8", "2001:db8::/32", "10.1.2.3/32")},
		{Trusted: prefixes("0.0.0.0/0", "::/0"), Hops: 2},
		{Hops: 1, Header: "X-Real-IP"}, {Hops: 2, Header: "Forwarded"},
		{Trusted: prefixes("10.0.0.0/8", "2001:db8:ffff::/48"), Header: "cf-connecting-ip", IPv6Prefix: 48},
		{Trusted: prefixes("10.0.0.0/8"), Header: "x-forwarded-for"}, {Trusted: prefixes("fe80::/10"), Header: "Forwarded"},
	} {
		assert.NoError(t, (*clientip.Config)(&valid).Validate(), "%+v", valid)
	}
	for want, invalid := range map[string]Proxies{
		"Hops -1: write the number of your proxies": {Hops: -1},
		"Hops 65: ":                              {Hops: 65},
		"IPv6Prefix 31: write 32 to 128 bits":    {IPv6Prefix: 31},
		"IPv6Prefix -1: ":                        {IPv6Prefix: -1},
		"IPv6Prefix 129: ":                       {IPv6Prefix: 129},
		"Trusted[1] is not a prefix: write":      {Trusted: append(prefixes("10.0.0.0/8"), netip.Prefix{})},
		"::ffff:10.0.0.0/104 matches no address": {Trusted: prefixes("::ffff:10.0.0.0/104")},
		"0.0.0.0/0 trusts every client, so any client could forge an address":                                                 {Trusted: prefixes("0.0.0.0/0")},
		"Trusted[0] 10.0.0.5/8 has bits behind the prefix: write 10.0.0.0/8 for all of its addresses, or 10.0.0.5/32 for one": {Trusted: prefixes("10.0.0.5/8")},
		"2001:db8::1/64 has bits behind the prefix: write 2001:db8::/64 for all of its addresses, or 2001:db8::1/128 for one": {Trusted: prefixes("2001:db8::1/64")},
		"::/0 trusts every client": {Trusted: prefixes("::/0"), Header: "Forwarded"},
		"Header \"X-Real-IP\" is never read, because no proxy is trusted: write the prefixes": {Header: "X-Real-IP"},
		"Header \"X Real IP\": write the name of a header":                                    {Header: "X Real IP", Hops: 1},
	} {
		err := (*clientip.Config)(&invalid).Validate()
		require.ErrorContains(t, err, want)
		assert.True(t, strings.HasPrefix(err.Error(), "limit: Proxies."), err)
	}
	several := Proxies{Hops: -1, IPv6Prefix: 1, Trusted: make([]netip.Prefix, 2), Header: "?"}
	assert.Len(t, strings.Split((*clientip.Config)(&several).Validate().Error(), "\n"), 5)
}

// TestProxiesKey checks that every field of Proxies is used.
func TestProxiesKey(t *testing.T) {
	r := &http.Request{RemoteAddr: "10.0.0.1:4000", Header: http.Header{
		"X-Forwarded-For": {"2001:db8:1:2::3, 203.0.113.9, 10.0.0.2"}, "X-Real-Ip": {"198.51.100.7"}}}
	for want, p := range map[string]Proxies{
		"10.0.0.1":        {},
		"203.0.113.9":     {Trusted: prefixes("10.0.0.0/8")},
		"10.0.0.2":        {Hops: 1},
		"198.51.100.7":    {Hops: 1, Header: "X-Real-IP"},
		"2001:db8:1::/48": {Hops: 3, IPv6Prefix: 48},
	} {
		assert.Equal(t, want, p.config().Key(r.RemoteAddr, r.Header), "%+v", p)
	}
}
