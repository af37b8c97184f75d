package access_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/access"
)

// user returns the user of a request of a test.
func user(r *http.Request) string { return r.Header.Get("X-User") }

func mustParse(t testing.TB, text string) *access.List {
	t.Helper()
	l := must.Get(access.Parse(strings.NewReader(text), nil))(t)
	return l
}

var quiet = slog.New(slog.DiscardHandler)

var limiter = limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Log: quiet})

// client returns the client of a request of a test.
func client(r *http.Request) limit.Client { return limit.Client{Request: r, Limiter: limiter} }

// from returns a request of an address, with headers given as name, value.
func from(address string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = address
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

const everything = "\ufeff# The clients of a test.\r\n" +
	"10.0.0.0/8            # a prefix\r\n" +
	"\t203.0.113.9\n" +
	"::ffff:198.51.100.0/120\n" +
	"2001:db8:1:2::/64\n" +
	"user alice\n" +
	"user \"bob # smith\"\n" +
	"\n" +
	"agent \"BadBot\"\n" +
	"agent curl/"

func TestMatches(t *testing.T) {
	l := mustParse(t, everything)
	long := strings.Repeat("x", 10_000)
	for name, test := range map[string]struct {
		r    *http.Request
		want bool
	}{
		"within a prefix":      {from("10.255.0.1:80"), true},
		"outside":              {from("11.0.0.1:80"), false},
		"an address":           {from("203.0.113.9:80"), true},
		"the one after":        {from("203.0.113.10:80"), false},
		"mapped":               {from("[::ffff:10.1.2.3]:80"), true},
		"a mapped prefix":      {from("198.51.100.77:80"), true},
		"IPv6":                 {from("[2001:db8:1:2:3::4%eth0]:80"), true},
		"another /64":          {from("[2001:db8:1:3::4]:80"), false},
		"no address":           {from("@"), false},
		"a user":               {from("@", "X-User", "alice"), true},
		"a quoted user":        {from("@", "X-User", "bob # smith"), true},
		"another case":         {from("@", "X-User", "Alice"), false},
		"an agent":             {from("@", "User-Agent", "Mozilla/5.0 (compatible; BADBOT/1.0)"), true},
		"another agent":        {from("@", "User-Agent", "Mozilla/5.0 (compatible; GoodBot/1.0)"), false},
		"an agent, far behind": {from("@", "User-Agent", long+"BadBot"), false},
		"nothing":              {from("192.0.2.1:80"), false},
	} {
		assert.Equal(t, test.want, l.Matches(client(test.r)), name)
		want := time.Duration(0)
		if test.want {
			want = limit.Never
		}
		assert.Equal(t, want, l.Bar(client(test.r)), name)
	}
	assert.False(t, mustParse(t, "# nobody").Matches(client(from("10.0.0.1:80"))))
}

// TestSpellings has each spelling of an address, and of a prefix around it, in a list, and in a
// request.
func TestSpellings(t *testing.T) {
	spellings := []string{"203.0.113.9", "::ffff:203.0.113.9", "::ffff:cb00:7109", "64:ff9b::203.0.113.9", "64:ff9b::cb00:7109"}
	prefixes := []string{"203.0.113.0/24", "::ffff:203.0.113.0/120", "64:ff9b::cb00:7100/120", "64:ff9b::203.0.113.9/128", "64:ff9b::203.0.0.0/104"}
	for _, entry := range append(prefixes, spellings...) {
		list := mustParse(t, entry)
		for _, address := range spellings {
			assert.True(t, list.Matches(client(from(net.JoinHostPort(address, "1")))), "%s in %s", address, entry)
		}
		assert.False(t, list.Matches(client(from("[2001:db8::9]:1"))), entry)
		e := must.Get(access.ParseEntry(entry))(t)
		assert.NotContains(t, e.String(), ":", "a ban has one name")
	}
}

// TestIdentity checks that a list and bans see the client that the rules see, by the
// options of the limiter alone: behind a proxy, and with the user of an adapter.
func TestIdentity(t *testing.T) {
	exempt, barred := mustParse(t, "203.0.113.1\nuser root"), mustParse(t, "203.0.113.2\nuser mallory")
	limiter := limit.New(nil, &limit.Options{Log: quiet, Exempt: exempt.Matches, Bar: barred.Bar,
		Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}})
	a := &adapter.Adapter[string]{
		Route:  func(string) (method, pattern string) { return "GET", "/" },
		Caller: limit.Caller[string]{User: func(user string) string { return " " + user }},
	}
	policy := must.Get(a.Bind(limiter, "/", limit.Rules(limit.PerIP(time.Minute, 100), limit.PerUser(time.Minute, 100))))(t)
	for _, test := range []struct {
		client, user string
		want         core.Mode
	}{
		{"203.0.113.1", "", core.ModeExempt},
		{"203.0.113.2", "", core.ModeBarred},
		{"203.0.113.3", "root", core.ModeExempt},
		{"203.0.113.3", "mallory", core.ModeBarred},
		{"203.0.113.3", "", core.ModeExact},
		{"10.0.0.5", "", core.ModeExact},
	} {
		d := must.Get(a.Decide(policy, from("10.0.0.5:80", "X-Forwarded-For", test.client), test.user, 0))(t)
		assert.Equal(t, test.want, d.Mode, test)
	}
	assert.True(t, exempt.Matches(limit.Client{Request: from("203.0.113.1:80")}), "without a limiter, the peer")
}

