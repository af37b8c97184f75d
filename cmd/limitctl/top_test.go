package main

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTop(t *testing.T) {
	s := newServer(t)
	for range 6 {
		s.try(t, "203.0.113.9", "alice")
	}
	s.try(t, "2001:db8:1:2:3::4", "bob")
	code, out, problem := s.run(t, "top")
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Regexp(t, `(?s)^20\S+Z  rules of `+regexp.QuoteMeta(s.policy)+`
looked at 4 keys in 0\.\ds: 4 of these rules
1 at 80% or more, or refused

POLICY  RULE       USED  OF        FULL AGAIN IN  REFUSED FOR  KEY
login   per-ip-1m  5     5   100%  \S+ +\S+ +203.0.113.9\n$`, out)
	out, _ = s.exits(t, 0, "top", "--at", "5", "--json", "--n", "3")
	assert.Equal(t, fmt.Sprintf(`{
  "rules": %q,
  "at": "TIME",
  "seconds": 0,
  "looked_at": 4,
  "partial": false,
  "known": 4,
  "near": 4,
  "other": 0,
  "keys": [
    {
      "policy": "login",
      "rule": "per-ip-1m",
      "key": "203.0.113.9",
      "limit": 5,
      "capacity": 5,
      "used": 5,
      "used_percent": 100,
      "refused": true,
      "refused_until": "TIME",
      "full_at": "TIME"
    },
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
    },
    {
      "policy": "login",
      "rule": "per-ip-1m",
      "key": "2001:db8:1:2::/64",
      "limit": 5,
      "capacity": 5,
      "used": 1,
      "used_percent": 20,
      "refused": false,
      "full_at": "TIME"
    }
  ]
}
`, s.policy), timeless(out))
	out, _ = exits(t, 0, "top", s.flags[0], s.flags[1])
	assert.Contains(t, out, "No rules are known: name them by --file, or by --rules and --on.\nlooked at 4 keys")
	assert.Contains(t, out, "keys of rules that are not known:\n  2 of policy login, rule per-ip-1m\n  2 of policy login, rule per-user-1h\n")

	exits(t, 0, "push", s.policy, "--by", "ann", "--yes", s.flags[0], s.flags[1])
	out, _ = exits(t, 0, "top", s.flags[0], s.flags[1])
	assert.Contains(t, out, "rules of the pushed file \"policies\"\nlooked at 4 keys", "without those of the pushed file")
	code, _, problem = run(t, "top", "--name", "shop", s.flags[0], s.flags[1])
	assert.Equal(t, []any{3, `nothing is pushed as "shop": write --name policies, or name the rules by --file or --rules`}, []any{code, problem})
}

// TestTopCounts checks that top counts no bans, and says what else it has looked at.
func TestTopCounts(t *testing.T) {
	s := newServer(t)
	_, out, _ := s.run(t, "top")
	assert.Contains(t, out, "looked at 0 keys")
	assert.Contains(t, out, "no quota is in use under the prefix limit: check --prefix, and the server and the database of --redis\n")
	s.try(t, "203.0.113.9", "alice")
	code, _, problem := s.run(t, "ban", "203.0.113.9", "--for", "1h", "--by", "ann", "--yes")
	require.Equal(t, 0, code, problem)
	_, out, _ = s.run(t, "top")
	assert.Contains(t, out, "looked at 2 keys")
	assert.NotContains(t, out, "check --prefix")
	assert.NotContains(t, out, "other keys")
	require.NoError(t, s.client.Set(t.Context(), "limit:cache", "x", 0).Err())
	_, out, _ = s.run(t, "top")
	assert.Contains(t, out, "looked at 3 keys")
	assert.Contains(t, out, "other keys under the prefix, without a quota: 1 (")
	_, out, _ = s.run(t, "top", "--prefix", "shop")
	assert.Contains(t, out, "no quota is in use under the prefix shop: check --prefix")
}

// TestTopOfOne finds a client by its address, and says which rules there are.
func TestTopOfOne(t *testing.T) {
	s := newServer(t)
	s.try(t, "2001:db8:1:2::3", "alice")
	s.try(t, "203.0.113.9", "bob")
	_, out, _ := s.run(t, "top", "--key", "2001:db8:1:2::9", "--at", "1")
	assert.Contains(t, out, "2001:db8:1:2::/64\n")
	assert.NotContains(t, out, "203.0.113.9")
	_, problem := s.exits(t, 3, "top", "--policy", "logn")
	assert.Contains(t, problem, `no policy "logn"`)
}

// TestTopOfOthers checks that top shows the other keys if one has no state.
func TestTopOfOthers(t *testing.T) {
	s := newServer(t)
	for range 5 {
		s.try(t, "203.0.113.9", "alice")
	}
	require.NoError(t, s.client.HSet(t.Context(), "limit:1:{login}:per-ip-1m:203.0.113.10", "a", "b").Err())
	require.NoError(t, s.client.Set(t.Context(), "limit:1:{login}:per-ip-1m:203.0.113.11", "garbage!", time.Minute).Err())
	code, out, problem := s.run(t, "top")
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Contains(t, out, "looked at 4 keys")
	assert.Contains(t, out, "2 of these rules")
	assert.Contains(t, out, "203.0.113.9\n")
	assert.Contains(t, out, "2 keys have the name of a state, but something else in them")
	_, out, _ = s.run(t, "top", "--json")
	assert.Contains(t, out, `"invalid": 2`)
	_, problem = s.exits(t, 1, "inspect", "--key", "203.0.113.10")
	assert.Contains(t, problem, "limit:1:{login}:per-ip-1m:203.0.113.10 is of another type")
}
