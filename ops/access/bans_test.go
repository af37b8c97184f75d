package access_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/stores/memstore"
)

// An instance is a program with bans, a list, and a store that counts its calls.
type instance struct {
	bans    *access.Bans
	client  *redis.Client
	handler http.Handler
	calls   int
	log     logbook.Book
	core.Store
}

func (i *instance) Take(ctx context.Context, asks []core.Ask) error {
	i.calls++
	return i.Store.Take(ctx, asks)
}

func start(t testing.TB, addr string) *instance {
	t.Helper()
	i := &instance{Store: memstore.New(nil), client: redis.NewClient(&redis.Options{Addr: addr})}
	t.Cleanup(func() { i.client.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	options := &access.Options{Log: i.log.Log()}
	i.bans = access.NewBans(ctx, control.New(i.client, &control.Options{Log: slog.New(slog.DiscardHandler)}), options)
	list := mustParse(t, "198.51.100.1")
	limiter := limit.New(i, &limit.Options{Caller: limit.Caller[*http.Request]{User: user}, Log: slog.New(slog.DiscardHandler),
		Bar:    func(c limit.Client) time.Duration { return max(list.Bar(c), i.bans.Bar(c)) },
		Exempt: func(c limit.Client) bool { return c.Request.Header.Get("X-Operator") == "s3cret" },
	})
	i.handler = limiter.Limit(limit.Rules(limit.Global(time.Second, 100_000)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return i
}

func (i *instance) get(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	i.handler.ServeHTTP(w, r)
	return w
}

// answer waits until all instances answer a request with a status, and returns how long
// that took.
func answer(t testing.TB, within time.Duration, status int, r *http.Request, instances []*instance) time.Duration {
	t.Helper()
	start := time.Now()
	return redistest.Await(t, within, fmt.Sprint(status), func() bool {
		return !slices.ContainsFunc(instances, func(i *instance) bool { return i.get(r).Code != status })
	}).Sub(start)
}

// barred returns the Retry-After of a response in seconds, or 0.
func barred(w *httptest.ResponseRecorder) int {
	seconds, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	return seconds
}

// TestBans bars clients on one of three instances, with messages and without.
func TestBans(t *testing.T) {
	server := redistest.Launch(t)
	three := []*instance{start(t, server.Addr), start(t, server.Addr), start(t, server.Addr)}
	ctx := t.Context()
	for i, test := range []struct {
		entry string
		r     *http.Request
	}{
		{"203.0.113.9", from("203.0.113.9:80")},
		{"2001:db8:1:2::/64 # a customer", from("[2001:db8:1:2::5]:80")},
		{"user alice", from("@", "X-User", "alice")},
		{`agent "BadBot"`, from("@", "User-Agent", "badbot/1.0")},
		{"203.0.113.10", from("203.0.113.10:80")},
		{"203.0.113.11", from("203.0.113.11:80")},
	} {
		answer(t, 0, http.StatusOK, test.r, three)
		if i > 3 { // messages are lost
			require.NoError(t, three[0].client.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
		}
		require.NoError(t, three[i%3].bans.Ban(ctx, test.entry, time.Hour, "ann", "scans"))
		t.Logf("%s: all instances bar it after %v", test.entry, answer(t, time.Second, http.StatusForbidden, test.r, three))
		calls := three[0].calls
		w := three[0].get(test.r)
		assert.InDelta(t, 3600, barred(w), 30)
		assert.Equal(t, calls, three[0].calls, "a call of the store")
		operator := test.r.Clone(ctx)
		operator.Header.Set("X-Operator", "s3cret")
		assert.Equal(t, http.StatusOK, three[0].get(operator).Code)
	}
	assert.Empty(t, three[0].get(from("198.51.100.1:80")).Header().Get("Retry-After"), "the list bars for good")

	var entries []string
	for _, ban := range three[2].bans.List() {
		entries = append(entries, ban.Entry)
		assert.Equal(t, []string{"ann", "scans"}, []string{ban.By, ban.Reason})
		assert.WithinDuration(t, time.Now().Add(time.Hour), ban.Until, time.Minute)
		assert.WithinDuration(t, time.Now(), ban.At, time.Minute)
	}
	assert.Equal(t, []string{"2001:db8:1:2::/64", "203.0.113.10", "203.0.113.11", "203.0.113.9", "agent badbot", "user alice"}, entries)

	there := must.Get(three[1].bans.Unban(ctx, "user \"alice\"", "bob"))(t)
	assert.True(t, there)
	answer(t, time.Second, http.StatusOK, from("@", "X-User", "alice"), three)
	there = must.Get(three[1].bans.Unban(ctx, "user alice", "bob"))(t)
	assert.False(t, there)
	history := must.Get(three[2].bans.History(ctx))(t)
	assert.Equal(t, []any{"user alice", "bob", true}, []any{history[0].Name, history[0].By, history[0].Deleted})
}

// TestBansNested checks that the longest of several bans counts, however they nest.
func TestBansNested(t *testing.T) {
	server := redistest.Launch(t)
	one := []*instance{start(t, server.Addr)}
	ban := func(entry string, d time.Duration) {
		require.NoError(t, one[0].bans.Ban(t.Context(), entry, d, "ann", ""))
	}
	ban("10.1.2.3", time.Second)
	ban("10.1.0.0/16", time.Hour)
	ban("10.0.0.0/8", time.Minute)
	answer(t, time.Second, http.StatusForbidden, from("10.2.0.1:80"), one)
	assert.InDelta(t, 3600, barred(one[0].get(from("10.1.2.3:80"))), 30)
	assert.InDelta(t, 60, barred(one[0].get(from("10.2.0.1:80"))), 30)
	ban("user alice", limit.Never)
	answer(t, time.Second, http.StatusForbidden, from("@", "X-User", "alice"), one)
	assert.Empty(t, one[0].get(from("10.1.2.3:80", "X-User", "alice")).Header().Get("Retry-After"), "for good")
}

// TestBansInOutage checks that bans stay in force without Redis, and end.
func TestBansInOutage(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Server){"killed": (*redistest.Server).Kill, "paused": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Launch(t)
			three := []*instance{start(t, server.Addr), start(t, server.Addr), start(t, server.Addr)}
			long, short := from("203.0.113.9:80"), from("203.0.113.10:80")
			require.NoError(t, three[0].bans.Ban(t.Context(), "203.0.113.9", time.Hour, "ann", ""))
			require.NoError(t, three[0].bans.Ban(t.Context(), "203.0.113.10", 1500*time.Millisecond, "ann", ""))
			answer(t, time.Second, http.StatusForbidden, long, three)
			answer(t, time.Second, http.StatusForbidden, short, three)
			fail(server)
			answer(t, 3*time.Second, http.StatusOK, short, three)
			answer(t, 0, http.StatusForbidden, long, three)
			if name == "paused" {
				server.Resume()
			} else {
				server.Restart()
			}
			four := append(three, start(t, server.Addr))
			answer(t, 3*time.Second, http.StatusForbidden, long, four)
		})
	}
}

// TestBanErrors checks what cannot be banned.
func TestBanErrors(t *testing.T) {
	server := redistest.Launch(t)
	i := start(t, server.Addr)
	for entry, want := range map[string]string{
		"0.0.0.0/0":         "access: column 1: matches every client",
		"10.0.0.1/8":        "access: column 1: the address has bits outside the prefix: write 10.0.0.0/8, or 10.0.0.1 alone",
		"# nobody":          "access: no entry: write a prefix such as 10.0.0.0/8, an address, user",
		"header X s3cret":   "access: column 1: not an entry",
		"10.0.0.1\n":        "access: column 9: byte 0x0a is not text",
		"user":              "access: column 5: a user is missing",
		"10.0.0.1 10.0.0.2": "access: column 10: more than one entry",
		"bob":               "access: column 1: not an entry: write a prefix such as 10.0.0.0/8, an address, or user NAME or agent TEXT\n",
	} {
		assert.ErrorContains(t, i.bans.Ban(t.Context(), entry, time.Hour, "ann", ""), want)
		_, err := i.bans.Unban(t.Context(), entry, "ann")
		assert.ErrorContains(t, err, want)
	}
	assert.EqualError(t, i.bans.Ban(t.Context(), "10.0.0.1", 0, "ann", ""), "access: a ban of 0s: write how long it lasts, or limit.Never")
	assert.ErrorContains(t, i.bans.Ban(t.Context(), "10.0.0.1", 1, "ann", string(make([]byte, 1001))), "a reason of 1001 bytes")
	assert.ErrorContains(t, i.bans.Ban(t.Context(), "10.0.0.1", 1, "", ""), `control: by ""`)

	// What another program writes has no effect, and is logged once.
	i.log.Lines()
	c := control.New(i.client, nil)
	require.NoError(t, c.Put(t.Context(), "bans", "0.0.0.0/0", nil, 0, "ann"))
	require.NoError(t, c.Put(t.Context(), "bans", "10.0.0.1", []byte("no JSON"), 0, "ann"))
	answer(t, time.Second, http.StatusForbidden, from("10.0.0.1:80"), []*instance{i})
	answer(t, 0, http.StatusOK, from("10.0.0.2:80"), []*instance{i})
	assert.Contains(t, i.log.Lines()[0], "bans that are not entries, and agents beyond the first 1,000, have no effect\" code=LIMIT-406 ")
}

// TestBanWithoutUsers checks that a program that knows no users says so, once, if users
// are banned.
func TestBanWithoutUsers(t *testing.T) {
	server := redistest.Launch(t)
	other := start(t, server.Addr)
	require.NoError(t, other.bans.Ban(t.Context(), "user bob", time.Hour, "ann", ""))
	var log logbook.Book
	bans := access.NewBans(t.Context(), control.New(other.client, nil), nil)
	redistest.Await(t, time.Second, "the ban", func() bool { return len(bans.List()) == 1 })
	h := limit.New(nil, &limit.Options{Bar: bans.Bar, Log: log.Log()}).Limit(limit.Rules(limit.Global(time.Second, 1000)))(update)
	for range 200 {
		assert.Equal(t, http.StatusOK, send(h, "192.0.2.1"))
	}
	assert.Equal(t, 1, strings.Count(strings.Join(log.Lines(), ""), "code=LIMIT-116 requests=100"))
	was := must.Get(bans.Unban(t.Context(), "user bob", "ann"))(t)
	assert.True(t, was)
}

// BenchmarkBans measures how long 100,000 bans take to be in force after a change, and
// what a request then costs.
func BenchmarkBans(b *testing.B) {
	server := redistest.Launch(b)
	i := start(b, server.Addr)
	require.NoError(b, server.Client().Eval(b.Context(), `for i = 1, 100000 - 100 do
		redis.call('HSET', KEYS[1], '10.' .. math.floor(i / 65536) .. '.' .. math.floor(i / 256) % 256 .. '.' .. i % 256, '9000000000000 0 3 ann{"reason":"scans"}')
	end
	return 1`, []string{"limit:control:{limit}:bans:documents"}).Err())
	r := from("10.0.1.1:80")
	require.NoError(b, i.bans.Ban(b.Context(), "192.0.2.1", time.Hour, "ann", ""))
	first := answer(b, 10*time.Second, http.StatusForbidden, r, []*instance{i})
	b.Run("a change", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			entry := fmt.Sprintf("203.0.113.%d", n%100)
			require.NoError(b, i.bans.Ban(b.Context(), entry, time.Hour, "ann", ""))
			answer(b, 10*time.Second, http.StatusForbidden, from(entry+":80"), []*instance{i})
			must.Get(i.bans.Unban(b.Context(), entry, "ann"))(b)
			answer(b, 10*time.Second, http.StatusOK, from(entry+":80"), []*instance{i})
		}
		b.ReportMetric(first.Seconds()*1000, "ms-first")
	})
	b.Run("Bar", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			i.bans.Bar(client(r))
		}
	})
}
