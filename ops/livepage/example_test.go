package livepage_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/redisstore"
)

var update = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func Example() {
	limiter := limit.New(nil, nil)
	mux := http.NewServeMux()
	mux.Handle("POST /update", limiter.Limit(limit.Rules(limit.PerIP(2*time.Second, 5)))(update))
	mux.Handle("/limits/", livepage.Handler(limiter, nil))

	server := httptest.NewServer(mux)
	defer server.Close()
	w, err := http.Get(server.URL + "/limits/") // without the token, which the program logs
	if err != nil {
		log.Fatal(err)
	}
	defer w.Body.Close()
	fmt.Println(w.Status)
	// Output:
	// 403 Forbidden
}

func onGin(page http.Handler) http.Handler {
	r := gin.New()
	r.Any("/limits/*any", gin.WrapH(page))
	return r
}

func onEcho(page http.Handler) http.Handler {
	e := echo.New()
	e.Any("/limits", echo.WrapHandler(page)) // which redirects to /limits/
	e.Any("/limits/*", echo.WrapHandler(page))
	return e
}

func onAdminPort(limiter *limit.Limiter) *http.Server {
	token := rand.Text()
	log.Print("live page: http://localhost:9090/limits/?token=" + token)
	admin := http.NewServeMux()
	admin.Handle("/limits/", livepage.Handler(limiter, &livepage.Options{Token: token}))
	return &http.Server{Addr: "127.0.0.1:9090", Handler: admin, ReadHeaderTimeout: 5 * time.Second}
}

func withPassword(limiter *limit.Limiter, password string) http.Handler {
	authorize := func(r *http.Request) (string, livepage.Role) {
		name, given, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 0 {
			return "", livepage.Nobody
		}
		return name, livepage.Operator
	}
	page := livepage.Handler(limiter, &livepage.Options{Authorize: authorize})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, role := authorize(r); role == livepage.Nobody {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
			http.Error(w, "a password is needed", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
}

func behindSSO(limiter *limit.Limiter) http.Handler {
	proxy := netip.MustParsePrefix("10.0.0.0/24") // only the proxy connects from here
	return livepage.Handler(limiter, &livepage.Options{Authorize: func(r *http.Request) (string, livepage.Role) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !proxy.Contains(peer.Addr().Unmap()) {
			return "", livepage.Nobody
		}
		who, groups := r.Header.Get("X-Auth-Request-Email"), strings.Split(r.Header.Get("X-Auth-Request-Groups"), ",")
		switch {
		case who == "":
			return "", livepage.Nobody
		case slices.Contains(groups, "on-call"):
			return who, livepage.Operator
		}
		return who, livepage.Viewer
	}})
}

func withRedis(ctx context.Context, client redis.UniversalClient, user func(*http.Request) string) http.Handler {
	documents := control.New(client, nil)
	bans := access.NewBans(ctx, documents, nil)
	more := overrides.New(ctx, documents, nil)
	limiter := limit.New(redisstore.New(client, nil), &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Bar: bans.Bar, Override: more.Limit})
	return livepage.Handler(limiter, &livepage.Options{Bans: bans, Overrides: more})
}

// TestPrograms runs the programs of docs/live-page.md.
func TestPrograms(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	status := func(h http.Handler, path string, change func(*http.Request)) int {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	limiter := limit.New(nil, nil)
	page := livepage.Handler(limiter, &livepage.Options{Token: token})
	var logged bytes.Buffer
	log.SetOutput(&logged)
	admin := onAdminPort(limiter).Handler
	log.SetOutput(os.Stderr)
	_, of, _ := strings.Cut(strings.TrimSpace(logged.String()), "live page: http://localhost:9090/limits/?token=")
	for h, token := range map[http.Handler]string{onGin(page): token, onEcho(page): token, admin: of} {
		cookie := signIn(t, h, "/limits/", token)
		signedIn := func(r *http.Request) { r.AddCookie(cookie) }
		assert.Equal(t, 403, status(h, "/limits/", nil))
		assert.Equal(t, 200, status(h, "/limits/", signedIn))
		assert.Equal(t, 200, status(h, "/limits/app.js", signedIn))
		assert.Equal(t, 400, status(h, "/limits/peek", signedIn))
		assert.Contains(t, []int{301, 307}, status(h, "/limits", signedIn))
		assert.Contains(t, []int{301, 307}, status(h, "/limits?token="+token, nil))
		server := httptest.NewServer(h)
		r, err := http.NewRequest("POST", server.URL+"/limits/reset", strings.NewReader(`{"policy":"p","rule":"r"}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.AddCookie(cookie)
		w, err := http.DefaultClient.Do(r)
		if assert.NoError(t, err) {
			text, _ := io.ReadAll(w.Body)
			w.Body.Close()
			assert.Contains(t, string(text), "no policy")
		}
		server.Close()
	}

	secured := withPassword(limiter, "right")
	assert.Equal(t, 401, status(secured, "/limits/", nil))
	assert.Equal(t, 401, status(secured, "/limits/", func(r *http.Request) { r.SetBasicAuth("ann", "wrong") }))
	assert.Equal(t, 200, status(secured, "/limits/", func(r *http.Request) { r.SetBasicAuth("ann", "right") }))

	sso := behindSSO(limiter)
	assert.Equal(t, 403, status(sso, "/limits/", func(r *http.Request) { r.Header.Set("X-Auth-Request-Email", "ann@example.com") }))
	assert.Equal(t, 403, status(sso, "/limits/", func(r *http.Request) { r.RemoteAddr = "10.0.0.7:1" }))
	assert.Equal(t, 200, status(sso, "/limits/", func(r *http.Request) {
		r.RemoteAddr = "10.0.0.7:1"
		r.Header.Set("X-Auth-Request-Email", "ann@example.com")
	}))
	if redistest.Installed(t) {
		client := redistest.Launch(t).Client()
		defer client.Close()
		assert.Equal(t, 403, status(withRedis(t.Context(), client, func(*http.Request) string { return "" }), "/", nil))
	}
}