// TestExemptProxy checks that a list that exempts a trusted proxy is logged once, with the
// first decision of a limiter, and again if the file has changed.
func TestExemptProxy(t *testing.T) {
	trusted := limit.New(nil, &limit.Options{Log: quiet, Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}})
	others := limit.New(nil, nil)
	for text, warns := range map[string]bool{"10.0.0.0/8": true, "10.0.0.5": true, "192.0.2.0/24": false, "user alice": false} {
		var log logbook.Book
		l := must.Get(access.Parse(strings.NewReader(text), &access.Options{Log: log.Log()}))(t)
		for range 3 {
			for _, limiter := range []*limit.Limiter{others, trusted} {
				l.Bar(limit.Client{Request: from("192.0.2.1:80"), Limiter: limiter})
				l.Matches(limit.Client{Request: from("192.0.2.1:80"), Limiter: limiter})
			}
		}
		want := 0
		if warns {
			want = 1
		}
		assert.Equal(t, want, strings.Count(strings.Join(log.Lines(), "\n"), "code=LIMIT-117 proxy=10.0.0.5/32"), text)
	}
}

// prefixes returns a list of n random prefixes, and addresses within and outside them.
func prefixes(n int) (text string, addresses []netip.Addr) {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range n {
		ip := netip.AddrFrom4([4]byte{byte(1 + random.IntN(200)), byte(random.Int()), byte(random.Int()), byte(random.Int())})
		bits := 16 + random.IntN(17)
		if random.IntN(4) == 0 {
			ip = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(random.Int()), byte(random.Int()), byte(random.Int())})
			bits = 32 + random.IntN(33)
		}
		fmt.Fprintln(&b, netip.PrefixFrom(ip, bits).Masked())
		addresses = append(addresses, ip, netip.AddrFrom4([4]byte{byte(210 + random.IntN(40)), byte(random.Int())}))
	}
	return b.String(), addresses
}

// TestAllocations checks that a request that is compared with every kind of entry
// allocates nothing.
func TestAllocations(t *testing.T) {
	l := mustParse(t, everything)
	for _, r := range []*http.Request{
		from("10.0.0.1:80"),
		from("192.0.2.1:80", "X-User", "carol", "User-Agent", "Mozilla/5.0"),
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.Bar(client(r)) }))
	}
}

func BenchmarkBar(b *testing.B) {
	many, addresses := prefixes(100_000)
	var agents strings.Builder
	for i := range 100 {
		fmt.Fprintf(&agents, "agent BadBot%d\n", i)
	}
	bench := func(name, text string, requests []*http.Request) {
		l := mustParse(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Bar(client(requests[i%len(requests)]))
			}
		})
	}
	var requests []*http.Request
	for _, ip := range addresses[:1000] {
		requests = append(requests, from(netip.AddrPortFrom(ip, 80).String()))
	}
	browser := from("192.0.2.1:80", "User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0.0.0 Safari/537.36")
	bench("100000 prefixes", many, requests)
	bench("100 agents", agents.String(), []*http.Request{browser})
}

func BenchmarkParse(b *testing.B) {
	many, _ := prefixes(100_000)
	b.SetBytes(int64(len(many)))
	for b.Loop() {
		mustParse(b, many)
	}
}
