package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

const operated = `version: 1
policies:
  login:
    routes: ["POST /login"]
    rules: "5/1m per ip; 20/1h per user"
  api:
    routes: ["/api/"]
    rules: ["1000/1h per user plan pro 5000", "10000/1m global", "9/1h per ip and user"]
`

// A server is a Redis with a program on it that has the policies of operated.
type server struct {
	client *redis.Client
	policy string // the path of the file
	flags  []string
	login  *limit.Policy
	api    *limit.Policy
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{client: redistest.Real(t), policy: file(t, operated)}
	s.flags = []string{"--redis", "redis://" + s.client.Options().Addr, "--file", s.policy}
	limiter := limit.New(redisstore.New(s.client, &redisstore.Options{Timeout: 5 * time.Second}), nil)
	s.login = must.Get(limiter.Policy(limit.Named("login", limit.MustParse("5/1m per ip; 20/1h per user").Rules()...)))(t)
	s.api = must.Get(limiter.Policy(limit.Named("api", limit.MustParse("1000/1h per user plan pro 5000; 10000/1m global").Rules()...)))(t)
	return s
}

// try sends a request to log in.
func (s *server) try(t *testing.T, ip, user string) bool {
	t.Helper()
	d := must.Get(s.login.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": ip, "user": user}}))(t)
	return d.Allowed
}

// run runs a command on the server.
func (s *server) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, s.with(args)...)
}

// exits runs limitctl as run does, and checks its exit code.
func (s *server) exits(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	return exits(t, want, s.with(args)...)
}

func (s *server) with(args []string) []string {
	if args[0] == "ban" {
		return append(args, s.flags[:2]...)
	}
	return append(args, s.flags...)
}

var moments = regexp.MustCompile(`"20\d\d-[^"]*"|"seconds": [0-9.e-]+`)

// timeless replaces times in JSON.
func timeless(text string) string {
	return moments.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, `"2`) {
			return `"TIME"`
		}
		return `"seconds": 0`
	})
}

func TestInspect(t *testing.T) {
	s := newServer(t)
	for range 5 {
		s.try(t, "2001:db8:1:2:3::4", "alice")
	}
	for _, args := range [][]string{
		{"ban", "2001:db8:1::/48", "--for", "1h", "--by", "ann", "--reason", "scans", "--yes"},
		{"ban", "user", "alice", "--for", "0", "--by", "ann", "--yes"},
		{"override", "--policy", "login", "--rule", "per-ip-1m", "--key", "2001:db8:1:2::9", "--limit", "50", "--for", "2h", "--by", "bob", "--yes"},
	} {
		s.exits(t, 0, args...)
	}
	code, out, problem := s.run(t, "inspect", "--key", "2001:db8:1:2::ffff")
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Regexp(t, `^POLICY  RULE       USED  OF                  FULL AGAIN IN  REFUSED FOR  KEY
login   per-ip-1m  5     50 \(override\)  10%  \S+ +- +2001:db8:1:2::/64
override: policy login, rule per-ip-1m, key 2001:db8:1:2::/64: limit 50, until 20\S+Z, by bob
banned: 2001:db8:1::/48, until 20\S+Z, by ann: scans
not looked at, since their keys have several values: api per-ip-and-user-1h
$`, out)
	out, _ = s.exits(t, 0, "inspect", "--key", "alice", "--json")
	assert.Equal(t, fmt.Sprintf(`{
  "key": "alice",
  "rules": %q,
  "states": [
    {
      "policy": "login",
      "rule": "per-user-1h",
      "key": "alice",
      "limit": 20,
      "capacity": 20,
      "used": 5,
      "used_percent": 25,
      "refused": false,
      "full_at": "TIME"
    }
  ],
  "unused": 3,
  "overrides": [],
  "bans": [
    {
      "entry": "user alice",
      "by": "ann",
      "at": "TIME"
    }
  ],
  "not_looked_at": [
    "api per-ip-and-user-1h"
  ]
}
`, s.policy), timeless(out))
	out, _ = s.exits(t, 0, "inspect", "--policy", "login", "--rule", "per-user-1h", "--key", "carol")
	assert.Contains(t, out, "login   per-user-1h  0     20  0%  -              -            carol\n")
	out, _ = s.exits(t, 0, "inspect", "--policy", "api", "--rule", "global-1m")
	assert.Contains(t, out, "(all requests)\n")
	out, _ = s.exits(t, 0, "inspect", "--key", "carol")
	assert.Contains(t, out, "key carol has used nothing of the rules of "+s.policy+".\n")
	out, _ = s.exits(t, 0, "inspect", "--key", "11:203.0.113.95:carol")
	assert.NotContains(t, out, "not looked at", "the whole key")
	out, _ = s.exits(t, 0, "inspect", "--policy", "api", "--rule", "per-ip-and-user-1h", "--key", "2001:db8::1,carol")
	assert.Contains(t, out, `"2001:db8::/64, carol"`+"\n")
	for _, c := range []struct{ args, problem string }{
		{"--policy login --rule per-ip-1m", "name one by --key"}, {"--policy api --rule global-1m --key x", "leave out --key"},
		{"--policy api --rule per-ip-and-user-1h --key carol", "with commas between them"},
		{"--policy login --rule x --key y", `write one of --policy "login" --rule per-ip-1m`}, {"--policy x --key y", `write one of --policy "login" --rule per-ip-1m`},
		{"", "limitctl inspect --key 203.0.113.9"}, {"--policy api", "limitctl inspect --key 203.0.113.9"}, {"alice", `unexpected argument "alice": name a key by --key`},
	} {
		_, problem := s.exits(t, 3, append([]string{"inspect"}, strings.Fields(c.args)...)...)
		assert.Contains(t, problem, c.problem)
	}
}

