package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/memstore"
)

// loginRules are the rules of docs/bans.md.
func loginRules() limit.RuleSet {
	failed := limit.OnStatus(http.StatusUnauthorized)
	account := limit.By("account", func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return strings.ToLower(name)
	})
	return limit.Rules(
		limit.Rule{Key: limit.ByIP, Limit: 10, Window: 15 * time.Minute, Settle: failed},
		limit.Rule{Key: limit.ByIP, Limit: 5, Window: time.Hour, Algorithm: limit.Distinct, Values: account},
		limit.Rule{Key: limit.ByIP, Limit: 20, Window: time.Hour, Algorithm: limit.Ban, Settle: failed,
			Bar: 15 * time.Minute, MaxBar: 24 * time.Hour},
	)
}

func Example_bans() {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	limiter := limit.New(memstore.New(&memstore.Options{Now: clock.Load}), nil)
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(loginRules())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})))
	try := func(address, name, password string) string {
		r := httptest.NewRequest("POST", "/login", nil)
		r.RemoteAddr = address + ":80"
		r.SetBasicAuth(name, password)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After")))
	}

	for range 3 {
		try("192.0.2.1", "alice", "mistyped")
	}
	fmt.Println("alice:", try("192.0.2.1", "alice", "right"))

	for i := range 5 {
		try("198.51.100.7", fmt.Sprint("user", i), "123456")
	}
	fmt.Println("spraying, a sixth name:", try("198.51.100.7", "user5", "123456"))

	guess := func(n int) (last string) {
		for range n {
			last = try("203.0.113.9", "bob", "123456")
		}
		return last
	}
	fmt.Println("guessing, 11 times:", guess(11))
	fmt.Println("barred:", guess(9))
	clock.Add(15 * time.Minute.Microseconds())
	fmt.Println("after the bar:", guess(1))
	fmt.Println("barred again:", guess(19))
	fmt.Println("the right password:", try("203.0.113.9", "bob", "right"))
	fmt.Println("bob, from elsewhere:", try("192.0.2.2", "bob", "right"))
	// Output:
	// alice: 200
	// spraying, a sixth name: 429 3600
	// guessing, 11 times: 429 900
	// barred: 429 900
	// after the bar: 401
	// barred again: 429 1800
	// the right password: 429 1800
	// bob, from elsewhere: 200
}

// TestBansInText holds that the rules of the page in text are those in code, but for
// their functions.
func TestBansInText(t *testing.T) {
	text := limit.MustParse("10/15m per ip; 5/1h per ip distinct query user; 20/1h per ip ban 15m to 24h").Rules()
	for i, rule := range loginRules().Rules() {
		rule.Settle = nil
		rule.Values = text[i].Values
		assert.Equal(t, text[i].String(), rule.String())
	}
}
