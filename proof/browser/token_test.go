package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/livepage"
)

// The address with the token opens the page, typed or as a link of another site. The token
// then is neither in the address nor in reach of scripts, and the page works after a reload.
func TestToken(t *testing.T) {
	s := serve(t, nil, nil)
	s.send(6, "POST", "/login", client, "")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<button onclick="location = '%s'">limits</button>`, s.page())
	}))
	t.Cleanup(site.Close)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
			http.Error(w, "a password is needed", http.StatusUnauthorized)
			return
		}
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	t.Cleanup(guarded.CloseClientConnections)
	for name, url := range map[string]string{
		"typed":                     s.page(),
		"a link of another site":    strings.Replace(site.URL, "127.0.0.1", "localhost", 1),
		"a password in the address": strings.Replace(guarded.URL, "://", "://ann:s3cret@", 1) + "/limits/?token=" + s.token,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, url, look{})
			if strings.Contains(name, "link") {
				b.clickText("body", "limits")
				b.do(chromedp.WaitVisible(chromedp.CSS("#main")))
			}
			b.awaitText(long, "#who", "local (operator)")
			require.NotContains(t, eval[string](b, `location.href + document.cookie + document.referrer`), s.token)
			b.do(chromedp.Reload())
			b.awaitText(long, "#keys", client)
			b.clickText("#keys", client)
			b.awaitText(soon, "#peek", " left.")
			b.clickText("#peek", "Reset…")
			b.clickText("#confirm", "Reset the quota")
			b.awaitText(soon, "#inspector-status", "Reset 203.0.113.9 of per-ip-1m.")
			b.noErrors()
		})
	}
	t.Run("none", func(t *testing.T) {
		b := open(t, s.URL+"/limits/", look{})
		b.awaitText(soon, "body", "This page needs its token.")
	})
}

// A page whose place newer ones of the same person took says so, and connects again when
// the person comes back to it.
func TestReplaced(t *testing.T) {
	s := serve(t, nil, &livepage.Options{Authorize: func(*http.Request) (string, livepage.Role) { return "ann", livepage.Viewer }})
	b := open(t, s.page(), look{})
	b.awaitText(long, "#connection", "Live")
	for range 8 {
		w := must.Get(http.Get(s.URL + "/limits/events"))(t)
		t.Cleanup(func() { w.Body.Close() })
	}
	b.awaitText(soon, "#banner", "Newer pages of yours took its place.")
	b.do(chromedp.Evaluate[chromedp.Void](`document.dispatchEvent(new Event('visibilitychange'))`))
	b.awaitText(soon, "#connection", "Live")
	b.noErrors()
}
