package livepage

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/clientip"
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
			v.id = "address " + clientip.Key(limit.Client{Request: r, Limiter: p.limiter}.IP().String(), clientip.DefaultIPv6Prefix)
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

// local reports whether a request comes from this machine. The host is part of that: a page of
// another site can have its name resolve to a loopback address (DNS rebinding), but not change the
// Host that the browser sends. A proxy on this machine makes all its clients local, so that is no
// authorization.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && localHost(r.Host)
}

// localHost reports whether a host, with or without a port, is a name of this machine that no name
// server can give to another.
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

// sameOrigin returns an error if a page of another origin sends a request for data.
// http.CrossOriginProtection checks only methods that change something, so the request is checked
// as one of them.
func sameOrigin(r *http.Request) error {
	checked := r.WithContext(r.Context())
	checked.Method = http.MethodPost
	if err := protection.Check(checked); err != nil {
		return problemf(http.StatusForbidden, "the request comes from a page of another origin (%s): use the page itself; "+
			"a proxy before it must pass the Host header on", excerpt(r.Header.Get("Origin"), 100))
	}
	return nil
}

// minToken is the length of 128 bits in base 64.
const minToken = 22

const needsToken = `This page needs its token. The program logged an address that ends with ?token=… when it started: open that address.
To let people sign in instead, set livepage.Options.Authorize.
`

func newToken(o *Options) string {
	switch token := o.Token; {
	case o.Authorize != nil && token != "":
		panic("livepage: both Authorize and Token are set: leave Token out, since Authorize decides")
	case o.Authorize != nil:
		return ""
	case token != "":
		if len(token) < minToken || strings.Trim(token, unreserved) != "" {
			panic(fmt.Sprintf("livepage: a token of %d characters: write at least %d letters, digits, - and _, such as those of crypto/rand.Text()",
				len(token), minToken))
		}
		return token
	}
	token := rand.Text()
	cmp.Or(o.Log, slog.Default()).Info("livepage: to open the page, use this address with the port and the path of the page",
		"page", o.Name, "url", "http://localhost:PORT/PATH/?token="+token)
	return token
}

// unreserved are characters that mean themselves in an address and in a cookie.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// cookieName differs by token: all ports of a host share its cookies, and two programs on it may
// have a page each.
func cookieName(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "livepage-" + hex.EncodeToString(sum[:4])
}

func (p *page) isToken(s string) bool {
	return subtle.ConstantTimeCompare([]byte(s), []byte(p.token)) == 1
}

// session returns the name of the browser of a request, if it has signed in: its cookie has the
// token, a dot and the name.
func (p *page) session(r *http.Request) (name string, ok bool) {
	for _, c := range r.CookiesNamed(cookieName(p.token)) {
		if token, name, _ := strings.Cut(c.Value, "."); p.isToken(token) {
			return name, true
		}
	}
	return "", false
}

// signIn moves the token of an address into a cookie, and leads to the address without it.
func (p *page) signIn(w http.ResponseWriter, r *http.Request, signedIn bool) {
	if !strings.HasSuffix(r.URL.Path, "/") {
		slash(w, r)
		return
	}
	if !signedIn {
		// Without a Path, the browser takes the one that it sees: a proxy may cut a part off.
		http.SetCookie(w, &http.Cookie{Name: cookieName(p.token), Value: p.token + "." + rand.Text(),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" { // a redirect would not send the cookie
		w.Header().Set("Refresh", "0; url=./")
		return
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
