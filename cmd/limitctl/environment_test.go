package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tests name their servers themselves.
func init() {
	os.Unsetenv("LIMITCTL_REDIS")
	os.Unsetenv("LIMITCTL_PREFIX")
}

// TestEnvironment runs commands without --redis and --prefix.
func TestEnvironment(t *testing.T) {
	s := newServer(t)
	s.try(t, "203.0.113.9", "alice")
	require.NoError(t, s.client.Do(t.Context(), "ACL", "SETUSER", "default", ">secret").Err())
	url := strings.Replace(s.flags[1], "redis://", "redis://default:secret@", 1)
	t.Setenv("LIMITCTL_REDIS", url)
	for _, args := range [][]string{
		{"push", s.policy, "--by", "ann", "--yes"}, {"history"}, {"explain", s.policy, "POST /login"},
		{"top", "--at", "1"}, {"inspect", "--key", "alice"}, {"reset", "--key", "alice", "--yes"},
		{"ban", "--list"}, {"override", "--list"},
	} {
		exits(t, 0, args...)
	}
	_, out, _ := run(t, "top")
	assert.NotContains(t, out, "looked at 0 keys")
	_, out, _ = run(t, "top", "--prefix", "other")
	assert.Contains(t, out, "looked at 0 keys")
	code, out, _ := run(t, "doctor")
	assert.NotEqual(t, 3, code)
	assert.Contains(t, out, "ok       connect")

	t.Setenv("LIMITCTL_PREFIX", "other")
	_, out, _ = run(t, "top")
	assert.Contains(t, out, "looked at 0 keys")
	_, out, _ = run(t, "top", "--prefix", "limit")
	assert.NotContains(t, out, "looked at 0 keys", "a flag wins")
	for _, args := range [][]string{{"top", "--redis", "redis://127.0.0.1:1"}, {"watch", "--redis", "redis://127.0.0.1:1"}} {
		code, _, problem := run(t, args...)
		assert.Equal(t, []any{1, "Redis 127.0.0.1:1 cannot be reached: connection refused: check --redis, and whether Redis runs there"}, []any{code, problem}, "a flag wins")
	}
	_, problem := exits(t, 3, "top", "--redis", "")
	assert.Contains(t, problem, "or set LIMITCTL_REDIS")

	for _, command := range []string{"doctor", "top", "inspect", "reset", "ban", "override", "watch", "push", "history", "explain"} {
		_, help, _ := run(t, command, "--help")
		assert.Regexp(t, `without\s+it,\s+LIMITCTL_REDIS\s+of\s+the\s+environment`, help, command)
		assert.NotContains(t, help, "default:secret", command)
		assert.Contains(t, help, "LIMITCTL_PREFIX", command)
	}
	_, help, _ := run(t, "demo", "--help")
	assert.NotContains(t, help, "LIMITCTL_REDIS", "it would mix its quotas with those of programs")
}

func TestUnreachable(t *testing.T) {
	path := file(t, valid)
	for _, args := range []string{"top", "inspect --key x", "ban --list", "history", "push FILE --by a --yes", "push --withdraw --by a --yes", "explain FILE GET /", "watch",
		"top --cluster", "history --cluster", "watch --cluster"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel() // each tries for a second
			code, out, problem := run(t, append(strings.Fields(strings.ReplaceAll(args, "FILE", path)), "--redis", "redis://u:secret@127.0.0.1:1")...)
			assert.Equal(t, []any{1, "", "Redis 127.0.0.1:1 cannot be reached: connection refused: check --redis, and whether Redis runs there"}, []any{code, out, problem})
		})
	}
}
