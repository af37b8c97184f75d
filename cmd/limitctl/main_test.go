package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"topp"}, {"topp", "--redis", "redis://127.0.0.1:1"}} {
		code, out, problem := run(t, args...)
		assert.Equal(t, []any{3, ""}, []any{code, out}, args)
		assert.Contains(t, problem, "unknown command \"topp\"")
		assert.Contains(t, problem, "\ttop\n")
	}
}

// scripts/install_test.sh checks the version of an installed limitctl.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"--version"})
	cmd.SetOut(&out)
	require.NoError(t, cmd.Execute())
	assert.Regexp(t, `^limitctl version \S+, built with `+runtime.Version()+"\n$", out.String())
}

// TestHelpFits checks that the help of every command fits a terminal of 80 columns.
func TestHelpFits(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		help, _ := exits(t, 0, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		for line := range strings.Lines(help) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "%s: %s", cmd.CommandPath(), line)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newCommand())
}

// TestPrintable checks that an excerpt of the library keeps its form, and that text from
// elsewhere is escaped.
func TestPrintable(t *testing.T) {
	_, text := exitCode(newCommand(), errors.New("\ta\tb\n\tc\td\n\t^\x1b[2J\u202e"))
	assert.Equal(t, "\\ta\\tb\n\tc\\td\n\t^\\x1b[2J\\u202e", text)

	_, problem := exits(t, 3, "ban", "0.0.0.0/1", "--for", "1m", "--by", "ann", "--yes")
	assert.Contains(t, problem, "each of /8 or longer\n\t0.0.0.0/1\n\t^")
	bad := file(t, "version: 1\npolicies:\n  a: {routes: [/a], rules: 5/1x per ip}\n")
	_, _, problem = run(t, "top", "--redis", "redis://127.0.0.1:1", "--file", bad)
	assert.Regexp(t, `\n\t +a: .*\n\t +\^`, problem)
}

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

// TestConfirm answers as a person does on a terminal.
func TestConfirm(t *testing.T) {
	s := newServer(t)
	was := isTerminal
	isTerminal = func(any) bool { return true }
	t.Cleanup(func() { isTerminal = was })
	answer := func(text string, args ...string) (int, string) {
		cmd := newCommand()
		var out bytes.Buffer
		cmd.SetArgs(append(args, s.flags[:2]...))
		cmd.SetIn(strings.NewReader(text))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		code, _ := exitCode(cmd.ExecuteContextC(t.Context()))
		return code, out.String()
	}
	for _, no := range []string{"n\n", "\n", "", "yesterday\n"} {
		code, out := answer(no, "ban", "203.0.113.9", "--for", "1h", "--by", "ann")
		assert.Equal(t, 2, code, no)
		assert.Equal(t, "This bars 203.0.113.9 on all instances for 1h0m0s.\nGo on? [y/N] Nothing was done.\n", out)
	}
	code, out := answer("y\n", "ban", "203.0.113.9", "--for", "1h", "--by", "ann")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "Go on? [y/N] banned: 203.0.113.9 for 1h0m0s, by ann\n")
	code, out = answer("YES", "ban", "--lift", "203.0.113.9", "--by", "ann")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "lifted: 203.0.113.9\n")

	cmd := newCommand() // and one that interrupts it
	ctx, cancel := context.WithCancel(t.Context())
	in, never := io.Pipe()
	defer never.Close()
	cmd.SetIn(in)
	asked := &notify{text: "[y/N] ", then: cancel}
	cmd.SetErr(asked)
	cmd.SetArgs(append([]string{"ban", "203.0.113.9", "--for", "1h", "--by", "ann"}, s.flags[:2]...))
	code, _ = exitCode(cmd.ExecuteContextC(ctx))
	assert.Equal(t, 2, code)
}

// A notify calls a function when a text is written to it.
type notify struct {
	text string
	then func()
}

func (n *notify) Write(b []byte) (int, error) {
	if strings.Contains(string(b), n.text) {
		n.then()
	}
	return len(b), nil
}
