package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/door"
)

// A seen is a request as a framework sees it.
type seen struct {
	exchange
	request   *http.Request
	user      string                   // of the adapter, or "" if it asks for none
	pathValue func(name string) string // of the adapter, or nil
}

func (s *seen) PathValue(r *http.Request, name string) string {
	if s.pathValue != nil {
		return s.pathValue(name)
	}
	return s.exchange.PathValue(r, name)
}

func (s *seen) Caller(door.Part) (answer string, asked bool) { return s.user, s.user != "" }

// resolve returns the key of a request as a handler would.
func resolve(k KeyResolver, s *seen, options Options) string {
	return k.Resolve(s.source(options).value)
}

func (s *seen) source(options Options) *layer {
	l := &Limiter{options: options}
	return &layer{version: &version{Policy: &Policy{limiter: l}}, framework: s, ofRequest: ofRequest{request: s.request}}
}

// request returns one from 203.0.113.9, with headers as "Name: value".
func request(target string, headers ...string) *seen {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr = "203.0.113.9:51234"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	return &seen{request: r}
}

// valuesIn returns a function for resolve.
func valuesIn(l *Limiter, keys map[string]string) func(*KeyResolver) string {
	return func(k *KeyResolver) string {
		v, _ := k.Given(keys, l.options.Proxies.IPv6Prefix)
		return v
	}
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestResolve(t *testing.T) {
	agent := By("agent", (*http.Request).UserAgent)
	cookie, query := MustParse("1/1s per cookie sid").Rules()[0].Key, MustParse("1/1s per query key").Rules()[0].Key
	alice := Options{Caller: Caller[*http.Request]{User: func(*http.Request) string { return "alice" }}}
	megabyte := strings.Repeat("x", 1<<20)
	withPath := request("/")
	withPath.request.SetPathValue("id", "42")
	ginPath := request("/")
	ginPath.request.SetPathValue("id", "42")
	ginPath.pathValue = func(name string) string { return name + "=7" }
	ginUser := request("/")
	ginUser.user = "bob"
	socket := request("/")
	socket.request.RemoteAddr = "@"

	tests := []struct {
		key     KeyResolver
		call    *seen
		options Options
		want    string
	}{
		{Everyone, request("/"), alice, ""},
		{ByIP, request("/"), Options{}, "203.0.113.9"},
		{ByIP, request("/", "X-Forwarded-For: 1.1.1.1", "X-Real-Ip: 1.1.1.1"), Options{}, "203.0.113.9"},
		{ByIP, request("/", "X-Forwarded-For: 1.1.1.1"), Options{Proxies: Proxies{Hops: 1}}, "1.1.1.1"},
		{ByIP, socket, Options{}, ""},

		{ByUser, request("/"), alice, "alice"},
		{ByUser, ginUser, alice, "bob"},
		{ByUser, request("/"), Options{}, ""},

		{ByHeader("X-API-Key"), request("/", "x-api-key: k1"), Options{}, "k1"},
		{ByHeader("x-api-key"), request("/", "X-Api-Key: k1", "X-Api-Key: k2"), Options{}, "k1"},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key:  k1\t"), Options{}, "k1"},
		{ByHeader("X-API-Key"), request("/"), Options{}, ""},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key: "), Options{}, ""},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key:  \t "), Options{}, ""},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key: "+megabyte), Options{}, hashed(megabyte)},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key: \xff\xc0\x80\u202e"), Options{}, "\xff\xc0\x80\u202e"},
		{ByHeader("X-API-Key"), request("/", "X-Api-Key: {a}\x00"), Options{}, "{a}\x00"},

		{cookie, request("/", "Cookie: a=b; sid=1; sid=2"), Options{}, "1"},
		{cookie, request("/", "Cookie: SID=1"), Options{}, ""},
		{cookie, request("/", "Cookie: sid="), Options{}, ""},
		{cookie, request("/"), Options{}, ""},

		{query, request("/?a=b&key=1&key=2"), Options{}, "1"},
		{query, request("/?key=%20a%26b%20"), Options{}, "a&b"},
		{query, request("/?key=%zz"), Options{}, ""},
		{query, request("/?key="), Options{}, ""},
		{query, request("/"), Options{}, ""},

		{ByPathValue("id"), withPath, Options{}, "42"},
		{ByPathValue("id"), ginPath, Options{}, "id=7"},
		{ByPathValue("di"), withPath, Options{}, ""},

		{agent, request("/", "User-Agent: curl"), Options{}, "curl"},
		{agent, request("/"), Options{}, ""},

		// A user that is named like an address is not that address.
		{ByUser.Or(ByIP), request("/"), Options{}, "1=203.0.113.9"},
		{ByUser.Or(ByIP), request("/"), Options{Caller: Caller[*http.Request]{User: func(*http.Request) string { return "203.0.113.9" }}}, "0=203.0.113.9"},
		{ByUser.Or(ByIP), request("/"), Options{Caller: Caller[*http.Request]{User: func(*http.Request) string { return " " }}}, "1=203.0.113.9"},
		{ByUser.Or(ByIP), socket, Options{}, ""},
		{agent.Or(ByUser), request("/", "User-Agent: 1=alice"), alice, "0=1=alice"},
		{agent.Or(ByUser).Or(ByIP), request("/"), alice, "1=alice"},
		{agent.Or(ByUser.Or(ByIP)), request("/"), alice, "1=alice"},
		{MustParse("1/1s per (header User-Agent or user) or ip").Rules()[0].Key, request("/"), alice, "0=1=alice"},

		{ByIP.And(ByPathValue("id")), withPath, Options{}, "11:203.0.113.92:42"},
		{ByIP.And(ByPathValue("id")), request("/"), Options{}, "11:203.0.113.90:"},
		{agent.And(ByUser), request("/"), Options{}, ""},
		{agent.And(ByUser).Or(ByIP), request("/"), Options{}, "1=203.0.113.9"},
		{agent.And(ByUser).Or(ByIP), request("/"), alice, "0=0:5:alice"},
		{agent.And(ByUser), request("/", "User-Agent: "+megabyte), alice, "71:" + hashed(megabyte) + "5:alice"},
		{agent.And(agent), request("/", "User-Agent: "+strings.Repeat("x", 64)), alice, hashed("64:" + strings.Repeat("x", 64) + "64:" + strings.Repeat("x", 64))},
		{agent.Or(ByIP), request("/", "User-Agent: "+strings.Repeat("x", 127)), alice, hashed("0=" + strings.Repeat("x", 127))},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, resolve(test.key, test.call, test.options), "%s", test.key)
		assert.NoError(t, Rules(Per(test.key, time.Minute, 1)).Validate())
	}
	assert.Empty(t, resolve(query, &seen{request: &http.Request{}}, Options{}), "a request without URL")
}

