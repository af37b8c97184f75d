package main

import (
	"bytes"
	"runtime"
	"testing"

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