func TestReset(t *testing.T) {
	s := newServer(t)
	for range 5 {
		s.try(t, "203.0.113.9", "alice")
	}
	require.False(t, s.try(t, "203.0.113.9", "alice"))
	code, out, problem := s.run(t, "reset", "--policy", "login", "--rule", "per-ip-1m", "--key", "203.0.113.9")
	assert.Equal(t, []any{2, ""}, []any{code, out})
	assert.Contains(t, problem, "This resets 1 quota.\nNothing was done: without a terminal to ask on, write --yes.\n")
	const unseen = "not looked at, since their keys have several values: api per-ip-and-user-1h"
	code, out, problem = s.run(t, "reset", "--key", "203.0.113.9", "--yes")
	assert.Equal(t, []any{0, unseen + "\n"}, []any{code, problem})
	assert.Equal(t, "reset: policy login, rule per-ip-1m, key 203.0.113.9\n", out, "that the key is admitted, is not known")

	begun := time.Now()
	redistest.Await(t, 5*time.Second, "the running instance admits the client", func() bool { return s.try(t, "203.0.113.9", "alice") })
	t.Logf("the running instance admitted the client after %v", time.Since(begun))

	out, _ = s.exits(t, 0, "reset", "--key", "alice", "--yes", "--json")
	assert.JSONEq(t, `{"reset": [{"policy": "login", "rule": "per-user-1h", "key": "alice"}], "not_looked_at": ["api per-ip-and-user-1h"]}`, out)
	_, problem = s.exits(t, 1, "reset", "--key", "alice", "--yes")
	assert.Contains(t, problem, "there is nothing to change: key alice has used nothing of these rules that can be reset; "+unseen)
	require.True(t, s.try(t, "203.0.113.10", "carol"))
	out, problem = s.exits(t, 0, "reset", "--policy", "login", "--rule", "per-user-1h", "--key", "carol", "--yes")
	assert.Equal(t, []any{"reset: policy login, rule per-user-1h, key carol\nRunning instances admit the key by these rules within a second, or once they reach Redis.\n", ""}, []any{out, problem})
	require.True(t, s.try(t, "203.0.113.10", "carol"))
	s.exits(t, 0, "ban", "user", "carol", "--for", "1h", "--by", "ann", "--yes")
	out, problem = s.exits(t, 0, "reset", "--policy", "login", "--rule", "per-user-1h", "--key", "carol", "--yes")
	assert.Equal(t, "reset: policy login, rule per-user-1h, key carol\n", out)
	assert.Contains(t, problem, "banned: user carol")
	code, _, problem = s.run(t, "reset", "--policy", "api", "--rule", "global-1m", "--yes")
	assert.Equal(t, []any{1, "there is nothing to change: requests have used nothing of these rules that can be reset"}, []any{code, problem})
	out, _ = exits(t, 0, "inspect", "--key", "alice", s.flags[0], s.flags[1], "--rules", "5/1m per user", "--on", "a")
	assert.Contains(t, out, "key alice has used nothing of the rules of the command line.\n")
	code, _, problem = run(t, "reset", "--key", "alice", s.flags[0], s.flags[1])
	assert.Equal(t, []any{3, `no rules are known, since no file is pushed: write --file FILE, or --rules "5/2s per ip" --on "POST /update"`}, []any{code, problem})
}