func TestKeys(t *testing.T) {
	limiter := New(nil, &Options{Proxies: Proxies{IPv6Prefix: 48}})
	policy := mustPolicy(limiter, Named("job",
		PerIP(time.Second, 1), Per(ByHeader("X-API-Key"), time.Second, 1),
		Per(By("tenant", (*http.Request).UserAgent).Or(ByIP), time.Second, 1), Global(time.Second, 1)))

	for _, keys := range []map[string]string{
		{"ip": "203.0.113.9", "header X-Api-Key": "k", "tenant": "t"},
		{"ip": "[2001:db8::1]:80", "header X-API-Key": "k", "tenant": "t"},
		{"ip": "", "Header x-api-key": "", "tenant": "", "unused": "x"},
		{"ip": "::1", "header X-Api-Key": "the canonical one", "header x-api-key": "k", "tenant": "t"},
	} {
		assert.NoError(t, policy.current.Load().set.Missing(keys))
	}
	for want, keys := range map[string]map[string]string{
		`limit: no key "ip": write Keys: map[string]string{"ip": …}, with "" if there is none`:                                     {"header X-Api-Key": "k", "tenant": "t"},
		`limit: no key "header X-Api-Key": write Keys: map[string]string{"header X-Api-Key": …}`:                                   {"ip": "", "tenant": "t"},
		`limit: no key "header X-Api-Key": write`:                                                                                  {"ip": "", "tenant": "t", "header X-API-Key": "1", "header x-api-key": "2"},
		`limit: key "ip": "localhost" is not an address: write one such as 203.0.113.9`:                                            {"ip": "localhost", "header X-Api-Key": "k", "tenant": "t"},
		"limit: no key \"header X-Api-Key\": write Keys: map[string]string{\"header X-Api-Key\": …}, with \"\" if there is none\n": {"ip": ""},
	} {
		assert.ErrorContains(t, policy.current.Load().set.Missing(keys), want)
	}
	assert.ErrorContains(t, policy.current.Load().set.Missing(nil), `no key "tenant"`)

	// An address makes the same key as it does in a request.
	values := valuesIn(limiter, map[string]string{"ip": "[2001:db8:1:2::3]:80", "header x-api-key": " k "})
	call := request("/", "X-Api-Key: k")
	call.request.RemoteAddr = "[2001:db8:1:9::9]:80"
	for _, key := range []KeyResolver{ByIP, ByHeader("X-API-Key"), ByHeader("X-API-Key").Or(ByIP)} {
		assert.Equal(t, resolve(key, call, limiter.options), key.Resolve(values), "%s", key)
	}
}

func TestKeyAllocations(t *testing.T) {
	call := request("/", "X-Api-Key: k")
	source := call.source(Options{})
	for _, key := range []KeyResolver{Everyone, ByIP, ByHeader("X-API-Key")} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { key.Resolve(source.value) }), "%s", key)
	}
}

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
