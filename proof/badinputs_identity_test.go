package proof

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/must"
)

const xff, realIP, forwarded = "X-Forwarded-For", "X-Real-Ip", "Forwarded"

// A request has what identifies a client: its peer and its headers.
type request struct {
	peer    string
	headers []string
}

func fromPeer(headers ...string) request { return request{"203.0.113.9:4711", headers} }
func viaProxy(headers ...string) request { return request{"10.0.0.1:80", headers} }

// numbered returns n requests.
func numbered(n int, one func(i int) request) (all []request) {
	for i := range n {
		all = append(all, one(i))
	}
	return all
}

// each returns a request for each value of a header.
func each(to func(...string) request, header string, values ...string) []request {
	return numbered(len(values), func(i int) request { return to(header, values[i]) })
}

var (
	nobody   = limit.Proxies{}
	trusting = limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	oneHop   = limit.Proxies{Hops: 1}
	elements = limit.Proxies{Trusted: trusting.Trusted, Header: "Forwarded"}
	overXRIP = limit.Proxies{Trusted: trusting.Trusted, Header: "X-Real-IP"}
)

// addresses asserts how many clients the requests count as, by a rule that admits one
// request of each client.
func (r *row) addresses(want int, proxies limit.Proxies, requests ...request) {
	r.Helper()
	r.clients(want, &limit.Options{Proxies: proxies}, limit.ByIP, requests...)
}

// keys asserts the same for another key.
func (r *row) keys(want int, key limit.KeyResolver, requests ...request) {
	r.Helper()
	r.clients(want, nil, key, requests...)
}

func (r *row) clients(want int, options *limit.Options, key limit.KeyResolver, requests ...request) {
	r.Helper()
	s := behind(limit.Per(key, time.Hour, 1))
	s.options = options
	r.runs(want, s, func(h http.Handler) {
		for _, q := range requests {
			answer := do(h, q.peer, "/login", q.headers...)
			assert.Contains(r, []int{http.StatusOK, http.StatusTooManyRequests}, answer.Code)
			r.printable(answer.Header())
		}
	})
}

var apiKey = limit.ByHeader("X-API-Key")

