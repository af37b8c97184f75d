package docs_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/stores/memstore"
)

// newServer is the program under test.
func newServer(limiter *limit.Limiter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 2)))(http.HandlerFunc(ok)))
	return mux
}

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(limit.New(nil, nil))
		login := func() int {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
			return w.Code
		}

		for _, want := range []int{200, 200, 429} {
			if got := login(); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		time.Sleep(time.Hour) // returns at once: the clock of the test moves
		if got := login(); got != 200 {
			t.Errorf("status %d after an hour", got)
		}
	})
}

func TestLoginClock(t *testing.T) {
	var now atomic.Int64 // microseconds
	store := memstore.New(&memstore.Options{Now: now.Load})
	server := newServer(limit.New(store, nil))

	send(server, "POST", "/login")
	send(server, "POST", "/login")
	if code := send(server, "POST", "/login").Code; code != 429 {
		t.Errorf("status %d", code)
	}
	now.Add(time.Hour.Microseconds())
	if code := send(server, "POST", "/login").Code; code != 200 {
		t.Errorf("status %d after an hour", code)
	}
}
