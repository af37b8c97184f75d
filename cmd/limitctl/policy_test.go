package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/ops/policyfile"
)

// run runs limitctl with arguments.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&problem)
	code, text := exitCode(cmd.ExecuteContextC(t.Context()))
	problem.WriteString(text)
	return code, out.String(), problem.String()
}

// exits runs limitctl, and checks its exit code.
func exits(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t, args...)
	assert.Equal(t, want, code, "%s: %s", args, stderr)
	return stdout, stderr
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
	line := good + ": valid, sha256 " + sum(valid) + ", policies 1\n"
	assert.Equal(t, []any{0, line, ""}, []any{code, out, problem})
	code, out, problem = run(t, "check", good, bad, filepath.Dir(bad))
	assert.Equal(t, []any{1, line}, []any{code, out})
	assert.Contains(t, problem, bad+":3:17: found \"x\", want a unit such as s, m, h or d\n\t  a: {rules: 5/1x per ip}\n\t                ^\n")
	assert.Contains(t, problem, bad+":4:7: unknown field \"rule\"")
	assert.Contains(t, problem, filepath.Dir(bad)+" is not a regular file")
	_, _, problem = runProcess(t, "check", bad)
	assert.True(t, strings.HasPrefix(problem, bad+":3:17: "), problem)
	_, problem = exits(t, 3, "check")
	assert.Contains(t, problem, "limitctl check policy.yaml")
}

// TestCheckWith checks a file whose policy is with one of the program.
func TestCheckWith(t *testing.T) {
	text := "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 5/1m per header X-Key; with app}\n"
	code, out, problem := run(t, "check", file(t, text))
	assert.Contains(t, out, "valid")
	assert.Equal(t, []any{0, "with app: the program must declare the policy, since the file does not have it\n"}, []any{code, problem})
	_, problem = exits(t, 1, "check", file(t, text+"  app: {rules: 5/1m per path id}\n"))
	assert.Contains(t, problem, `:3:20: route "POST /login" has no {id}`)
}

// TestCheckWarnings checks what is valid, and admits more than before or than it seems.
func TestCheckWarnings(t *testing.T) {
	none, good := file(t, "version: 1\npolicies: none\n"), file(t, valid)
	code, out, problem := run(t, "check", none)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Contains(t, out, ", policies 0: programs limit nothing by it\n")
	for _, empty := range []string{"version: 1\npolicies: {}\n", "version: 1\npolicies:\n"} {
		_, problem = exits(t, 1, "check", file(t, empty))
		assert.Contains(t, problem, "policies")
	}
	code, _, problem = run(t, "check", none, "--replaces", good)
	assert.Equal(t, []any{0, "LIMIT-207: lifts policy login (5/1m per header X-Key)\n"}, []any{code, problem})
	code, _, problem = run(t, "check", good, "--replaces", none)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	_, problem = exits(t, 1, "check", good, "--replaces", file(t, "x"))
	assert.Contains(t, problem, ":1:2: ")
	exempts := file(t, "exempt: [10.0.0.0/8]\n"+valid)
	_, problem = exits(t, 0, "check", exempts, "--trusted", "10.0.0.5/32")
	assert.Contains(t, problem, `code=LIMIT-117 entries="10.0.0.0/8 (`+exempts+`:1:10) contains the trusted proxy 10.0.0.5/32"`)
	code, _, problem = run(t, "check", exempts, "--trusted", "192.0.2.5/32")
	assert.Equal(t, []any{0, ""}, []any{code, problem})

	// Patterns that no request matches.
	for pattern, instead := range map[string]string{"get /api/x": "GET", "/api/*": "{name}", "/v1/**": "{name}", "GET /shop/:id": "{name}"} {
		path := file(t, "version: 1\npolicies:\n  a:\n    routes: [\""+pattern+"\"]\n    rules: 5/1m per ip\n")
		code, out, problem := run(t, "check", path)
		assert.Equal(t, []any{1, ""}, []any{code, out})
		assert.Regexp(t, `^`+path+`:4:\d+: route "`+regexp.QuoteMeta(pattern)+`": .*: write `+regexp.QuoteMeta(instead)+`.*\n\s+routes: .*\n\s+\^$`, problem)
	}
}

