package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

const operating = "../../docs/operating.md"

// busy makes the clients of the guide.
func (s *server) busy(t *testing.T) {
	for range 6 {
		s.try(t, "203.0.113.9", "alice")
	}
	s.try(t, "198.51.100.7", "carol")
	for _, c := range []struct {
		user, plan string
		cost       int64
	}{{"alice", "", 950}, {"bob", "pro", 4900}, {"carol", "", 3}} {
		_, err := s.api.Take(t.Context(), limit.Request{Cost: c.cost, Plan: c.plan, Keys: map[string]string{"user": c.user, "ip": "192.0.2.1"}})
		require.NoError(t, err)
	}
}

var shownTime = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// comparable leaves out times, and the width of columns.
func comparable(text string) string {
	var lines []string
	for line := range strings.Lines(shownTime.ReplaceAllString(text, "TIME")) {
		words := strings.Fields(line)
		for i, w := range words {
			if d, err := time.ParseDuration(strings.TrimSuffix(w, ":")); err == nil && d.String() != "0s" || w == "0.0s:" {
				words[i] = "SPAN"
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// TestOperatingGuide runs the commands of docs/operating.md, and compares their output.
func TestOperatingGuide(t *testing.T) {
	page, err := os.ReadFile(operating)
	require.NoError(t, err)
	s := newServer(t)
	s.busy(t)
	t.Setenv("LIMITCTL_REDIS", s.flags[1])
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("policy.yaml", []byte(blocks(string(page), "yaml")[0]), 0o600))
	commands := 0
	for _, block := range blocks(string(page), "console") {
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			words := word.FindAllString(command, -1)
			if words[0] != "limitctl" {
				continue
			}
			for i := range words {
				words[i] = strings.Trim(words[i], `"'`)
			}
			code, out, problem := run(t, words[1:]...)
			assert.Equal(t, []any{0, ""}, []any{code, problem}, command)
			assert.Equal(t, comparable(strings.TrimRight(want, "\n")), comparable(strings.TrimRight(out, "\n")), "%s\n%s", command, out)
			commands++
		}
	}
	assert.GreaterOrEqual(t, commands, 10)
}

// TestOperatingFields checks that docs/limitctl-json.md has each field of JSON.
func TestOperatingFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/limitctl-json.md")
	require.NoError(t, err)
	fields := 0
	for _, file := range []string{"internal/live/state.go", "internal/live/top.go", "inspect.go", "change.go", "ban.go", "override.go", "top.go", "reset.go"} {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`json:\"([a-z_]+)").FindAllStringSubmatch(string(code), -1) {
			assert.Contains(t, string(page), "`"+found[1]+"`", file)
			fields++
		}
	}
	assert.Greater(t, fields, 40)
}

// TestOperatingRights runs commands as users without rights, and with those that their errors
// name, which are those of the guides.
func TestOperatingRights(t *testing.T) {
	s := newServer(t)
	s.busy(t)
	_, _, problem := s.run(t, "override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice", "--limit", "5000", "--for", "0", "--by", "ann", "--yes")
	require.Empty(t, problem)
	url := strings.Replace(s.flags[1], "redis://", "redis://look:pw@", 1)
	for _, args := range [][]string{
		{"top", "--at", "10"}, {"inspect", "--key", "alice"}, {"reset", "--policy", "login", "--key", "alice", "--yes"}, {"history"}, {"push", s.policy, "--by", "ann", "--yes"},
		{"ban", "user", "mallory", "--for", "1h", "--by", "ann", "--yes"}, {"override", "--list"},
	} {
		require.NoError(t, s.client.Do(t.Context(), "ACL", "SETUSER", "look", "reset", "on", ">pw", "+hello").Err())
		args = append(args, "--redis", url)
		if args[0] == "top" || args[0] == "inspect" || args[0] == "reset" {
			args = append(args, "--file", s.policy)
		}
		_, problem := exits(t, 1, args...)
		before, grant, ok := strings.Cut(problem, ": as an administrator of Redis, run ACL SETUSER look ")
		require.True(t, ok, problem)
		assert.Regexp(t, "^NOPERM this user has no permissions to run the '[a-z]+' command$", strings.ReplaceAll(before, "User look has", "this user has"))
		words := []any{"ACL", "SETUSER", "look"}
		for _, w := range strings.Fields(grant) {
			words = append(words, w)
		}
		require.NoError(t, s.client.Do(t.Context(), words...).Err())
		code, _, problem := run(t, args...)
		assert.Equal(t, []any{0, ""}, []any{code, problem}, args)
	}
	for path, rights := range map[string]string{operating: rightsOf("top", "shop", ""), "../../docs/watching.md": rightsOf("watch", "shop", ""), "../../docs/redis.md": rightsOf("ban", "shop", "")} {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", "")), " "), rights, path)
	}
}
