package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

func TestBan(t *testing.T) {
	s := newServer(t)
	out, problem := s.exits(t, 3, "ban", "203.0.113.9/24", "--for", "1h", "--by", "ann", "--reason", "scans", "--yes")
	assert.Empty(t, out)
	assert.Contains(t, problem, "203.0.113.0/24")
	for _, args := range [][]string{
		{"203.0.113.0/24", "--for", "1h", "--by", "ann", "--reason", "scans\x1b[2J"}, {"agent", "Bad \x1b Bot", "--for", "0", "--by", "bob"},
	} {
		s.exits(t, 0, append([]string{"ban", "--yes"}, args...)...)
	}
	out, _ = s.exits(t, 0, "ban", "--list")
	assert.Regexp(t, `^203\.0\.113\.0/24, until 20\S+Z, by ann: scans\\x1b\[2J\nagent "bad \\x1b bot", until it is removed, by bob\n$`, out)
	out, _ = s.exits(t, 0, "ban", "--list", "--json")
	assert.Equal(t, `{
  "bans": [
    {
      "entry": "203.0.113.0/24",
      "until": "TIME",
      "by": "ann",
      "reason": "scans\u001b[2J",
      "at": "TIME"
    },
    {
      "entry": "agent \"bad \\x1b bot\"",
      "by": "bob",
      "at": "TIME"
    }
  ]
}
`, timeless(out))
	code, out, problem := s.run(t, "ban", "--lift", "203.0.113.0/24", "--by", "bob")
	assert.Equal(t, []any{2, ""}, []any{code, out})
	assert.Contains(t, problem, "This lifts the ban of 203.0.113.0/24 on all instances.\nNothing was done")
	code, out, _ = s.run(t, "ban", "--lift", "203.0.113.0/24", "--by", "bob", "--yes")
	assert.Equal(t, []any{0, "lifted: 203.0.113.0/24\n"}, []any{code, out})
	_, problem = s.exits(t, 1, "ban", "--lift", "203.0.113.0/24", "--by", "bob", "--yes")
	assert.Contains(t, problem, "there is nothing to change: no ban of 203.0.113.0/24")
	for _, args := range []string{"", "a b c", "--list x", "--list --lift", "203.0.113.9", "203.0.113.9 --for -1s", "203.0.113.9 --for 1d", "nonsense --for 1h", "0.0.0.0/0 --for 1h", "--lift"} {
		code, out, problem := s.run(t, append([]string{"ban", "--by", "ann", "--yes"}, strings.Fields(args)...)...)
		assert.Equal(t, []any{3, ""}, []any{code, out}, "%s: %s", args, problem)
	}
	_, problem = s.exits(t, 3, "ban", "usre", "mallory", "--for", "1h", "--by", "ann")
	assert.Contains(t, problem, "an address, a prefix, user NAME or agent PART")
	for _, args := range [][]string{{"ban", "203.0.113.9"}, {"override", "--policy", "login", "--rule", "per-ip-1m", "--key", "192.0.2.1", "--limit", "5"}} {
		_, problem = s.exits(t, 3, append(args, "--for", "-5m", "--by", "ann")...)
		assert.Contains(t, problem, "--for -5m0s: write a time from 0 up, such as ")
	}
	code, _, problem = s.run(t, "ban", "203.0.113.9", "--for", "1h", "--by", "")
	assert.Equal(t, []any{3, `--by "": write a name, such as --by ann, or set $USER`}, []any{code, problem})
}

