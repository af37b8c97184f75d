package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

var (
	secret  = bytes.Repeat([]byte("s"), 32)
	options = &limit.Options{Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}}
)

// An app is a service as its clients see it.
type app struct {
	*service
	http.Handler
	t *testing.T
}

func newApp(t *testing.T, limiter *limit.Limiter) app {
	s := &service{secret, func(name, password string) bool {
		return (name == "alice" || name == "bob") && password == "right"
	}}
	return app{s, s.routes(limiter), t}
}

// inTime runs a test whose clock moves when it sleeps.
func inTime(t *testing.T, test func(app)) {
	synctest.Test(t, func(t *testing.T) { test(newApp(t, limit.New(nil, options))) })
}

// send sends a request of a client through the proxy.
func (a app) send(client string, r *http.Request) *httptest.ResponseRecorder {
	r.RemoteAddr = "10.0.0.5:1234"
	r.Header.Add("X-Forwarded-For", client)
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func (a app) login(client, name, password string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	body, err := json.Marshal(credentials{name, password})
	require.NoError(a.t, err)
	r := httptest.NewRequest("POST", "/login", bytes.NewReader(body))
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return a.send(client, r)
}

func (a app) me(client, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/me", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return a.send(client, r)
}

// guess makes 20 failed attempts for a name, from four addresses that start with
// prefix.
func (a app) guess(prefix, name string, cookies ...*http.Cookie) {
	for i := range 20 {
		w := a.login(fmt.Sprint(prefix, i/5), name, "wrong", cookies...)
		require.Equal(a.t, http.StatusUnauthorized, w.Code, "attempt %d", i+1)
	}
}

func TestFailedLoginsOfAnAddress(t *testing.T) {
	inTime(t, func(a app) {
		for i := range 5 {
			assert.Equal(t, http.StatusUnauthorized, a.login("192.0.2.1", fmt.Sprint("user", i), "wrong").Code)
			assert.Equal(t, http.StatusOK, a.login("192.0.2.2", "alice", "right").Code, "success is not charged")
		}
		w := a.login("192.0.2.1", "alice", "right")
		assert.Equal(t, http.StatusTooManyRequests, w.Code, "the password is not checked")
		assert.Equal(t, "900", w.Header().Get("Retry-After"))
		assert.Equal(t, http.StatusOK, a.login("192.0.2.3", "alice", "right").Code)

		time.Sleep(15 * time.Minute)
		assert.Equal(t, http.StatusOK, a.login("192.0.2.1", "alice", "right").Code)
	})
}

func TestSuccessIsNotCharged(t *testing.T) {
	inTime(t, func(a app) {
		for range 50 {
			require.Equal(t, http.StatusOK, a.login("192.0.2.1", "alice", "right").Code)
		}
	})
}

func TestFailedLoginsOfAName(t *testing.T) {
	inTime(t, func(a app) {
		a.guess("192.0.2.1", "alice")
		for _, name := range []string{"alice", "ALICE", " alice "} {
			assert.Equal(t, http.StatusTooManyRequests, a.login("198.51.100.1", name, "right").Code, "%q", name)
		}
		assert.Equal(t, http.StatusOK, a.login("198.51.100.1", "bob", "right").Code)

		time.Sleep(time.Hour)
		assert.Equal(t, http.StatusOK, a.login("198.51.100.1", "alice", "right").Code)
	})
}

// TestLockout checks that an attacker cannot lock a user out of a browser that
// has logged in before.
func TestLockout(t *testing.T) {
	inTime(t, func(a app) {
		browser := a.login("198.51.100.1", "alice", "right").Result().Cookies()
		require.Len(t, browser, 1)
		assert.True(t, browser[0].Secure && browser[0].HttpOnly)

		a.guess("192.0.2.1", "alice")
		assert.Equal(t, http.StatusTooManyRequests, a.login("198.51.100.1", "alice", "right").Code)
		assert.Equal(t, http.StatusOK, a.login("198.51.100.1", "alice", "right", browser...).Code)

		a.guess("203.0.113.1", "alice", browser...)
		assert.Equal(t, http.StatusTooManyRequests, a.login("198.51.100.1", "alice", "right", browser...).Code,
			"a stolen cookie is limited too")
	})
}

// TestForeignCookies checks that only a device cookie of the same user leaves the
// quota of strangers.
func TestForeignCookies(t *testing.T) {
	inTime(t, func(a app) {
		a.guess("192.0.2.1", "alice")
		for name, value := range map[string]string{
			"another user":  a.token("bob", "device", time.Hour),
			"an API token":  a.token("alice", "api", time.Hour),
			"expired":       a.token("alice", "device", -time.Second),
			"another key":   (&service{secret: bytes.Repeat([]byte("x"), 32)}).token("alice", "device", time.Hour),
			"no token":      "alice",
			"empty":         "",
			"no expiration": sign(t, jwt.SigningMethodHS256, secret, jwt.RegisteredClaims{Subject: "alice", Audience: jwt.ClaimStrings{"device"}}),
		} {
			w := a.login("198.51.100.1", "alice", "right", &http.Cookie{Name: "device", Value: value})
			assert.Equal(t, http.StatusTooManyRequests, w.Code, name)
		}
	})
}

func TestUser(t *testing.T) {
	inTime(t, func(a app) {
		var reply struct{ Token string }
		w := a.login("192.0.2.1", "Alice", "right")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
		for i := range 20 {
			w := a.me(fmt.Sprint("192.0.2.", i), reply.Token)
			require.Equal(t, http.StatusOK, w.Code)
			require.JSONEq(t, `{"user":"alice"}`, w.Body.String())
		}
		assert.Equal(t, http.StatusTooManyRequests, a.me("192.0.2.99", reply.Token).Code)
		assert.Equal(t, http.StatusTooManyRequests, a.me("192.0.2.1", a.token("alice", "api", time.Minute)).Code, "a new token")
		assert.Equal(t, http.StatusOK, a.me("192.0.2.1", a.token("bob", "api", time.Minute)).Code)

		time.Sleep(59 * time.Minute)
		assert.Equal(t, http.StatusTooManyRequests, a.me("192.0.2.1", reply.Token).Code)
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusUnauthorized, a.me("192.0.2.1", reply.Token).Code, "the token has expired")
		assert.Equal(t, http.StatusOK, a.me("192.0.2.1", a.token("alice", "api", time.Minute)).Code)
	})
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.Claims) string {
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	require.NoError(t, err)
	return token
}