// TestHoldsAndDebts looks at keys that owe and hold, and resets one whose request then settles.
func TestHoldsAndDebts(t *testing.T) {
	client := redistest.Real(t)
	store := redisstore.New(client, &redisstore.Options{Timeout: 5 * time.Second})
	const rule = "100/1h per user token-bucket burst 100 debt 50"
	p := must.Get(limit.New(store, nil).Policy(limit.Named("model", limit.MustParse(rule).Rules()...)))(t)
	of := func(user, id string, cost int64) limit.Decision {
		d := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": user}, Cost: cost, Hold: time.Hour, ID: id}))(t)
		require.True(t, d.Allowed)
		return d
	}
	dead := core.Charge{Policy: "model", Rule: "per-user-1h", Key: "carol", Cost: 10, Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 100, Window: 3600_000_000, Burst: 100}}
	require.NoError(t, store.Hold(t.Context(), &core.Ask{Charges: []core.Charge{dead}}, &core.Hold{Life: core.MinHold})) // of a process that is gone
	live := of("alice", "live", 30)
	of("alice", "other", 5)
	require.NoError(t, of("bob", "stream", 20).Settle(t.Context(), 200)) // 100, 50 in debt, 50 forgiven
	flags := []string{"--redis", "redis://" + client.Options().Addr, "--rules", rule, "--on", "model"}
	look := func(user string, more ...string) string {
		out, _ := exits(t, 0, append(append([]string{"inspect", "--key", user}, more...), flags...)...)
		return out
	}
	assert.Regexp(t, `\nheld: policy model, rule per-user-1h, key alice: 2 holds of 35 units, the next ends in (1h|59m)\S* unless it is extended\n$`, look("alice"))
	assert.Regexp(t, `\nin debt: policy model, rule per-user-1h, key bob: owes 50 units, repaid in 3[01]m\S*\n$`, look("bob"))
	assert.Contains(t, look("alice", "--json"), `"holds": 2,
      "held": 35,
      "next_end": "20`)
	assert.Contains(t, look("bob", "--json"), `"owed": 50`)

	redistest.Await(t, 10*time.Second, "the hold ends", func() bool {
		return strings.HasSuffix(look("carol"), "\nended: policy model, rule per-user-1h, key carol: 1 hold, which the next hold on the key gives back\n")
	})

	exits(t, 0, append([]string{"reset", "--key", "alice", "--yes"}, flags...)...)
	exits(t, 0, append([]string{"reset", "--key", "bob", "--yes"}, flags...)...)
	assert.Contains(t, look("alice"), "key alice has used nothing")
	assert.Contains(t, look("bob"), "key bob has used nothing")
	require.ErrorIs(t, live.Settle(t.Context(), 90), limit.ErrSettled)
	assert.Contains(t, look("alice"), "key alice has used nothing")
}

// TestResetOfNothing checks that an empty variable of a shell does not reset the quotas that
// all requests share.
func TestResetOfNothing(t *testing.T) {
	s := newServer(t)
	must.Get(s.api.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	for _, command := range []string{"reset", "inspect"} {
		code, out, problem := s.run(t, command, "--key", "")
		assert.Equal(t, []any{3, ""}, []any{code, out})
		assert.Contains(t, problem, "--key is empty: leave it out for the quota of all requests")
	}
	out, _ := s.exits(t, 0, "reset", "--policy", "api", "--rule", "global-1m", "--yes")
	assert.Contains(t, out, "reset: policy api, rule global-1m, key (all requests)")
}
