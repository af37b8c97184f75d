package livepage

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// minToken is the length of 128 bits in base 64.
const minToken = 22

const needsToken = `This page needs its token. The program logged an address that ends with ?token=… when it started: open that address.
To let people sign in instead, set livepage.Options.Authorize.
`

// newToken returns the token of the options, or makes one and logs it.
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

// cookieName returns the name of the cookie for a token. Cookies of one host are shared by
// all its ports, so the pages of two programs need two names.
func cookieName(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "livepage-" + hex.EncodeToString(sum[:4])
}

func (p *page) isToken(s string) bool {
	return subtle.ConstantTimeCompare([]byte(s), []byte(p.token)) == 1
}

// session returns the name of the browser that a request comes from, if it has signed in:
// its cookie has the token, a dot and the name.
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
