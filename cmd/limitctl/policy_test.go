package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/policyfile"
)

// run runs limitctl with arguments.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&problem)
	err := cmd.ExecuteContext(t.Context())
	code, print := exitCode(err)
	if print {
		problem.WriteString(err.Error())
	}
	return code, out.String(), problem.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const valid = "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 5/1m per header X-Key}\n"

func TestCheck(t *testing.T) {
	good, bad := file(t, valid), file(t, "version: 1\npolicies:\n  a: {rules: 5/1x per ip}\n  b: {rule: x}\n")
	code, out, problem := run(t, "check", good)
	assert.Equal(t, []any{0, "", ""}, []any{code, out, problem})
	code, out, problem = run(t, "check", good, bad, filepath.Dir(bad))
	assert.Equal(t, []any{1, ""}, []any{code, out})
	assert.Contains(t, problem, bad+":3:17: found \"x\", want a unit such as s, m, h or d\n\t  a: {rules: 5/1x per ip}\n\t                ^\n")
	assert.Contains(t, problem, bad+":4:7: unknown field \"rule\"")
	assert.Contains(t, problem, filepath.Dir(bad)+" is not a regular file")
	code, _, problem = run(t, "check")
	assert.Equal(t, 3, code)
	assert.Contains(t, problem, "limitctl check policy.yaml")
}

func TestExplain(t *testing.T) {
	good := file(t, valid)
	for _, args := range [][]string{{"POST", "/login"}, {"POST /login"}} {
		code, out, problem := run(t, append([]string{"explain", good, "--ip", "203.0.113.9", "--user", "alice", "--header", "X-Key: k"}, args...)...)
		assert.Equal(t, []any{0, ""}, []any{code, problem})
		assert.Contains(t, out, "POST /login from 203.0.113.9, user alice\n")
		assert.Contains(t, out, "policy login, by its route POST /login ("+good+":3:20)\n")
		assert.Contains(t, out, `key:     header X-Key "k"`)
	}
	for _, args := range [][]string{{}, {"login"}, {"/x", "--ip", "x"}, {"/x", "--header", "x"}, {"GE T /x"}, {"/\x7f"}} {
		code, _, problem := run(t, append([]string{"explain", good}, args...)...)
		assert.Equal(t, 3, code, args)
		assert.NotEmpty(t, problem, args)
	}
	code, _, problem := run(t, "explain", file(t, ""), "/x")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, ":1:1: the file is empty")
}

func TestSchema(t *testing.T) {
	code, out, _ := run(t, "schema")
	assert.Equal(t, 0, code)
	assert.Equal(t, string(policyfile.Schema()), out)
}

func TestPush(t *testing.T) {
	url := "redis://" + redistest.Real(t).Options().Addr
	code, _, problem := run(t, "push", file(t, valid), "--redis", url, "--by", "ann", "--for", "2h")
	assert.Equal(t, 0, code, problem)
	code, _, problem = run(t, "push", "--withdraw", "--redis", url, "--by", "bob")
	assert.Equal(t, 0, code, problem)
	code, _, problem = run(t, "push", "--withdraw", "--redis", url, "--by", "bob")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, `nothing is pushed as "policies"`)
	code, _, problem = run(t, "push", file(t, "x"), "--redis", url, "--by", "ann")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, "policy.yaml:1:2: ")
	for _, args := range [][]string{{}, {"a", "b", "--redis", url}, {"a", "--withdraw", "--redis", url}, {"a", "--redis", "x"}} {
		code, _, _ = run(t, append([]string{"push"}, args...)...)
		assert.Equal(t, 3, code, args)
	}
	code, out, problem := run(t, "history", "--redis", url)
	assert.Equal(t, 0, code, problem)
	assert.Regexp(t, `^\S+Z  "policies"  by "bob"  withdrawn\n\S+Z  "policies"  by "ann"  pushed until \S+Z\n$`, out)
}