// TestExplainAssumes checks that the output says what is not known of the program.
func TestExplainAssumes(t *testing.T) {
	path := file(t, "exempt: [127.0.0.0/8]\n"+valid)
	request := []string{"explain", path, "POST", "/login", "--header", "X-Forwarded-For: 203.0.113.9", "--ip", "127.0.0.1"}
	_, out, _ := run(t, request...)
	assert.Contains(t, out, "assumed: 127.0.0.1 is the client, and no proxy is between it and the program; name proxies by --trusted or --hops\nPOST /login from 127.0.0.1, no user\n")
	assert.Contains(t, out, "exempt by 127.0.0.0/8")
	for _, flags := range [][]string{{"--trusted", "127.0.0.1/32"}, {"--hops", "1"}, {"--hops", "1", "--proxy-header", "x-forwarded-for"}} {
		out, _ := exits(t, 0, append(request, flags...)...)
		assert.Contains(t, out, "POST /login from 203.0.113.9 through the proxy 127.0.0.1, no user\n")
		assert.NotContains(t, out, "assumed")
		assert.Contains(t, out, "exempt: no entry matches\n")
	}
	_, out, _ = run(t, append(request, "--trusted", "127.0.0.1/32")...)
	assert.Contains(t, out, "exempt 127.0.0.0/8 ("+path+":1:10) contains the trusted proxy 127.0.0.1/32")
	_, problem := exits(t, 3, append(request, "--proxy-header", "X-Real-IP")...)
	assert.Contains(t, problem, "is never read, because no proxy is trusted")
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
		_, problem := exits(t, 3, append([]string{"explain", good}, args...)...)
		assert.NotEmpty(t, problem, args)
	}
	_, problem := exits(t, 1, "explain", file(t, ""), "/x")
	assert.Contains(t, problem, ":1:1: the file is empty")
}

func TestSchema(t *testing.T) {
	out, _ := exits(t, 0, "schema")
	assert.Equal(t, string(policyfile.Schema()), out)
}

func TestPush(t *testing.T) {
	url := "redis://" + redistest.Real(t).Options().Addr
	note := "sha256 " + sum(valid) + ", policies 1"
	out, _ := exits(t, 0, "push", file(t, valid), "--redis", url, "--by", "ann", "--yes", "--for", "2h")
	assert.Regexp(t, `^pushed: "policies", `+note+`, until \S+Z\n$`, out)
	out, _ = exits(t, 0, "push", file(t, valid), "--redis", url, "--by", "ann", "--yes")
	assert.Equal(t, "pushed: \"policies\", "+note+", until it is withdrawn\n", out)
	fewer := file(t, "version: 1\npolicies:\n  other: {routes: [/], rules: 5/1m per ip}\n")
	code, _, problem := run(t, "push", fewer, "--redis", url, "--by", "ann", "--yes", "--name", "shop")
	assert.Equal(t, []any{0, ""}, []any{code, problem}, "nothing was pushed by this name")
	_, problem = exits(t, 1, "push", file(t, "version: 1\npolicies: {}\n"), "--redis", url, "--by", "ann", "--yes", "--name", "shop")
	assert.Contains(t, problem, "policies: none")
	code, _, problem = run(t, "push", file(t, valid), "--redis", url, "--by", "ann", "--yes", "--name", "shop")
	assert.Equal(t, []any{0, "LIMIT-207: lifts policy other (5/1m per ip)\n"}, []any{code, problem})
	for _, args := range [][]string{{"push", fewer, "--name", "shop"}, {"push", "--withdraw"}} {
		_, problem = exits(t, 2, append(args, "--redis", url, "--by", "ann")...)
		assert.Contains(t, problem, "Nothing was done: without a terminal to ask on, write --yes.")
	}
	out, _ = exits(t, 0, "push", "--withdraw", "--redis", url, "--by", "bob", "--yes")
	assert.Equal(t, "withdrawn: \"policies\"\n", out)
	_, problem = exits(t, 1, "push", "--withdraw", "--redis", url, "--by", "bob", "--yes")
	assert.Contains(t, problem, `nothing is pushed as "policies"`)
	_, problem = exits(t, 1, "push", file(t, "x"), "--redis", url, "--by", "ann", "--yes")
	assert.Contains(t, problem, "policy.yaml:1:2: ")
	for _, args := range [][]string{{}, {"a", "b", "--redis", url}, {"a", "--withdraw", "--redis", url}, {"a", "--redis", "x"}, {"a", "--redis", url, "--by", "ann", "--for", "-1s"}} {
		exits(t, 3, append([]string{"push"}, args...)...)
	}
	code, _, problem = run(t, "push", file(t, valid), "--redis", url, "--by", "")
	assert.Equal(t, []any{3, `--by "": write a name, such as --by ann, or set $USER`}, []any{code, problem})
	out, _ = exits(t, 0, "history", "--redis", url)
	assert.Regexp(t, `^\S+Z  file policies  by bob  withdrawn\n(\S+Z  file shop .*\n)+\S+Z  file policies  by ann  pushed until it is withdrawn +`+note+
		`\n\S+Z  file policies  by ann  pushed until \S+Z +`+note+`\n$`, out)
}