// TestBansOfKeys looks at keys as limitctl top shows them, and expects the bans of their clients.
func TestBansOfKeys(t *testing.T) {
	at := "redis://" + redistest.Real(t).Options().Addr
	for _, entry := range []string{"192.0.2.1", "2001:db8:1:2::5", "2001:db8::/32", "198.51.100.0/24", "user mallory", `user "1=192.0.2.1"`, `agent "192.0.2.1"`} {
		exits(t, 0, "ban", entry, "--for", "0", "--by", "ann", "--yes", "--redis", at)
	}
	for _, c := range []struct{ rule, key, entries string }{
		{"5/1h per user or ip", "192.0.2.1", "192.0.2.1"},
		{"5/1h per user or ip", "1=192.0.2.1", `192.0.2.1, user 1=192.0.2.1`}, // or a user of this name
		{"5/1h per user or ip", "0=mallory", "user mallory"},
		{"5/1h per user or ip", "1=mallory", ""},
		{"5/1h per ip and user", "9:192.0.2.17:mallory", "192.0.2.1, user mallory"},
		{"5/1h per user or (ip and path id)", "1=9:192.0.2.17:mallory", "192.0.2.1"},
		{"5/1h per ip", "2001:db8:1:2::/64", "2001:db8:1:2::5, 2001:db8::/32"},
		{"5/1h per user or ip", "1=2001:db8:1:2::/64", "2001:db8:1:2::5, 2001:db8::/32"},
		{"5/1h per ip", "2001:db8:1:2::6", "2001:db8::/32"},
		{"5/1h per ip", "64:ff9b::192.0.2.1", "192.0.2.1"},
		{"5/1h per ip", "2001:db9::/64", ""},
	} {
		out, _ := exits(t, 0, "inspect", "--key", c.key, "--rules", c.rule, "--on", "p", "--json", "--redis", at)
		var found struct{ Bans []struct{ Entry string } }
		require.NoError(t, json.Unmarshal([]byte(out), &found))
		var entries []string
		for _, b := range found.Bans {
			entries = append(entries, b.Entry)
		}
		assert.Equal(t, c.entries, strings.Join(entries, ", "), c)
	}
}

