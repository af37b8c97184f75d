package limit

import (
	"net/http"
	"net/netip"

	"github.com/routelimit/limit/internal/clientip"
)

// Proxies says which forwarding headers [ByIP] trusts. The zero Proxies trusts
// none: the client is the peer of the connection.
//
// Each proxy appends the address of its own peer to the header. Clients can send
// any header, so only the entries at the right end, which your proxies append,
// can be trusted. The header is therefore read from the right, and only if the
// peer of the connection is a proxy: an address within Trusted or, if only Hops
// is set, any peer. Reading stops at an entry that is not an address. The client
// is then the last address before it, so a client cannot choose its own key.
type Proxies struct {
	// Trusted lists the addresses of the proxies. The client is the first
	// address from the right that is outside Trusted, or the leftmost address
	// if all are within it. A peer without an address (a unix socket) is never
	// within Trusted.
	Trusted []netip.Prefix

	// Hops is the number of proxies that a request passes, at most 64. The
	// client is the address that many entries from the right; the peer of the
	// connection wrote entry 1. A request with fewer entries bypassed a proxy,
	// and its client is the peer.
	//
	// Set Hops without Trusted only if clients cannot connect except through
	// the proxies. With both, reading stops at the first address outside
	// Trusted and after Hops entries, whichever comes first.
	Hops int

	// Header is the header that the proxies write: "X-Forwarded-For", which ""
	// means too, "Forwarded" (RFC 7239), or a header with a single address that
	// the peer overwrites, such as "X-Real-IP" or "CF-Connecting-IP". For such a
	// header, Hops only says that the peer is a proxy.
	Header string

	// IPv6Prefix is how many bits of an IPv6 address identify a client: 32 to
	// 128; 0 means 64. Networks usually assign a /64 or a shorter prefix to each
	// customer, and a customer can send from every address within it.
	IPv6Prefix int
}

// ClientIP is [Limiter.ClientIP] for functions in the [Options] of a limiter, which is
// made after them. [New] checks the Proxies that it gets.
func (p *Proxies) ClientIP(r *http.Request) netip.Addr {
	return (*clientip.Config)(p).Addr(r.RemoteAddr, r.Header)
}

// key returns the text that identifies the client of a request, or "" if the
// client has no address.
func (p *Proxies) key(r *http.Request) string {
	return (*clientip.Config)(p).Key(r.RemoteAddr, r.Header)
}

// trusts reports whether a peer is within Trusted.
func (p *Proxies) trusts(remoteAddr string) bool {
	return (*clientip.Config)(p).Trusts(remoteAddr)
}
