package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/internal/must"
)

var update = flag.Bool("update", false, "write testdata anew")

const (
	handMade  = "testdata/simulate/access.log"
	oldPolicy = "testdata/simulate/policy.yaml"
	newPolicy = "testdata/simulate/new.yaml"
)

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "simulate", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	assert.Equal(t, string(want), got, "if this is right: go test -run Simulate -update .")
}

// safe checks that a text has nothing that a terminal obeys.
func safe(t *testing.T, text string) {
	t.Helper()
	for _, c := range text {
		if c != '\n' && c != '\t' && !unicode.IsPrint(c) {
			t.Errorf("%q in the output", c)
		}
	}
}

func TestSimulateText(t *testing.T) {
	code, out, problem := run(t, "simulate", "--file", oldPolicy, "--compare", newPolicy, "--suggest", handMade)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	golden(t, "report.txt", out)
	safe(t, out)
	code, out, problem = run(t, "simulate", handMade)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	golden(t, "suggestions.txt", out)
	out, _ = exits(t, 0, "simulate", "--rules", "5/1m per ip", "--top", "1", handMade)
	golden(t, "rules.txt", out)
	line := `192.0.2.1 - - [01/May/2024:12:00:01 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	far := strings.Replace(line, "2024", "2250", 1)
	for lines, text := range map[string]string{"1 line": line, "4 lines": line + line + far + far} {
		out, _ = exits(t, 0, "simulate", "--rules", "1/1m per ip", "--suggest", logFile(t, text))
		assert.Contains(t, out, lines+" in ")
	}
}

// TestSimulateAnswer checks figures that are counted by hand: 203.0.113.9 sends 25 logins
// in 25 seconds, 192.0.2.77 sends 6, bob is exempt from the old policy, and 192.0.2.66 is
// barred by it.
func TestSimulateAnswer(t *testing.T) {
	code, out, problem := run(t, "simulate", "--file", oldPolicy, "--compare", newPolicy, "--json", handMade)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	golden(t, "report.json", out)
	safe(t, out)
	var top map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &top))
	assert.Equal(t, []any{50., 2., 47., 22.}, []any{top["lines"], top["bad_lines"], top["requests"], top["refused"]})
	var r replay.Result
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	assert.Equal(t, []int64{8, 1, 3}, []int64{r.Exempt, r.Barred, r.RefusedClients})
	c := r.Refusals[0]
	assert.Equal(t, []any{"203.0.113.9", int64(20), 55 * time.Second}, []any{c.Address, c.Refused, c.Longest})
	assert.Equal(t, []int64{7, 1, 15}, []int64{r.Comparison.OnlyOld, r.Comparison.OnlyNew, r.Comparison.BothRefuse})
	assert.Empty(t, r.Suggestions)
	for _, want := range []string{`policy "attached" of ` + oldPolicy + ` has no routes`, `policy "unused" matches no request`} {
		assert.Contains(t, strings.Join(r.Notes, "\n"), want)
	}
}

func TestSimulateStandardInput(t *testing.T) {
	text := must.Get(os.ReadFile(handMade))(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(text)
	w.Close()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"simulate", "--rules", "1/1s per ip", "-"})
	cmd.SetIn(&packed)
	cmd.SetOut(&out)
	require.NoError(t, cmd.Execute())
	assert.Contains(t, out.String(), "50 lines in the standard input, 96.0% of them read as combined.")
}

// TestSimulateSuggestsFromInput reads the standard input a second time, from a copy that it
// removes, and says the same as of the file.
func TestSimulateSuggestsFromInput(t *testing.T) {
	text := must.Get(os.ReadFile(handMade))(t)
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"simulate", "-"})
	cmd.SetIn(bytes.NewReader(text))
	cmd.SetOut(&out)
	require.NoError(t, cmd.Execute())
	want, _ := exits(t, 0, "simulate", handMade)
	assert.Equal(t, strings.ReplaceAll(want, handMade, "the standard input"), out.String())
	left := must.Get(os.ReadDir(os.TempDir()))(t)
	assert.Empty(t, left)
}

// TestSimulatePipe suggests limits from a pipe, which it cannot read twice, and does not say what
// they would have refused.
func TestSimulatePipe(t *testing.T) {
	text := must.Get(os.ReadFile(handMade))(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	go func() {
		write.Write(text)
		write.Close()
	}()
	defer read.Close()
	out, _ := exits(t, 0, "simulate", fmt.Sprint("/dev/fd/", read.Fd()))
	assert.Contains(t, out, "REFUSED")
	assert.Regexp(t, `per ip +– +–`, out)
}

// TestSimulateTop bounds each list of a report.
func TestSimulateTop(t *testing.T) {
	out, _ := exits(t, 0, "simulate", "--file", oldPolicy, "--compare", newPolicy, "--suggest", "--top", "1", handMade)
	for _, section := range strings.Split(out, "\n\n")[1:] {
		name, list, _ := strings.Cut(section, "\n")
		switch rows := strings.Count(strings.TrimSuffix(list, "\n"), "\n"); {
		case name == "NOTES" || name == "WHEN" || name == "SUGGESTIONS" || name == "WHAT THE NEW POLICY CHANGES":
		case name == "BAD LINES":
			assert.Zero(t, rows, section)
		case strings.HasPrefix(list, "WINDOW"):
			assert.Equal(t, "all routes, per ip: 47 requests of 6 clients, 25 of one", name)
		default: // a head, a row, and how many more there are
			assert.LessOrEqual(t, rows, 2, section)
		}
	}
}

// TestSimulateSilentInput interrupts a command that waits for a silent writer.
func TestSimulateSilentInput(t *testing.T) {
	lines := must.Get(os.ReadFile(handMade))(t)
	for name, sent := range map[string][]byte{"nothing": nil, "lines": lines} {
		t.Run(name, func(t *testing.T) {
			in, writer := io.Pipe()
			defer writer.Close() // only after the command has ended
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				writer.Write(sent)
				cancel()
			}()
			cmd := newCommand()
			cmd.SetArgs([]string{"simulate", "--rules", "1/1s per ip", "-"})
			cmd.SetIn(in)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			assert.ErrorIs(t, cmd.ExecuteContext(ctx), context.Canceled)
		})
	}
}

func TestSimulateIPv6Prefix(t *testing.T) {
	path := logFile(t, `2001:db8:0:1::1 - - [01/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1
2001:db8:0:2::1 - - [01/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1
`)
	for args, want := range map[string]string{"": `"refused": 0,`, "--ipv6-prefix 48": `"refused": 1,`} {
		out, _ := exits(t, 0, slices.Concat([]string{"simulate", "--json", "--rules", "1/1h per ip", path}, strings.Fields(args))...)
		assert.Contains(t, out, want, args)
	}
}

// TestSimulateProxies counts the first address from the right that is no proxy, whatever a
// client itself writes into X-Forwarded-For, and a client that no proxy has seen as itself.
func TestSimulateProxies(t *testing.T) {
	line := func(peer, forwarded string) string {
		return peer + ` - - [01/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "x" "` + forwarded + `"` + "\n"
	}
	text := line("10.0.0.5", "203.0.113.9") + line("10.0.0.5", "1.2.3.4, 203.0.113.9") + line("10.0.0.6", "203.0.113.9, 192.0.2.1") +
		line("198.51.100.7", "203.0.113.9") + line("10.0.0.5", "-") + line("10.0.0.5", "nonsense")
	json := `{"time":"2026-11-01T10:00:00Z","remote_addr":"10.0.0.5","x_forwarded_for":"1.2.3.4, 203.0.113.9, 192.0.2.1","method":"GET","uri":"/"}` + "\n"
	caddy := `{"ts":1646861401.5,"request":{"remote_ip":"10.0.0.5","client_ip":"10.0.0.5","method":"GET","uri":"/","headers":{"X-Forwarded-For":["1.2.3.4","203.0.113.9"]}},"status":200}` + "\n"
	traefik := `{"ClientHost":"10.0.0.5","RequestMethod":"GET","RequestPath":"/","StartUTC":"2024-02-01T09:00:00Z","request_X-Forwarded-For":"1.2.3.4, 203.0.113.8"}` + "\n"
	for _, c := range []struct {
		log, args string
		clients   int
	}{
		{caddy + traefik, "--proxies 10.0.0.0/8", 2},
		{text, "", 3},                     // the peers
		{text, "--proxies 10.0.0.0/8", 4}, // 203.0.113.9, 192.0.2.1, 198.51.100.7 and the proxy
		{text, "--proxies 10.0.0.0/8,192.0.2.1", 3},
		{json + json, "--proxies 10.0.0.5 --proxies 192.0.2.0/24", 1},
	} {
		out, _ := exits(t, 0, slices.Concat([]string{"simulate", "--json", logFile(t, c.log)}, strings.Fields(c.args))...)
		assert.Contains(t, out, fmt.Sprintf(`"clients": %d,`, c.clients), c.args)
	}
	out, _ := exits(t, 0, "simulate", "--rules", "1/1h per ip", "--proxies", "10.0.0.0/8,192.0.2.0/24", logFile(t, json+json))
	assert.Contains(t, out, "203.0.113.9")
}

// TestSimulateUnread has a log among others that cannot be read: the report is about the others,
// and a script knows that one is missing.
func TestSimulateUnread(t *testing.T) {
	good := logFile(t, strings.Repeat(`203.0.113.9 - - [10/Oct/2024:13:55:36 +0000] "POST /api HTTP/1.1" 200 12 "-" "x"`+"\n", 4))
	unread := logFile(t, "\x1f\x8b broken")
	for _, args := range [][]string{{unread}, {t.TempDir()}, {unread, t.TempDir()}, {logFile(t, "hello\n")}} {
		args = append([]string{"simulate", "--rules", "1/1h per ip", good}, args...)
		code, out, problem := run(t, args...)
		assert.Equal(t, 1, code)
		assert.True(t, strings.HasPrefix(out, "4 lines in "+words.Cut(good, 60)+", all read as combined.\n"), out)
		assert.Contains(t, out, "would have refused 3 requests")
		for _, path := range args[4:] {
			assert.Contains(t, out, "- not read: "+path)
			assert.Contains(t, problem, path)
		}
		exits(t, 1, append(args, "--json")...)
	}
}

// logFile writes a log.
func logFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestSimulateUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "name a log"},
		{"--file p --rules r LOG", "--file and --rules"},
		{"--compare c LOG", "--compare: name the policy"},
		{"--top 0 LOG", "--top 0"},
		{"--share 100 LOG", "--share 100"},
		{"--share NaN LOG", "--share NaN"},
		{"--ipv6-prefix 8 LOG", "--ipv6-prefix 8: write 32 to 128"},
		{"--max-keys 0 LOG", "--max-keys 0: write 1"},
		{"--proxies 10.0.0.5/8 LOG", "--proxies \"10.0.0.5/8\": write a network or an address, such as 10.0.0.0/8"},
		{"--proxies 10.0.0.0/40 LOG", `--proxies "10.0.0.0/40": write a network`},
		{"--format nginx LOG", `"nginx" is unknown: write common, combined, `},
		{"--rules 5/1x LOG", "--rules: "},
		{"--nothing LOG", "unknown flag"},
		{"--top x LOG", "invalid argument"},
	} {
		args := strings.Fields(strings.ReplaceAll("simulate "+c.args, "LOG", handMade))
		code, out, problem := run(t, args...)
		assert.Equal(t, []any{3, ""}, []any{code, out}, c.args)
		assert.Contains(t, problem, c.want, c.args)
	}
	out, _ := exits(t, 0, "simulate", "--help")
	assert.Contains(t, out, `limitctl simulate --rules "100/1m per ip" access.log`)
}

func TestSimulateBadInput(t *testing.T) {
	run := func(args ...string) (int, string, string) {
		code, out, problem := run(t, append([]string{"simulate"}, args...)...)
		safe(t, out)
		safe(t, problem)
		return code, out, problem
	}
	code, out, problem := run(logFile(t, ""))
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Contains(t, out, "The log is empty: there are no lines in ")
	_, out, _ = run("--json", logFile(t, ""))
	assert.NotContains(t, out, "0001-01-01")

	code, out, problem = run(logFile(t, "\x1b[2Jhello\nworld\n"))
	assert.Equal(t, []any{1, ""}, []any{code, out})
	assert.Contains(t, problem, "no known log format reads this log: tried common, combined, ")
	assert.Contains(t, problem, `the first line is "\x1b[2Jhello"`)

	code, out, problem = run("--format", "json", handMade)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "50 lines in testdata/simulate/access.log, 0% of them read as requests.\nThe first of 50 unread lines is line 1: ")
	assert.Contains(t, problem, `no line of the log has the format "json"`)

	code, _, problem = run("no\x1bwhere.log")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, "matches no file")

	other := file(t, "version: 1\npolicies:\n  a: {routes: [GET /nowhere], rules: 1/1s per ip}\n")
	code, out, _ = run("--file", other, handMade)
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "policy.yaml matches no request of the log, so nothing is refused.\n")
	assert.Contains(t, out, "- policy \"a\" matches no request of the log: its routes are GET /nowhere\n")

	code, out, _ = run("--file", file(t, "version: 1\npolicies: none\n"), handMade)
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "has no policy with routes, and so refuses nothing")

	code, _, problem = run("--file", file(t, "version: 1\npolicies:\n  a: {rules: 5/1x per ip}\n"), handMade)
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, `policy.yaml:3:17: found "x", want a unit`)

	lines := strings.Repeat(`192.0.2.1 - - [01/May/2024:12:00:01 +0000] "GET / HTTP/1.1" 200 1`+"\n", 3)
	code, out, _ = run("--file", file(t, "version: 1\nexempt: [192.0.2.0/24]\npolicies:\n  a: {routes: [GET /], rules: 1/1m per ip}\n"), logFile(t, lines))
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "would have refused nothing.\n3 requests would have been exempt")
	assert.NotContains(t, out, "matches no request")

	wrong := `192.0.2.1 - - [01/May/9999:12:00:01 +0000] "GET / HTTP/1.1" 200 1` + "\n" + strings.Repeat("x", 1<<21) + "\n"
	code, out, _ = run("--rules", "1/1m per ip", logFile(t, lines+wrong))
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "would have refused 2 requests (66.7%), of 1 client (100%).")
	assert.Contains(t, out, "1 lines have a time before 1970 or after 2255")
}

// TestSimulateCanceled checks that an interrupted run reports what it has read.
func TestSimulateCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	go func() {
		defer feed.Close()
		for i := range 40_000 {
			if i == 20_000 {
				cancel()
			}
			fmt.Fprintf(feed, "192.0.2.1 - - [01/May/2024:12:%02d:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", i/1000, i/20%60)
		}
	}()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"simulate", "--rules", "5/1m per ip", "-"})
	cmd.SetIn(in)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(ctx)
	in.Close()
	require.ErrorIs(t, err, context.Canceled)
	code, text := exitCode(cmd, err)
	assert.Equal(t, 1, code)
	assert.Regexp(t, `^stopped after \d+ lines: context canceled$`, text)
	assert.Contains(t, out.String(), "Stopped before the end of the log (interrupted)")
	assert.Contains(t, out.String(), "5/1m per ip would have refused ")
}