func TestOverride(t *testing.T) {
	s := newServer(t)
	set := func(args ...string) (int, string, string) {
		return s.run(t, append([]string{"override", "--by", "ann", "--yes"}, args...)...)
	}
	code, out, problem := set("--policy", "login", "--rule", "per-ip-1m", "--key", "2001:db8:1:2::9", "--limit", "50", "--for", "2h", "--reason", "launch")
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Equal(t, "override: policy login, rule per-ip-1m, key 2001:db8:1:2::/64 has the limit 50 for 2h0m0s\n", out)
	code, out, problem = s.run(t, "override", "--policy", "login", "--rule", "per-ip-1m", "--key", "2001:db8:1:2::9", "--limit", "60", "--for", "0", "--by", "ann")
	assert.Equal(t, []any{2, ""}, []any{code, out})
	assert.Contains(t, problem, "This gives policy login, rule per-ip-1m, key 2001:db8:1:2::/64 the limit 60 in place of the override of 50 on all instances until it is removed.\n")
	out, _ = s.exits(t, 0, "override", "--list", "--json")
	assert.Equal(t, `{
  "overrides": [
    {
      "policy": "login",
      "rule": "per-ip-1m",
      "key": "2001:db8:1:2::/64",
      "limit": 50,
      "until": "TIME",
      "by": "ann",
      "reason": "launch",
      "at": "TIME"
    }
  ]
}
`, timeless(out))
	code, out, _ = set("--remove", "--policy", "login", "--rule", "per-ip-1m", "--key", "2001:db8:1:2::9")
	assert.Equal(t, []any{0, "removed: the override of policy login, rule per-ip-1m, key 2001:db8:1:2::/64\n"}, []any{code, out})
	code, _, problem = set("--remove", "--policy", "login", "--rule", "per-ip-1m", "--key", "2001:db8:1:2::9")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, "has no override: limitctl override --list lists them")

	// A pattern, and a key that looks like one.
	_, out, problem = set("--policy", "api", "--rule", "per-user-1h", "--pattern", "al*", "--limit", "70", "--for", "0")
	assert.Equal(t, []any{"override: policy api, rule per-user-1h, pattern \"al*\" has the limit 70 until it is removed\n", ""}, []any{out, problem})
	_, out, problem = set("--policy", "api", "--rule", "per-user-1h", "--key", "al*", "--limit", "80", "--for", "0")
	assert.Equal(t, "override: policy api, rule per-user-1h, key \"al*\" has the limit 80 until it is removed\n", out)
	assert.Equal(t, "The star is a part of the key: for each key that begins so, write --pattern in place of --key.\n", problem)
	out, _ = s.exits(t, 0, "inspect", "--key", "alice", "--policy", "api", "--rule", "per-user-1h")
	assert.Regexp(t, `(?m)^api .* 70 \(override\) `, out)
	assert.Regexp(t, `(?m)^override: policy api, rule per-user-1h, pattern "al\*": limit 70, until it is removed, by ann$`, out)
	assert.NotContains(t, out, "limit 80")
	out, _ = s.exits(t, 0, "override", "--list", "--json")
	assert.Contains(t, out, `"pattern": "al*"`)
	_, _, problem = s.run(t, "override", "--policy", "api", "--rule", "per-user-1h", "--pattern", "al*", "--limit", "60", "--for", "0", "--by", "ann")
	assert.Contains(t, problem, `This gives policy api, rule per-user-1h, pattern "al*" the limit 60 in place of the override of 70 on all`)
	_, _, problem = s.run(t, "override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice ", "--limit", "60", "--for", "0", "--by", "ann")
	assert.Contains(t, problem, "This gives policy api, rule per-user-1h, key alice the limit 60 on all", "as the rule has it, though a pattern matches")
	long := "al" + strings.Repeat("k", 127)
	_, _, problem = s.run(t, "override", "--policy", "api", "--rule", "per-user-1h", "--key", long, "--limit", "60", "--for", "0", "--by", "ann")
	assert.Contains(t, problem, "key sha256:")
	out, _ = s.exits(t, 0, "inspect", "--key", long, "--policy", "api", "--rule", "per-user-1h")
	assert.NotContains(t, out, "override: ")
	_, _, problem = set("--policy", "api", "--rule", "per-user-1h", "--pattern", long+"*", "--limit", "60", "--for", "0")
	assert.Contains(t, problem, "which no pattern matches: write a shorter pattern")
	_, out, _ = set("--remove", "--policy", "api", "--rule", "per-user-1h", "--pattern", "al*")
	assert.Equal(t, "removed: the override of policy api, rule per-user-1h, pattern \"al*\"\n", out)
	out, _ = s.exits(t, 0, "override", "--list")
	assert.Regexp(t, `^policy api, rule per-user-1h, key "al\*": limit 80, [^\n]*\n$`, out)
	set("--remove", "--policy", "api", "--rule", "per-user-1h", "--key", "al*")

	for _, c := range []struct{ args, problem string }{
		{"P api R per-user-1h K alice L 100001 --for 1h", "rule \"per-user-1h\": limit 100001 is too large for an exact window, which logs each unit: write at most 100000"},
		{"P api R per-ip-and-user-1h K alice L 5 --for 1h", "no request has it"}, {"P apj R per-user-1h K alice L 5 --for 1h", `no policy "apj" with a rule "per-user-1h": write one of`},
		{"", "name a policy, a rule, a key or a pattern, and its limit"}, {"--list --key x", "write it alone"}, {"--list x", "unexpected argument"}, {"--remove login per-ip-1m", "unexpected argument"},
		{"--remove P login R per-ip-1m", "name a policy, a rule, and a key or a pattern"}, {"P login R per-ip-1m K 192.0.2.1", "name a policy, a rule, a key or a pattern, and its limit"},
		{"--list --pattern x*", "write it alone"}, {"P api R per-user-1h --pattern free L 5 --for 1h", "what keys begin with and a star"}, {"P api R per-user-1h --pattern * L 5 --for 1h", "what keys begin with and a star"}, {"P api R per-user-1h K a --pattern a* L 5 --for 1h", "and no --key"},
		{"P login R per-ip-1m --pattern 192.0.2* L 5 --for 1h", "patterns are for rules whose keys are text"}, {"P login R per-ip-1m --pattern 10* L 5 --for 1h", "for a network, write exempt ip 10.0.0.0/8 in the rule"}, {"P api R global-1m --pattern x* L 5 --for 1h", "one quota of all requests"},
		{"P api R per-ip-and-user-1h --pattern x* L 5 --for 1h", "join several values"},
		{"P login R per-ip-1m K alice L 5 --for 1h", "is not an address"}, {"P login R x K alice L 5 --for 1h", `write one of --policy "login" --rule per-ip-1m`},
		{"P login R per-ip-1m K 192.0.2.1 L 0 --for 1h", "--limit 0: write a number from 1 up"}, {"P login R per-ip-1m K 192.0.2.1 L 5", "--for: write how long"},
		{"P api R global-1m K x L 5 --for 1h", "one quota of all requests"},
	} {
		code, _, problem = set(strings.Fields(strings.NewReplacer("P ", "--policy ", "R ", "--rule ", "K ", "--key ", "L ", "--limit ").Replace(c.args))...)
		assert.Equal(t, 3, code, c.args)
		assert.Contains(t, problem, c.problem)
	}
	_, problem = exits(t, 0, "override", "--policy", "x", "--rule", "y", "--key", "z", "--limit", "5", "--for", "1h", "--by", "ann", "--yes", s.flags[0], s.flags[1])
	assert.Contains(t, problem, "are not checked: to check them, write --file")
	for pattern, doubtful := range map[string]bool{"10*": true, "192.0.*": true, "10abc*": false} {
		_, problem = exits(t, 0, "override", "--policy", "x", "--rule", "y", "--pattern", pattern, "--limit", "5", "--for", "1h", "--by", "ann", "--yes", s.flags[0], s.flags[1])
		assert.Equal(t, doubtful, strings.Contains(problem, "A pattern is text, and no prefix of addresses"), pattern)
	}
	_, problem = exits(t, 0, "ban", "user", "free-*", "--for", "1h", "--by", "ann", "--yes", s.flags[0], s.flags[1])
	assert.Equal(t, "The star is a part of the entry: bans have no patterns.\n", problem)
	code, _, problem = run(t, "override", "--remove", "--policy", "x", "--rule", "y", "--key", "z", "--by", "ann", "--yes", s.flags[0], s.flags[1])
	assert.Equal(t, []any{0, ""}, []any{code, problem}, "the answer says that there was such an override")
}

