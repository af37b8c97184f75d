package livepage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// A shared service has its quotas, bans and overrides in Redis.
type shared struct{ *service }

func serveOn(t *testing.T, addr string, hide bool) shared {
	t.Helper()
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second}))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	quiet := slog.New(slog.DiscardHandler)
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	documents := control.New(client, &control.Options{Log: quiet})
	bans := access.NewBans(ctx, documents, &access.Options{Log: quiet})
	o := overrides.New(ctx, documents, &overrides.Options{Log: quiet})
	store := guard.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &guard.Options{Slow: time.Minute, Log: quiet})
	limiter := limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Bar: bans.Bar, Override: o.Limit, Log: quiet})
	mux := http.NewServeMux()
	mux.Handle("/limits/", livepage.Handler(limiter, &livepage.Options{Authorize: as, Bans: bans, Overrides: o, HideKeys: hide}))
	mux.Handle("POST /login", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 100), limit.PerUser(time.Minute, 2),
		limit.Per(limit.ByHeader("X-Api-Key"), time.Hour, 50)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	mux.Handle("POST /order", limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 100)).With(
		limit.Named("users", limit.PerUser(time.Minute, 1))))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	s := &service{Server: httptest.NewServer(mux), limiter: limiter}
	t.Cleanup(s.Close)
	return shared{s}
}

func (s shared) login(t *testing.T, user string) int {
	t.Helper()
	status, _ := s.send(t, "POST", "/login", "", "X-User", user)
	return status
}

func (s shared) change(t *testing.T, action, body string) (int, string) {
	t.Helper()
	return s.send(t, "POST", "/limits/"+action, body, "X-Who", "ann", "Content-Type", "application/json")
}

// TestOverrideOfAnotherSet changes a limit of a set where another one is With it.
func TestOverrideOfAnotherSet(t *testing.T) {
	s := serveOn(t, redistest.Launch(t).Addr, false)
	order := func() int {
		status, _ := s.send(t, "POST", "/order", "", "X-User", "dora")
		return status
	}
	require.Equal(t, []int{200, 429}, []int{order(), order()})
	key := `"policy":"POST /order","rule":"per-user-1m","key":"dora"`
	status, body := s.change(t, "override", `{`+key+`,"limit":2,"seconds":3600}`)
	require.Equal(t, 200, status, body)
	redistest.Await(t, 20*time.Second, "the override", func() bool { return order() == 200 })
	redistest.Await(t, 20*time.Second, "the override on the page", func() bool {
		state, _ := s.stateAs(t, "bob")
		list := state["overrides"].([]any)
		return len(list) == 1 && at(t, list[0], "policy") == "users"
	})
	status, body = s.change(t, "unoverride", `{`+key+`}`)
	require.Equal(t, 200, status, body)
}

