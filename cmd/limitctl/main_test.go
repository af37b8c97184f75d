package main

import (
	"bytes"
	"errors"
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