// TestOverrideOfJoinedKeys reads a key of two values in the form that people write it, if the rule is
// known, and as Redis has it otherwise and in JSON.
func TestOverrideOfJoinedKeys(t *testing.T) {
	s := newServer(t)
	of := "policy api, rule per-ip-and-user-1h, key "
	out, _ := s.exits(t, 0, "override", "--policy", "api", "--rule", "per-ip-and-user-1h", "--key", "203.0.113.9, alice", "--limit", "50", "--for", "0", "--by", "ann", "--yes")
	assert.Equal(t, "override: "+of+"\"203.0.113.9, alice\" has the limit 50 until it is removed\n", out)
	exits(t, 0, "override", "--policy", "gone", "--rule", "r", "--key", "1:ab", "--limit", "5", "--for", "0", "--by", "ann", "--yes", s.flags[0], s.flags[1])
	terms := ": limit 50, until it is removed, by ann\n"
	out, _ = s.exits(t, 0, "override", "--list")
	assert.Contains(t, out, of+"\"203.0.113.9, alice\""+terms)
	assert.Contains(t, out, "policy gone, rule r, key 1:ab: limit 5,")
	out, _ = exits(t, 0, "override", "--list", s.flags[0], s.flags[1])
	assert.Contains(t, out, of+"11:203.0.113.95:alice"+terms, "nothing says the rule")
	out, _ = s.exits(t, 0, "override", "--list", "--json")
	assert.Contains(t, out, `"key": "11:203.0.113.95:alice"`)
	out, _ = s.exits(t, 0, "inspect", "--key", "203.0.113.9, alice", "--policy", "api", "--rule", "per-ip-and-user-1h")
	assert.Contains(t, out, "override: "+of+"\"203.0.113.9, alice\""+terms)
	exits(t, 0, "push", s.policy, "--by", "ann", "--yes", "--name", "other", s.flags[0], s.flags[1])
	out, _ = exits(t, 0, "override", "--list", s.flags[0], s.flags[1])
	assert.Contains(t, out, of+"11:203.0.113.95:alice"+terms, "a list needs no rules")
	out, _ = exits(t, 0, "override", "--list", "--name", "other", s.flags[0], s.flags[1])
	assert.Contains(t, out, of+"\"203.0.113.9, alice\""+terms)
	exits(t, 1, "override", "--list", s.flags[0], s.flags[1], "--file", s.policy+".gone")
}