// TestHistory checks that the history has changes of all kinds.
func TestHistory(t *testing.T) {
	s := newServer(t)
	s.exits(t, 0, "ban", "user", "mallory", "--for", "0", "--by", "ann", "--yes")
	s.exits(t, 0, "override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice", "--limit", "5", "--for", "1h", "--by", "Ann B", "--yes")
	s.exits(t, 0, "ban", "--lift", "user", "mallory", "--by", "bob", "--yes")
	out, _ := exits(t, 0, "history", s.flags[0], s.flags[1])
	assert.Regexp(t, `(?m)^\S+Z  override "api" "per-user-1h" "alice"  by "Ann B"  set until \S+Z$`, out)
	assert.Regexp(t, `(?ms)^\S+Z  ban user mallory +by bob +ended$.*^\S+Z  ban user mallory +by ann +set until it is ended$`, out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	assert.Len(t, lines, 3)
	assert.True(t, slices.IsSortedFunc(lines, func(a, b string) int { return strings.Compare(b[:20], a[:20]) }), out)
}

// sum returns what programs log of a file that is in force.
func sum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// TestRedisDown checks that an unavailable Redis is one line.
func TestRedisDown(t *testing.T) {
	for _, args := range [][]string{{"push", file(t, valid), "--by", "ann", "--yes"}, {"history"}} {
		code, out, problem := runProcess(t, append(args, "--redis", "redis://127.0.0.1:1")...)
		assert.Equal(t, 1, code)
		assert.Empty(t, out)
		assert.Regexp(t, `^limitctl: Redis 127\.0\.0\.1:1 cannot be reached: connection refused: check --redis, and whether Redis runs there\n$`, problem)
	}
}

func TestCheckClasses(t *testing.T) {
	path := file(t, "version: 1\npolicies:\n  a: {rules: 9/1m global reserve vip 2}\n")
	_, problem := exits(t, 1, "check", path)
	assert.Contains(t, problem, path+":3:14: reserve vip: write one of the classes critical, default, background, or add it to limit.Options.Classes\n")
	exits(t, 0, "check", path, "--classes", "vip,default")
	_, problem = exits(t, 3, "check", path, "--classes", "vip")
	assert.Contains(t, problem, `with "default" for requests without a class`)
	for _, command := range []string{"check", "explain", "schema", "push", "history"} {
		exits(t, 3, command, "--unknown")
		help, _ := exits(t, 0, command, "--help")
		assert.Contains(t, help, "Examples:\n  limitctl "+command)
		assert.Regexp(t, `(?i)exit\s+code\s+is\s+0`, help)
	}
	exits(t, 3, "history", "x")
}

// TestExplainCaller checks plans, classes, proxies and overrides of a Redis.
func TestExplainCaller(t *testing.T) {
	path := file(t, "version: 1\npolicies:\n  api: {routes: [/], rules: 9/1m per ip plan pro 20 reserve vip 2 exempt user root}\n")
	args := []string{"explain", path, "GET", "/", "--ip", "10.0.0.2", "--trusted", "10.0.0.0/8", "--header", "X-Forwarded-For: 203.0.113.9", "--classes", "vip,default", "--plan", "pro"}
	code, out, problem := run(t, args...)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Contains(t, out, "GET / from 203.0.113.9 through the proxy 10.0.0.2, no user, plan pro\n")
	assert.Contains(t, out, "    key:     ip \"203.0.113.9\"\n    limit:   20: plan pro\n")
	_, out, _ = run(t, append(args, "--user", "root", "--class", "vip")...)
	assert.Contains(t, out, "exempt:  the rule neither charges nor refuses")
	_, problem = exits(t, 3, append(args, "--trusted", "x")...)
	assert.Contains(t, problem, `--trusted "x"`)

	client := redistest.Real(t)
	o := overrides.New(t.Context(), control.New(client, nil), nil)
	require.NoError(t, o.Set(t.Context(), overrides.Override{Policy: "api", Rule: "per-ip-1m", Key: "203.0.113.9", Limit: 50}, time.Hour, "bob"))
	out, _ = exits(t, 0, append(args, "--redis", "redis://"+client.Options().Addr)...)
	assert.Contains(t, out, "    limit:   50: an override of the key; without it 20: plan pro\n")
	exits(t, 1, append(args, "--redis", "redis://127.0.0.1:1")...)
}