// TestBansAndOverrides bans clients and changes limits from the page of one instance. The
// other one has them within a second.
func TestBansAndOverrides(t *testing.T) {
	server := redistest.Launch(t)
	for _, hide := range []bool{false, true} {
		t.Run(fmt.Sprintf("hide=%t", hide), func(t *testing.T) {
			one, other := serveOn(t, server.Addr, hide), serveOn(t, server.Addr, hide)
			soon := func(f func() bool) { t.Helper(); redistest.Await(t, 20*time.Second, "a change", f) }
			name := fmt.Sprintf("dora-%t", hide)
			for _, want := range []int{200, 200, 429} {
				require.Equal(t, want, one.login(t, name))
			}
			key := `"policy":"POST /login","rule":"per-user-1m","key":"` + name + `"`
			shown := name
			if hide {
				state, _ := one.stateAs(t, "ann")
				shown = at(t, state, "keys", 0, "id").(string)
				key = `"policy":"POST /login","rule":"per-user-1m","id":"` + shown + `"`
			}

			status, body := one.change(t, "override", `{`+key+`,"limit":4,"seconds":3600,"reason":"a good customer"}`)
			require.Equal(t, 200, status, body)
			assert.Equal(t, `{"done":"The limit of `+shown+` in per-user-1m is 4 for 1h."}`+"\n", body)
			soon(func() bool { return other.login(t, name) == 200 })
			list := func(s shared, name string) (state map[string]any) { // each state is for a second
				soon(func() bool { state, _ = s.stateAs(t, "bob"); return len(state[name].([]any)) > 0 })
				return state
			}
			state := list(other, "overrides")
			row := at(t, state, "overrides", 0)
			assert.Equal(t, 4.0, at(t, row, "limit"))
			assert.Equal(t, "ann", at(t, row, "by"))
			assert.Equal(t, "a good customer", at(t, row, "reason"))
			assert.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), at(t, row, "until"), 10_000)
			if hide {
				assert.NotContains(t, fmt.Sprint(state), name)
			}
			status, body = one.change(t, "unoverride", `{`+key+`}`)
			require.Equal(t, 200, status, body)
			soon(func() bool { return other.login(t, name) == 429 })
			status, body = one.change(t, "unoverride", `{`+key+`}`)
			assert.Equal(t, 404, status, body)

			// A typed address stands for the key that requests from it have.
			const typed = `"policy":"POST /login","rule":"per-ip-1m","key":"2001:db8::5"`
			status, body = one.change(t, "override", `{`+typed+`,"limit":9,"seconds":60}`)
			assert.Equal(t, []any{200, `{"done":"The limit of 2001:db8::/64 in per-ip-1m is 9 for 1m."}` + "\n"}, []any{status, body})
			status, body = one.change(t, "unoverride", `{`+typed+`}`)
			assert.Equal(t, 200, status, body)
			for _, page := range []shared{one, other} {
				soon(func() bool {
					state, _ := page.stateAs(t, "bob")
					return len(state["overrides"].([]any)) == 0
				})
			}

			// A pattern is listed and removed as such.
			of := `"policy":"POST /login","rule":"per-user-1m","pattern":true`
			status, body = one.change(t, "override", `{"policy":"POST /login","rule":"per-ip-1m","pattern":true,"key":"10*","limit":5,"seconds":60}`)
			assert.Equal(t, 400, status, body)
			assert.Contains(t, body, "for a network, ban 10.0.0.0/8")
			status, body = one.change(t, "override", `{`+of+`,"key":"`+name[:4]+`*","limit":5,"seconds":60}`)
			require.Equal(t, 200, status, body)
			soon(func() bool { return other.login(t, name) == 200 })
			row = at(t, list(other, "overrides"), "overrides", 0)
			assert.Equal(t, true, at(t, row, "pattern"))
			field := "key"
			if hide {
				field = "id"
				row = at(t, list(one, "overrides"), "overrides", 0)
				assert.NotContains(t, fmt.Sprint(row), name[:4])
			}
			status, body = one.change(t, "unoverride", `{`+of+`,"`+field+`":"`+at(t, row, field).(string)+`"}`)
			require.Equal(t, 200, status, body)
			soon(func() bool { return other.login(t, name) == 429 })

			// A ban of a key: the page makes the entry of a user. It stays until removed.
			status, body = one.change(t, "ban", `{`+key+`,"seconds":0,"reason":"stolen"}`)
			require.Equal(t, 200, status, body)
			assert.Equal(t, `{"done":"Banned user `+shown+` until removed."}`+"\n", body)
			soon(func() bool { return other.login(t, name) == 403 })
			assert.Equal(t, 200, other.login(t, "carl-"+name))
			state = list(other, "bans")
			row = at(t, state, "bans", 0)
			assert.Equal(t, 0.0, at(t, row, "until"))
			unban := `{"entry":"user ` + name + `"}`
			if hide {
				assert.NotContains(t, fmt.Sprint(state), name)
				state = list(one, "bans")
				unban = `{"id":"` + at(t, state, "bans", 0, "id").(string) + `"}`
			}
			status, body = one.change(t, "unban", unban)
			require.Equal(t, 200, status, body)
			soon(func() bool { return other.login(t, name) != 403 })

			for _, test := range []struct{ action, body, says string }{
				{"ban", `{"entry":"nonsense here"}`, "write"},
				{"override", `{` + key + `,"limit":0}`, "limit 0: write 1 to"},
				{"override", `{` + key + `,"limit":100001}`, "limit 100001 is too large"},
				{"ban", `{"entry":""}`, "no entry"},
				{"ban", `{"entry":"192.0.2.1","seconds":-1}`, "seconds -1: send 1 to"},
				{"ban", `{"policy":"POST /login","rule":"per-header-x-api-key-1h","key":"k"}`, "neither by ip nor by user"},
				{"override", `{"policy":"POST /login","rule":"per-user-1m","key":"x","limit":0}`, "limit 0: write 1 to"},
				{"override", `{"policy":"POST /nothing","rule":"per-user-1m","key":"x","limit":1}`, "has no rule"},
				{"override", `{"policy":"POST /login","rule":"per-ip-1m","key":"dora","limit":9}`, "is not an address"},
				{"unban", `{}`, "no such entry"},
				{"unban", `{"entry":"192.0.2.77"}`, "is not banned"},
			} {
				status, body := one.change(t, test.action, test.body)
				assert.True(t, status == 400 || status == 404, "%v: %d %s", test, status, body)
				assert.Contains(t, body, test.says)
			}
		})
	}
}

// TestRedisGone checks that the page stays while Redis is gone, and that changes say so.
func TestRedisGone(t *testing.T) {
	server := redistest.Launch(t)
	s := serveOn(t, server.Addr, false)
	require.Equal(t, 200, s.login(t, "dora"))
	server.Kill()
	for range 20 {
		s.login(t, "dora")
	}
	state, _ := s.stateAs(t, "ann")
	assert.Equal(t, true, at(t, state, "unavailable"))
	assert.NotZero(t, at(t, state, "mode_counts", "local"))
	const key = `"policy":"POST /login","rule":"per-user-1m","key":"dora"`
	for action, body := range map[string]string{"reset": `{` + key + `}`, "ban": `{"entry":"192.0.2.1"}`, "override": `{` + key + `,"limit":9}`} {
		status, text := s.change(t, action, body)
		assert.Equal(t, 503, status, "%s: %s", action, text)
		assert.Contains(t, text, "Try again")
	}
}