// TestWrongTexts checks that arguments which Redis is never asked for have the exit code of wrong arguments, before
// a person is asked.
func TestWrongTexts(t *testing.T) {
	s := newServer(t)
	override := []string{"override", "--policy", "login", "--rule", "per-user-1h", "--key", "x", "--for", "1h"}
	for _, args := range [][]string{
		{"ban", "192.0.2.1", "--for", "1h", "--by", "a\x1bb"}, {"ban", "192.0.2.1", "--for", "1h", "--by", strings.Repeat("a", 513)},
		{"ban", "--lift", "192.0.2.1", "--by", "\xff"}, {"ban", "192.0.2.1", "--for", "1h", "--by", "ann", "--reason", strings.Repeat("a", 1001)},
		append(override, "--limit", "5", "--by", "a\nb"), append(override, "--limit", "1000000000001", "--by", "ann"),
		{"push", s.policy, "--by", "a\tb"}, {"push", "--withdraw", "--by", "a\tb"},
	} {
		if args[0] == "override" {
			args = append(args, "--file", s.policy)
		}
		out, problem := exits(t, 3, append(args, s.flags[:2]...)...)
		assert.Empty(t, out)
		assert.Regexp(t, `^--[a-z]+ .*: write `, problem)
		assert.NotContains(t, problem, "This ")
	}
}

// TestStrangeOverride carries a key that is not UTF-8 through JSON.
func TestStrangeOverride(t *testing.T) {
	s := newServer(t)
	s.exits(t, 0, "override", "--policy", "login", "--rule", "per-user-1h", "--key", "\xff\xfe", "--limit", "5", "--for", "0", "--by", "ann", "--yes")
	out, _ := s.exits(t, 0, "override", "--list", "--json")
	assert.Contains(t, out, `"key_quoted": "\"\\xff\\xfe\""`)
}

// TestListOnFullDisk checks that an answer that could not be written is an error.
func TestListOnFullDisk(t *testing.T) {
	s := newServer(t)
	s.exits(t, 0, "override", "--policy", "login", "--rule", "per-user-1h", "--key", "x", "--limit", "5", "--for", "0", "--by", "ann", "--yes")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("only some systems have a disk that is always full")
	}
	defer full.Close()
	for _, args := range [][]string{{"override", "--list"}, {"top"}, {"inspect", "--key", "nobody"}} {
		cmd := newCommand()
		cmd.SetArgs(append(args, s.flags...))
		cmd.SetOut(full)
		code, problem := exitCode(cmd.ExecuteContextC(t.Context()))
		assert.Equal(t, 1, code, args[0]+problem)
	}
}

// TestHistoryIsText prints a history that another program has written.
func TestHistoryIsText(t *testing.T) {
	s := newServer(t)
	require.NoError(t, s.client.LPush(t.Context(), "limit:control:{limit}:bans:history", `{"name":"x","by":"y","at":"1","note":"a\u001b[2J"}`).Err())
	out, _ := exits(t, 0, "history", s.flags[0], s.flags[1])
	assert.Contains(t, out, `a\x1b[2J`)
}

// TestHostileKeys checks that what clients chose does not control a terminal.
func TestHostileKeys(t *testing.T) {
	s := newServer(t)
	evil := "x\x1b[2J\u202e\xff\u0085 y"
	for range 20 {
		s.try(t, "203.0.113.9", evil)
		require.NoError(t, s.login.Reset(t.Context(), map[string]string{"ip": "203.0.113.9", "user": "none"}))
	}
	require.NoError(t, s.client.Set(t.Context(), "limit:1:{%1B%5B2J}:r%0A:x", "x", time.Minute).Err())
	for _, args := range [][]string{{"top", "--at", "1"}, {"top", "--at", "1", "--json"}, {"inspect", "--key", evil}, {"inspect", "--key", evil, "--json"}, {"reset", "--key", evil}} {
		_, out, problem := s.run(t, args...)
		text := out + problem
		assert.Contains(t, text, "per-user-1h", args)
		for _, c := range []string{"\x1b", "\u202e", "\u0085", "\xff"} {
			assert.NotContains(t, text, c, args)
		}
	}
	_, out, _ := s.run(t, "top", "--at", "1")
	assert.Contains(t, out, `"x\x1b[2J\u202e\xff\u0085 y"`)
	assert.Contains(t, out, `1 of policy "\x1b[2J", rule "r\n"`)
	_, out, _ = s.run(t, "top", "--at", "1", "--json")
	assert.Contains(t, out, `"key_quoted": "\"x\\x1b[2J\\u202e\\xff\\u0085 y\""`)
}

