package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// runDoctor runs limitctl doctor as a process of its own.
func runDoctor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runProcess(t, append([]string{"doctor"}, args...)...)
}

// runProcess runs limitctl as a process of its own.
func runProcess(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LIMITCTL_TEST_MAIN=1")
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), problem.String()
}

// judge runs limitctl doctor --json and returns the verdict of each check. It holds
// that the exit code follows from the verdicts.
func judge(t *testing.T, args ...string) (verdicts map[string]string, out string) {
	t.Helper()
	code, out, problem := runDoctor(t, append(args, "--json")...)
	assert.Empty(t, problem)
	verdicts = make(map[string]string)
	want := 0
	for line := range strings.Lines(out) {
		var f struct{ Check, Verdict, Found, Why string }
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		assert.NotEmpty(t, f.Found)
		assert.NotEmpty(t, f.Why)
		verdicts[f.Check] = f.Verdict
		want = max(want, map[string]int{"warn": 1, "fail": 2}[f.Verdict])
	}
	assert.Equal(t, want, code, out)
	// These judge the machine: its load, and the memory that other programs take.
	for _, check := range []string{"memory", "ping-latency", "script-latency"} {
		assert.Contains(t, verdicts, check)
		delete(verdicts, check)
	}
	return verdicts, out
}

// bad returns the checks that warn or fail.
func bad(verdicts map[string]string) []string {
	maps.DeleteFunc(verdicts, func(_, verdict string) bool { return verdict != "warn" && verdict != "fail" })
	return slices.Sorted(maps.Keys(verdicts))
}

func TestDoctor(t *testing.T) {
	client := redistest.Real(t)
	url := "redis://" + client.Options().Addr

	code, out, problem := runDoctor(t, "--redis", url)
	assert.NotEqual(t, 0, code, "without persistence there is a warning: %s", out)
	assert.Empty(t, problem)
	assert.Contains(t, out, "warn     persistence")
	assert.Contains(t, out, "> redis-cli -h 127.0.0.1 -p ")
	assert.Contains(t, out, "  - write appendonly yes in its configuration file as well, or run CONFIG REWRITE\n", "what is no command has no mark of one")

	evil := lua.KeyPrefix("limit", &core.Charge{Policy: "p", Rule: "r"}) + "\x1b[2J\u202e"
	require.NoError(t, client.Set(t.Context(), evil, "x", 0).Err())
	code, out, _ = runDoctor(t, "--redis", url)
	assert.Equal(t, 2, code)
	assert.Contains(t, out, `"limit:1:{p}:r:\x1b[2J\u202e"`)
	assert.NotContains(t, out, "\x1b")

	verdicts, out := judge(t, "--redis", url)
	assert.Equal(t, "ok", verdicts["eviction"])
	assert.Equal(t, "fail", verdicts["keys-ttl"])
	assert.NotContains(t, out, "\x1b")
	assert.NotContains(t, out, "\u202e")

	verdicts, _ = judge(t, "--redis", url, "--prefix", "other", "--keys", "0")
	assert.Equal(t, []string{"persistence"}, bad(verdicts), "its keys are not checked")

	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "yes").Err())
	require.NoError(t, client.Del(t.Context(), evil).Err())
	redistest.Await(t, time.Minute, "the append-only file", func() bool {
		info := client.Info(t.Context(), "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
	verdicts, out = judge(t, "--redis", url)
	assert.Empty(t, bad(verdicts), out)
}

func TestDoctorAsksTheDemo(t *testing.T) {
	code, out, _ := runDoctor(t, "--url", demo(t), "--route", "/algorithms/calendar", "--route", "/")
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, `ok       proxies          a forged address was given no new quota: remaining of "per-ip-day" was 99, 98, 97`)
	assert.Contains(t, out, `warn     routes           no RateLimit headers on "/" (200)`)
}

func TestDoctorDown(t *testing.T) {
	code, out, _ := runDoctor(t, "--url", "http://127.0.0.1:1", "--route", "/")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "fail     application      ")
	assert.Contains(t, out, "skipped  proxies          the application does not answer")

	code, out, problem := runDoctor(t, "--redis", "redis://app:secret@127.0.0.1:1")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "fail     connect          Redis 127.0.0.1:1 cannot be reached: connection refused")
	assert.Empty(t, problem)
	assert.NotContains(t, out, "secret")
}

func TestDoctorAskedWrongly(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--redis", "redis://app:secret@:port"}, {"--nonsense"}, {"now"}, {"--url", "here"},
		{"--redis", "redis://127.0.0.1:1", "--route", "/"}, {"--redis", "redis://127.0.0.1:1", "--keys", "-1"},
	} {
		code, out, problem := runDoctor(t, args...)
		assert.Equal(t, 3, code, args)
		assert.Empty(t, out)
		assert.Contains(t, problem, "limitctl: ")
		assert.NotContains(t, problem, "secret")
	}
}
