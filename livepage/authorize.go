package livepage

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A viewer is the person who sends a request.
type viewer struct {
	who  string
	role Role
}

const refusedHere = `This page is served to the machine that it runs on, as http://localhost:PORT or by an
SSH tunnel to it. A request through a proxy counts as one from elsewhere.
To serve it to others, set livepage.Options.Authorize.
`

// forwarded lists headers that proxies add. A proxy on this machine makes all of its
// clients look local, so a request with one of them is not.
var forwarded = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "True-Client-Ip",
	"Cf-Connecting-Ip", "Fly-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Envoy-External-Address", "X-Original-Forwarded-For"}

// authorize returns who sends a request, or answers it with 403.
func (p *page) authorize(w http.ResponseWriter, r *http.Request) (v viewer, ok bool) {
	if p.options.Authorize != nil {
		if v.who, v.role = p.options.Authorize(r); v.role < Viewer {
			http.Error(w, "You may not see this page: livepage.Options.Authorize returns no role for this request.", http.StatusForbidden)
			return v, false
		}
		v.role = min(v.role, Operator)
		return v, true
	}
	if !local(r) {
		http.Error(w, refusedHere, http.StatusForbidden)
		return v, false
	}
	return viewer{"local", Operator}, true
}

// local reports whether a request comes straight from this machine. The host is part of
// that: a page of another site can have its own name resolve to a loopback address (DNS
// rebinding), but cannot change what the browser sends as Host.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !localHost(r.Host) {
		return false
	}
	if !r.ProtoAtLeast(1, 1) { // nginx, which adds no header and sets Host to its target unless it is told otherwise
		return false
	}
	for _, name := range forwarded {
		if _, has := r.Header[name]; has {
			return false
		}
	}
	return true
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
