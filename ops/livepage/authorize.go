package livepage

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/routelimit/limit"
)

// A viewer is the person who sends a request.
type viewer struct {
	who  string
	role Role
	id   string // its streams count together: see viewers
}

const refusedHere = `This page is served to the machine that it runs on, as http://localhost:PORT or by an
SSH tunnel to it. To serve it to others, set livepage.Options.Authorize.
`

// authorize returns who sends a request, or answers it.
func (p *page) authorize(w http.ResponseWriter, r *http.Request) (v viewer, ok bool) {
	if p.options.Authorize != nil {
		if v.who, v.role = p.options.Authorize(r); v.role < Viewer {
			http.Error(w, "You may not see this page: livepage.Options.Authorize returns no role for this request.", http.StatusForbidden)
			return v, false
		}
		v.role = min(v.role, Operator)
		if v.id = "who " + v.who; v.who == "" {
			v.id = "address " + network(limit.Client{Request: r, Limiter: p.limiter}.IP())
		}
		return v, true
	}
	if !local(r) {
		http.Error(w, refusedHere, http.StatusForbidden)
		return v, false
	}
	session, signedIn := p.session(r)
	given := r.URL.Query()["token"]
	switch {
	case r.Method == http.MethodGet && len(given) == 1 && (signedIn || p.isToken(given[0])):
		p.signIn(w, r, signedIn)
		return v, false
	case !signedIn:
		http.Error(w, needsToken, http.StatusForbidden)
		return v, false
	}
	return viewer{"local", Operator, session}, true
}

// local reports whether a request comes from this machine. The host is part of that: a
// page of another site can have its own name resolve to a loopback address (DNS rebinding),
// but cannot change what the browser sends as Host. A proxy on this machine makes all its
// clients local, so that is no authorization.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && localHost(r.Host)
}

// localHost reports whether a host, with or without a port, is a name of this machine
// that no name server can give to another one.
func localHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

var protection http.CrossOriginProtection

// sameOrigin answers with 403 if a page of another origin sends a request for data, and
// then returns false. http.CrossOriginProtection checks only methods that change
// something, so the request is checked as if it were one.
func sameOrigin(w http.ResponseWriter, r *http.Request) bool {
	checked := r.WithContext(r.Context())
	checked.Method = http.MethodPost
	if err := protection.Check(checked); err != nil {
		fail(w, http.StatusForbidden, "the request comes from a page of another origin (%s): use the page itself; "+
			"a proxy before it must pass the Host header on", excerpt(r.Header.Get("Origin"), 100))
		return false
	}
	return true
}

// network returns the part of an address that one client has: its /64 if it is IPv6.
func network(ip netip.Addr) string {
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}