// TestTwoScopes checks a rule that a route has twice, with a quota for the route and one of
// limit.EachRoute: reset resets what it says.
func TestTwoScopes(t *testing.T) {
	client := redistest.Real(t)
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Timeout: 5 * time.Second}), nil)
	each := must.Get(limiter.Policy(limit.EachRoute(limit.PerIP(time.Hour, 5))))(t)
	h := each.Handler(limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 9)))(http.NotFoundHandler()))
	for range 5 {
		r := httptest.NewRequest("GET", "/a", nil)
		r.Pattern = "GET /a"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	flags := []string{"--redis", "redis://" + client.Options().Addr, "--rules", "9/1h per ip", "--on", "GET /a", "--rules", "5/1h per ip", "--on", "each GET /a"}
	_, problem := exits(t, 3, append([]string{"reset", "--policy", "GET /a", "--rule", "per-ip-1h", "--key", "192.0.2.1", "--yes"}, flags...)...)
	assert.Contains(t, problem, `policy "GET /a" has two rules "per-ip-1h"`)
	out, _ := exits(t, 0, append([]string{"reset", "--key", "192.0.2.1", "--yes"}, flags...)...)
	assert.Equal(t, 2, strings.Count(out, "reset: "))
	left, err := client.Keys(t.Context(), "limit:1:[^t]*").Result() // without the token
	require.NoError(t, err)
	slices.Sort(left) // of the resets, for older debts
	assert.Equal(t, []string{"limit:1:mark:{GET%20/a}:per-ip-1h:192.0.2.1", "limit:1:mark:{each%20GET%20/a}:per-ip-1h:192.0.2.1"}, left)
}

// TestHashedKeys checks programs with a Secret, and rules in code.
func TestHashedKeys(t *testing.T) {
	client := redistest.Real(t)
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Secret: []byte("0123456789abcdef"), Timeout: time.Minute}), nil)
	policy := must.Get(limiter.Policy(limit.Named("login", limit.MustParse("1/1h per ip").Rules()...)))(t)
	must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}}))(t)
	flags := []string{"--redis", "redis://" + client.Options().Addr, "--rules", "1/1h per ip", "--on", "login"}
	t.Setenv("SECRET", "0123456789abcdef")

	out, _ := exits(t, 0, append([]string{"top"}, flags...)...)
	assert.Regexp(t, `login   per-ip-1h  1     1   100%  \S+ +\S+ +"?[\w-]{22}"?\n`, out)
	out, _ = exits(t, 0, append([]string{"inspect", "--key", "203.0.113.9"}, flags...)...)
	assert.Contains(t, out, "If the programs set redisstore.Options.Secret, write --secret-env.")
	flags = append(flags, "--secret-env", "SECRET")
	for _, args := range [][]string{{"inspect", "--key", "203.0.113.9"}, {"reset", "--key", "203.0.113.9", "--yes"}} {
		out, _ := exits(t, 0, append(args, flags...)...)
		assert.Contains(t, out, "203.0.113.9")
	}
	_, problem := exits(t, 3, append([]string{"top", "--spread", "2"}, flags...)...)
	assert.Contains(t, problem, "top cannot find the part of a hashed key")
	_, problem = exits(t, 3, append([]string{"inspect", "--key", "203.0.113.9", "--secret-env", "NONE"}, flags[:6]...)...)
	assert.Contains(t, problem, "--secret-env NONE: the variable is not set")
	t.Setenv("SECRET", "short")
	_, problem = exits(t, 3, append([]string{"inspect", "--key", "203.0.113.9"}, flags...)...)
	assert.NotContains(t, problem, "short\"")
}

