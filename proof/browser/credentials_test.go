package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/livepage"
)

// The page works if it is opened at an address with a name and a password.
func TestCredentialsInURL(t *testing.T) {
	s := serve(t, redistest.Client(t), &livepage.Options{Authorize: func(r *http.Request) (string, livepage.Role) {
		name, _, _ := r.BasicAuth()
		return name, livepage.Operator
	}})
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "ann" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
			http.Error(w, "a password is needed", http.StatusUnauthorized)
			return
		}
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	t.Cleanup(guarded.CloseClientConnections)
	s.send(6, "POST", "/login", client, "")
	b := open(t, strings.Replace(guarded.URL, "://", "://ann:s3cret@", 1)+"/limits/", look{})
	b.awaitText(long, "#who", "ann (operator)")
	b.awaitText(soon, "#keys", client)
	require.NotContains(t, eval[string](b, `location.href`), "s3cret")

	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.clickText("#peek", "Reset…")
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#inspector-status", "Reset 203.0.113.9 of per-ip-1m.")
	b.awaitText(soon, "#peek", "5 of 5 left.")
	b.clickText("#peek", "Override…")
	b.clickText("#confirm", "Override the limit")
	b.awaitText(soon, "#inspector-status", "The limit of 203.0.113.9")
	b.clickText("#peek", "Ban…")
	b.clickText("#confirm", "Ban the client")
	b.awaitText(soon, "#inspector-status", "203.0.113.9 for 1h.")
	b.noErrors()
}

// A fault of the page is not reported as one of the server, and a server that does not
// answer is.
func TestFaults(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	b := open(t, s.page(), look{})
	b.awaitText(long, "#keys", client)
	b.clickText("#keys", client)
	b.awaitText(soon, "#peek", "0 of 5 left.")
	b.clickText("#peek", "Reset…")
	eval[bool](b, `window.send = Request, window.Request = class { constructor() { throw new TypeError('a fault of the page'); } }, true`)
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#confirm-status", "Failed: a fault of the page")
	eval[bool](b, `window.Request = send, true`)
	s.stop()
	b.clickText("#confirm", "Reset the quota")
	b.awaitText(soon, "#confirm-status", "The server does not answer.")
}