// badIdentities are attempts of a client to pass as another one, or as many.
var badIdentities = []badInput{
	{23, "a forged address without a proxy", func(r *row) {
		r.addresses(1, nobody, fromPeer(), fromPeer(xff, "1.1.1.1"), fromPeer(realIP, "1.1.1.1"), fromPeer(forwarded, "for=1.1.1.1"),
			fromPeer("Client-Ip", "1.1.1.1"), fromPeer("True-Client-Ip", "1.1.1.1"), fromPeer("Cf-Connecting-Ip", "1.1.1.1"),
			fromPeer("X-Client-Ip", "1.1.1.1"), fromPeer("X-Cluster-Client-Ip", "1.1.1.1"), fromPeer("Fastly-Client-Ip", "1.1.1.1"),
			fromPeer("X-Original-Forwarded-For", "1.1.1.1"), fromPeer("Via", "1.1.1.1"), fromPeer("x-forwarded-for", "1.1.1.1"),
			fromPeer("X_Forwarded_For", "1.1.1.1"), fromPeer(xff, strings.Repeat("g", 8000)))
		r.addresses(1, nobody, numbered(5000, func(i int) request {
			address := fmt.Sprintf("1.2.%d.%d", i/250, i%250)
			return fromPeer(xff, address, realIP, address, forwarded, "for="+address)
		})...)
		r.addresses(1, trusting, numbered(50, func(i int) request { return fromPeer(xff, fmt.Sprintf("1.1.1.%d, 10.0.0.7", i)) })...)
	}},
	{24, "a forged address in a header line of its own", func(r *row) {
		for _, proxies := range []limit.Proxies{trusting, oneHop} {
			r.addresses(1, proxies, numbered(50, func(i int) request { return viaProxy(xff, fmt.Sprintf("1.1.1.%d", i), xff, "198.51.100.7") })...)
			r.addresses(1, proxies, numbered(50, func(i int) request { return viaProxy(xff, fmt.Sprintf("1.1.1.%d, 198.51.100.7", i)) })...)
		}
		r.addresses(1, trusting, numbered(50, func(i int) request {
			return viaProxy(xff, fmt.Sprintf("1.1.1.%d, 10.0.0.7, 198.51.100.7, 10.0.0.2", i))
		})...)
		r.addresses(2, trusting, viaProxy(xff, "198.51.100.7"), viaProxy(xff, "198.51.100.8"))
	}},
	{25, "10,000 addresses, and a megabyte of them", func(r *row) {
		r.addresses(1, trusting, numbered(5, func(i int) request {
			return viaProxy(xff, strings.Repeat(fmt.Sprintf("1.1.1.%d, ", i), 10_000)+"198.51.100.7")
		})...)
		r.addresses(1, trusting, numbered(5, func(i int) request { // addresses before the last 64 are not read
			return viaProxy(xff, fmt.Sprintf("1.1.1.%d", i)+strings.Repeat(", 10.0.0.2", 10_000))
		})...)
		policy := bind(limit.New(nil, &limit.Options{Proxies: trusting}), limit.Rules(limit.PerIP(time.Hour, 100)))
		q := httptest.NewRequest("POST", "/login", nil)
		q.RemoteAddr = "10.0.0.1:80"
		q.Header[xff] = []string{strings.Repeat("10.0.0.2,", 1<<20/9)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			must.Get(login.Decide(policy, q, nil, 0))(r)
		}
		runtime.ReadMemStats(&after)
		assert.Less(r, after.TotalAlloc-before.TotalAlloc, uint64(1<<18), "10 MB have been read")
	}},
	{26, "ports", func(r *row) {
		r.addresses(1, trusting, each(viaProxy, xff, "198.51.100.7", "198.51.100.7:80", " 198.51.100.7 ", "198.51.100.7:65535")...)
		r.addresses(1, trusting, each(viaProxy, xff, "::1", "[::1]", "[::1]:80")...)
	}},
	{27, "words that are no address", func(r *row) {
		r.addresses(1, trusting, append(each(viaProxy, xff, "unknown", "_hidden", "", ",", ", ,", "for=1.1.1.1", "localhost"), viaProxy())...)
	}},
	{28, "control bytes around an address", func(r *row) {
		// Blanks are not part of an address. Anything else makes it invalid.
		r.addresses(1, trusting, append(each(viaProxy, xff, "\t", "\x00", "1.2.3.4\x00", "1.1.1.1\r\nX: y", "1.1.1.1\n", "1.1.1.1 1.1.1.2",
			"\xff\xfe", "１.１.１.１", "[::1", "::1]", strings.Repeat("1", 1<<20)), viaProxy())...)
		r.addresses(1, trusting, each(viaProxy, xff, "198.51.100.7", "\t198.51.100.7\t")...)
	}},
	{29, "numbers that are no address", func(r *row) {
		r.addresses(1, trusting, append(each(viaProxy, xff, "01.2.3.4", "0x7f.1", "1.2.3", "2130706433", "1.2.3.4.5", "256.1.1.1", "1.2.3.-4"), viaProxy())...)
	}},
	{30, "spellings of an IPv4 address", func(r *row) {
		r.addresses(1, trusting, each(viaProxy, xff, "198.51.100.7", "::ffff:198.51.100.7", "::ffff:c633:6407", "[::ffff:198.51.100.7]:1",
			"0:0:0:0:0:ffff:198.51.100.7", "::FFFF:C633:6407")...)
	}},
	{31, "spellings of an IPv6 address", func(r *row) {
		r.addresses(1, limit.Proxies{Trusted: trusting.Trusted, IPv6Prefix: 128}, each(viaProxy, xff, "2001:db8::1", "2001:DB8::1",
			"2001:0db8:0000:0000:0000:0000:0000:0001", "[2001:db8::1]", "[2001:db8::1]:443", "2001:db8::0:1", "2001:db8::0.0.0.1")...)
	}},
	{32, "zones", func(r *row) {
		r.addresses(1, limit.Proxies{Trusted: trusting.Trusted, IPv6Prefix: 128}, each(viaProxy, xff, "2001:db8::1", "2001:db8::1%eth0",
			"2001:db8::1%a%b", "[2001:db8::1%1]:80", "2001:db8::1%"+strings.Repeat("z", 100))...)
		r.addresses(1, nobody, request{"[fe80::1%eth0]:1", nil}, request{"[fe80::1%eth1]:2", nil})
	}},
	{33, "65,536 addresses of a network", func(r *row) {
		r.addresses(1, trusting, numbered(256, func(i int) request { return viaProxy(xff, fmt.Sprintf("2001:db8:1234:5678::%x", i*256)) })...)
		policy := bind(limit.New(nil, nil), limit.Rules(limit.PerIP(time.Hour, 1)))
		q, admitted := httptest.NewRequest("POST", "/login", nil), 0
		for i := range 65_536 {
			q.RemoteAddr = fmt.Sprintf("[2001:db8:1234:5678::%x]:443", i)
			d := must.Get(login.Decide(policy, q, nil, 0))(r)
			if d.Allowed {
				admitted++
			}
		}
		r.ran(admitted, 1)
	}},
	{34, "networks that rotate", func(r *row) {
		rotating := numbered(500, func(i int) request { return viaProxy(xff, fmt.Sprintf("2001:db8:7:%x::1", i)) })
		r.addresses(1, limit.Proxies{Trusted: trusting.Trusted, IPv6Prefix: 48}, rotating...)
		// By default each /64 is a client. A Global rule bounds all of them together, as
		// SECURITY.md says.
		r.addresses(500, trusting, rotating...)
		s := behind(limit.PerIP(time.Hour, 1), limit.Global(time.Hour, 20))
		s.options = &limit.Options{Proxies: trusting}
		r.runs(20, s, func(h http.Handler) {
			for _, q := range rotating {
				do(h, q.peer, "/login", q.headers...)
			}
		})
	}},
	{35, "translated addresses", func(r *row) {
		r.addresses(1, trusting, each(viaProxy, xff, "198.51.100.7", "64:ff9b::198.51.100.7", "64:ff9b::c633:6407")...)
		r.addresses(2, trusting, each(viaProxy, xff, "64:ff9b::198.51.100.7", "64:ff9b::198.51.100.8")...)
	}},
	{36, "an IPv6 address that ends like an IPv4 one", func(r *row) {
		r.addresses(2, trusting, each(viaProxy, xff, "2001:db8:1234:5678::1.2.3.4", "1.2.3.4", "2001:db8:1234:5678::1")...)
	}},
	{37, "a peer without an address", func(r *row) {
		r.addresses(1, nobody, request{"", nil}, request{"@", nil}, request{"pipe", nil}, request{"@", []string{xff, "1.1.1.1"}})
		r.addresses(1, trusting, request{"", nil}, request{"@", []string{xff, "1.1.1.1"}}, request{"@", []string{xff, "1.1.1.2"}})
	}},
	{38, "X-Real-IP of a private network", func(r *row) {
		r.addresses(1, nobody, append(each(fromPeer, realIP, "10.1.2.3", "127.0.0.1", "::1"), fromPeer())...)
		r.addresses(1, overXRIP, append(each(fromPeer, realIP, "10.1.2.3", "127.0.0.1", "::1"), fromPeer())...)
		r.addresses(2, overXRIP, each(viaProxy, realIP, "198.51.100.7", "198.51.100.8", "198.51.100.7")...)
	}},
	{39, "a header that is to be dropped on the way", func(r *row) {
		r.addresses(1, nobody, fromPeer(), fromPeer("Connection", "X-Forwarded-For", xff, "1.1.1.1"))
		r.addresses(1, trusting, viaProxy(xff, "198.51.100.7"), viaProxy("Connection", "X-Forwarded-For", xff, "198.51.100.7"))
	}},
	{40, "Forwarded with quotes", func(r *row) {
		r.addresses(1, elements, each(viaProxy, forwarded, `for="[2001:db8::1]:80";by=10.0.0.1`, `By="a,b;for=1.1.1.1";For="[2001:db8::1]"`,
			`for=1.1.1.1, for="[2001:db8::1]"`, `for="1.1.1.1, for=1.1.1.2", for="[2001:db8::1]"`, `for="1.1.1.1, for="[2001:db8::1]"`)...)
		r.addresses(1, elements, viaProxy(forwarded, `for=1.1.1.1`, forwarded, `for="[2001:db8::2]"`), viaProxy(forwarded, `for="[2001:db8::1]"`))
		r.addresses(1, elements, append(each(viaProxy, forwarded, `for="1.1.1.1`, `for=1.1.1.1"`, `for=1.1.1.1;for=1.1.1.2`, `by=1.1.1.1`), viaProxy())...)
	}},
	{41, "an API key of a megabyte, and 10,000 of them", func(r *row) {
		long := strings.Repeat("k", 1<<20)
		r.keys(1, apiKey, each(fromPeer, "X-Api-Key", long, long)...)
		r.keys(2, apiKey, each(fromPeer, "X-Api-Key", long+"1", long+"2", long+"1")...)
		many := []string{"X-Api-Key", "k"}
		for i := range 10_000 {
			many = append(many, "X-Api-Key", fmt.Sprint(i))
		}
		r.keys(1, apiKey, fromPeer("X-Api-Key", "k"), fromPeer(many...))
		limiter := limit.New(nil, nil)
		h := frameworks["http"](limiter, "POST /login", func(http.ResponseWriter, *http.Request) {}, limit.Rules(limit.Per(apiKey, time.Hour, 1)))
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range 50 {
			r.send(h, 1, 0, "X-Api-Key", long+fmt.Sprint(i))
		}
		assert.Less(r, heap()-before, int64(10<<20), "50 MB of keys are not kept")
		runtime.KeepAlive(limiter)
	}},
	{42, "no API key, of any kind", func(r *row) {
		r.keys(1, apiKey, append(each(fromPeer, "X-Api-Key", "", " ", "\t "), fromPeer())...)
		r.keys(2, apiKey, append(each(fromPeer, "X-Api-Key", "", "k"), fromPeer())...)
	}},
	{43, "names of headers in any case", func(r *row) {
		for _, name := range []string{"X-API-Key", "x-api-key", "X-Api-KEY"} {
			s := behind(limit.Per(limit.ByHeader(name), time.Hour, 1))
			r.runs(1, s, func(h http.Handler) {
				server := r.listen(h)
				for _, sent := range []string{"x-api-key", "X-API-KEY", "X-Api-Key", "x-aPI-kEY"} {
					r.raw(server.Listener.Addr().String(), "POST /login HTTP/1.1\r\nHost: a\r\n"+sent+": k\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				}
			})
		}
	}},
	{44, "keys that are no text", func(r *row) {
		// Bytes are compared as they are. Row 65 covers what displays them.
		r.keys(9, apiKey, each(fromPeer, "X-Api-Key", "\xff", "\xc0\x80", "\x00", "\u202e", "{}", "}", "a\r\nb", "\x1b[2J", "\xc0\x80x")...)
		r.keys(1, apiKey, each(fromPeer, "X-Api-Key", "\xff\xfe", "\xff\xfe", "\xff\xfe")...)
	}},
	{45, "spellings of an e-mail address", func(r *row) {
		// Keys are not folded. A program that needs that writes a resolver with By.
		// Otherwise each spelling is a key, and a Global rule bounds them.
		spellings := each(fromPeer, "E-Mail", "a@example.com", " A@Example.COM", "a@EXAMPLE.com ", "A@example.com")
		r.keys(1, limit.By("email", func(q *http.Request) string { return strings.ToLower(q.Header.Get("E-Mail")) }), spellings...)
		r.keys(4, limit.ByHeader("E-Mail"), spellings...)
		r.runs(2, behind(limit.Per(limit.ByHeader("E-Mail"), time.Hour, 1), limit.PerIP(time.Hour, 2)), func(h http.Handler) {
			for _, q := range spellings {
				do(h, q.peer, "/login", q.headers...)
			}
		})
	}},
}

// login is an adapter of a framework that has one route.
var login = &adapter.Adapter[any]{Route: func(any) (method, pattern string) { return "", "/login" }}
