package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// The rules of docs/bans.md.
var (
	failed = rules.OnStatus(http.StatusUnauthorized)
	nameOf = limit.By("account", func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return strings.ToLower(name)
	})
	loginRules = limit.Named("login",
		limit.Rule{Name: "failures", Key: limit.ByIP, Limit: 10, Window: 15 * time.Minute, Settle: failed},
		limit.Rule{Name: "accounts", Key: limit.ByIP, Limit: 5, Window: time.Hour, Algorithm: limit.Distinct{Values: nameOf}},
		limit.Rule{Name: "ban", Key: limit.ByIP, Limit: 20, Window: time.Hour, Settle: failed,
			Algorithm: limit.Ban{Bar: 15 * time.Minute, MaxBar: 24 * time.Hour}},
	)
)

func Example_bans() {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	limiter := limit.New(memstore.New(&memstore.Options{Now: clock.Load}), nil)
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(loginRules)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	if err := endBar(context.Background(), limiter); err != nil {
		panic(err)
	}
	fmt.Println("after Reset:", try("203.0.113.9", "bob", "right"))
	// Output:
	// alice: 200
	// spraying, a sixth name: 429 3600
	// guessing, 11 times: 429 900
	// barred: 429 900
	// after the bar: 401
	// barred again: 429 1800
	// the right password: 429 1800
	// bob, from elsewhere: 200
	// barred for 30m0s
	// after Reset: 200
}

// endBar is the program of the page for operators.
func endBar(ctx context.Context, limiter *limit.Limiter) error {
	login, err := limiter.Policy(loginRules) // the same quotas as on its routes
	if err != nil {
		return err
	}
	keys := map[string]string{"ip": "203.0.113.9", "account": ""} // a value for each key of the rules
	d, err := login.Peek(ctx, limit.Request{Keys: keys})
	if err != nil {
		return err
	}
	for rule := range d.Rules() {
		if rule.Name == "ban" && !rule.Allowed {
			fmt.Println("barred for", rule.RetryAfter.Round(time.Minute))
		}
	}
	return login.Reset(ctx, keys)
}

// TestBansInText holds that the rules of the page in text are those in code, but for
// the function that reads the account.
func TestBansInText(t *testing.T) {
	text := limit.MustParse("failures: 10/15m per ip settle 401; accounts: 5/1h per ip distinct query user; ban: 20/1h per ip ban 15m to 24h settle 401").Rules()
	assert.Contains(t, read(t, "bans.md"), "    failures: 10/15m per ip settle 401; accounts: 5/1h per ip distinct query user; ban: 20/1h per ip ban 15m to 24h settle 401\n")
	for i, rule := range loginRules.Rules() {
		if _, ok := rule.Algorithm.(limit.Distinct); ok {
			rule.Algorithm = text[i].Algorithm
		}
		assert.Equal(t, text[i].String(), rule.String())
	}
}