func TestRejectedTokens(t *testing.T) {
	a := newApp(t, limit.New(nil, options))
	claims := jwt.RegisteredClaims{
		Subject: "alice", Audience: jwt.ClaimStrings{"api"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}
	require.Equal(t, http.StatusOK, a.me("192.0.2.1", sign(t, jwt.SigningMethodHS256, secret, claims)).Code)

	parts := strings.Split(a.token("alice", "api", time.Hour), ".")
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"bob","aud":["api"],"exp":9999999999}`))
	for name, token := range map[string]string{
		"no token":         "",
		"no signature":     sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims),
		"another method":   sign(t, jwt.SigningMethodHS512, secret, claims),
		"changed claims":   strings.Join(parts, "."),
		"an empty subject": a.token("", "api", time.Hour),
		"a device cookie":  a.token("alice", "device", time.Hour),
	} {
		w := a.me("192.0.2.1", token)
		assert.Equal(t, http.StatusUnauthorized, w.Code, name)
	}
}

func TestApplication(t *testing.T) {
	inTime(t, func(a app) {
		for range 100 {
			require.Equal(t, http.StatusUnauthorized, a.me("192.0.2.1", "").Code)
		}
		assert.Equal(t, http.StatusTooManyRequests, a.me("192.0.2.1", "").Code)
		assert.Equal(t, http.StatusTooManyRequests, a.login("192.0.2.1", "alice", "right").Code, "one quota for all routes")
		assert.Equal(t, http.StatusUnauthorized, a.me("192.0.2.2", "").Code)
		time.Sleep(time.Minute)
		assert.Equal(t, http.StatusUnauthorized, a.me("192.0.2.1", "").Code)
	})
}

// TestForgedAddress checks that X-Forwarded-For of a client gets it no new quota,
// neither through the proxy nor past it.
func TestForgedAddress(t *testing.T) {
	for _, peer := range []string{"10.0.0.5:1", "192.0.2.1:1"} {
		inTime(t, func(a app) {
			for i := range 6 {
				r := httptest.NewRequest("POST", "/login", strings.NewReader(`{"name":"alice","password":"wrong"}`))
				r.RemoteAddr = peer
				r.Header.Add("X-Forwarded-For", fmt.Sprint("198.51.100.", i))
				if peer == "10.0.0.5:1" {
					r.Header.Set("X-Forwarded-For", r.Header.Get("X-Forwarded-For")+", 192.0.2.1") // by the proxy
				}
				w := httptest.NewRecorder()
				a.ServeHTTP(w, r)
				want := http.StatusUnauthorized
				if i == 5 {
					want = http.StatusTooManyRequests
				}
				assert.Equal(t, want, w.Code, "attempt %d from %s", i+1, peer)
			}
		})
	}
}

func TestRejectedBodies(t *testing.T) {
	inTime(t, func(a app) {
		for _, body := range []string{
			"", "alice", "[]", `{"name":""}`, `{"name":" "}`, `{"name":1}`, `{"name":"alice"} {}`,
			`{"name":"alice","password":"` + strings.Repeat("x", 4096) + `"}`,
		} {
			w := a.send("192.0.2.1", httptest.NewRequest("POST", "/login", strings.NewReader(body)))
			assert.Equal(t, http.StatusBadRequest, w.Code, body)
		}
		// Names that differ between two fields are read in the same way twice.
		a.guess("192.0.2.1", "alice")
		w := a.send("198.51.100.1", httptest.NewRequest("POST", "/login", strings.NewReader(`{"name":"bob","NAME":"alice","password":"right"}`)))
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
	})
}

// TestRedis checks that two processes share the quotas.
func TestRedis(t *testing.T) {
	client := redistest.Client(t)
	var apps []app
	for range 2 {
		apps = append(apps, newApp(t, limit.New(redisstore.New(client, &redisstore.Options{Prefix: "service", Timeout: time.Minute}), options)))
	}
	for i := range 5 {
		require.Equal(t, http.StatusUnauthorized, apps[i%2].login("192.0.2.1", "alice", "wrong").Code)
	}
	for _, a := range apps {
		assert.Equal(t, http.StatusTooManyRequests, a.login("192.0.2.1", "alice", "right").Code)
		assert.Equal(t, http.StatusOK, a.login("192.0.2.2", "alice", "right").Code)
	}
}