// TestOperateCluster runs the commands on a Cluster, and checks the hint without --cluster.
func TestOperateCluster(t *testing.T) {
	client := redistest.StartCluster(t, 2*time.Second).Client(t)
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Timeout: 5 * time.Second}), nil)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		policy := must.Get(limiter.Policy(limit.Named(name, limit.MustParse("1/1h per user").Rules()...)))(t)
		must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	}
	flags := []string{"--redis", "redis://" + client.Options().Addrs[4]}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		flags = append(flags, "--rules", "1/1h per user", "--on", name)
	}
	_, problem := exits(t, 1, append([]string{"top"}, flags...)...)
	assert.Contains(t, problem, "the Redis is a Cluster: write --cluster")
	flags = append(flags, "--cluster")
	out, _ := exits(t, 0, append([]string{"top"}, flags...)...)
	assert.Contains(t, out, "looked at 6 keys")
	assert.Equal(t, 6, strings.Count(out, "100%"))
	for _, args := range [][]string{
		{"override", "--policy", "a", "--rule", "per-user-1h", "--key", "alice", "--limit", "5", "--for", "1h", "--by", "ann", "--yes"}, {"inspect", "--key", "alice"}, {"reset", "--key", "alice", "--yes"},
	} {
		exits(t, 0, append(args, flags...)...)
	}
	exits(t, 0, "ban", "203.0.113.9", "--for", "1h", "--by", "ann", "--yes", "--cluster", flags[0], flags[1])
	single := redistest.Real(t)
	_, problem = exits(t, 1, "ban", "--list", "--cluster", "--redis", "redis://"+single.Options().Addr)
	assert.Contains(t, problem, "the Redis is no Cluster: leave out --cluster")
}

func TestOperateWrongly(t *testing.T) {
	for _, c := range []struct{ args, problem string }{
		{"top", "name the Redis of the programs"}, {"top --redis redis://u:secret@h:port", "write --redis as"},
		{"top --redis R --at 101", "--at 101: write a percentage"}, {"top --redis R --at NaN", "--at NaN"}, {"top --redis R --n 0", "--n 0: "},
		{"top --redis R --scan 0", "--scan 0: "}, {"top --redis R --pace 1", "--pace 1: "},
		{"top --redis R --rules 5/1m", "--rules"}, {"top --redis R --rules 5/1x --on a", "--rules: "}, {"top --redis R x", "unexpected argument"},
		{"top --redis R --prefix {a}", "write it without them"}, {"top --redis R --control-prefix {a}", "--control-prefix"}, {"top --nonsense", "unknown flag"},
	} {
		url := "redis://127.0.0.1:1"
		code, out, problem := run(t, strings.Fields(strings.ReplaceAll(c.args, "R", url))...)
		assert.Equal(t, []any{3, ""}, []any{code, out}, c.args)
		assert.Contains(t, problem, c.problem, c.args)
		assert.NotContains(t, problem, "secret")
	}
	for _, args := range []string{"top --rules 5/1m --on a", "inspect --key a --rules 5/1m --on a", "ban --list", "override --list"} {
		code, out, problem := runProcess(t, append(strings.Fields(strings.ReplaceAll(args, "5/1m", "5/1m_per_ip")), "--redis", "redis://127.0.0.1:1")...)
		if strings.Contains(args, "rules") {
			assert.Equal(t, 3, code, problem)
			continue
		}
		assert.Equal(t, []any{1, ""}, []any{code, out}, args)
		assert.Regexp(t, `^limitctl: .*connection refused: check --redis, and whether Redis runs there\n$`, problem, "one line")
	}
	_, problem := exits(t, 1, "top", "--file", "missing.yaml", "--redis", "redis://127.0.0.1:1")
	assert.Contains(t, problem, "missing.yaml")
}

func TestCompletion(t *testing.T) {
	for _, command := range []string{"inspect", "reset", "override", "ban"} {
		code, out, _ := run(t, "__complete", command, "")
		assert.Equal(t, []any{0, ":4\n"}, []any{code, out}, "no names of files")
	}
	for shell, word := range map[string]string{"bash": "__start_limitctl", "zsh": "#compdef limitctl", "fish": "complete -c limitctl"} {
		out, _ := exits(t, 0, "completion", shell)
		assert.Contains(t, out, word)
	}
	for _, command := range []string{"top", "inspect", "reset", "ban", "override"} {
		help, _ := exits(t, 0, command, "--help")
		assert.Contains(t, help, "Examples:\n  limitctl "+command)
		assert.Regexp(t, `(?i)exit\s+code\s+is\s+0`, help)
	}
}

// TestCompletesRules completes the words of rules, which come from the table of their
// attributes.
func TestCompletesRules(t *testing.T) {
	code, out, _ := run(t, "__complete", "top", "--rules", "5/2s per ip tok")
	assert.Zero(t, code)
	assert.Contains(t, out, "5/2s per ip token-bucket\n")
}
