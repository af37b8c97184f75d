package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestDoctor(t *testing.T) {
	client := redistest.Real(t)
	url := "redis://" + client.Options().Addr

	code, out, problem := runDoctor(t, "--redis", url)
	assert.Equal(t, 1, code, "without persistence there is a warning: %s", out)
	assert.Empty(t, problem)
	assert.Contains(t, out, "warn     persistence")
	assert.Contains(t, out, "> redis-cli -h 127.0.0.1 -p ")
	assert.Contains(t, out, "  - write appendonly yes in its configuration file as well, or run CONFIG REWRITE\n", "what is no command has no mark of one")
	assert.NotContains(t, out, "fail  ")

	evil := lua.KeyPrefix("limit", "p", "r") + "\x1b[2J\u202e"
	require.NoError(t, client.Set(t.Context(), evil, "x", 0).Err())
	code, out, _ = runDoctor(t, "--redis", url)
	assert.Equal(t, 2, code)
	assert.Contains(t, out, `"limit:1:{p}:r:\x1b[2J\u202e"`)
	assert.NotContains(t, out, "\x1b")

	code, out, _ = runDoctor(t, "--redis", url, "--json")
	assert.Equal(t, 2, code)
	verdicts := make(map[string]string)
	for line := range strings.Lines(out) {
		var f struct{ Check, Verdict, Found, Why string }
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		assert.NotEmpty(t, f.Found)
		assert.NotEmpty(t, f.Why)
		verdicts[f.Check] = f.Verdict
	}
	assert.Equal(t, "fail", verdicts["keys-ttl"])
	assert.Equal(t, "ok", verdicts["eviction"])
	assert.NotContains(t, out, "\x1b")
	assert.NotContains(t, out, "\u202e")

	code, _, _ = runDoctor(t, "--redis", url, "--prefix", "other", "--keys", "0")
	assert.Equal(t, 1, code, "its keys are not checked")

	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "yes").Err())
	require.NoError(t, client.Del(t.Context(), evil).Err())
	require.Eventually(t, func() bool {
		code, out, _ = runDoctor(t, "--redis", url)
		return code == 0
	}, 20*time.Second, 100*time.Millisecond, "all is well")
	assert.Contains(t, out, " 0 warn, 0 fail, 0 skipped\n")
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
	assert.Contains(t, out, "fail     connect          dial tcp 127.0.0.1:1: connect: connection refused")
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
