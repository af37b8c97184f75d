package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
