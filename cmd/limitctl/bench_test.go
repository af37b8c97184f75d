package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/bench"
	"github.com/routelimit/limit/internal/redistest"
)

// patient lets a busy machine decide.
var patient = []string{"bench", "--yes", "--timeout", "30s"}

func runBench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, append(patient, args...)...)
}

func benchJSON(t *testing.T, args ...string) (result bench.Result) {
	t.Helper()
	code, out, problem := runBench(t, append(args, "--json")...)
	require.Equal(t, []any{0, ""}, []any{code, problem}, out)
	var raw struct {
		*bench.Result
		RoundTrip float64 `json:"round_trip_us"`
		Runs      []struct {
			bench.Run
			Latency map[string]float64 `json:"latency_us"`
			Script  float64            `json:"script_us"`
		} `json:"runs"`
	}
	raw.Result = &result
	require.NoError(t, json.Unmarshal([]byte(out), &raw))
	assert.Positive(t, raw.RoundTrip)
	for _, r := range raw.Runs {
		result.Runs = append(result.Runs, r.Run)
		l := r.Latency
		assert.Positive(t, l["p50"])
		assert.IsNonDecreasing(t, []float64{l["p50"], l["p90"], l["p99"], l["p99.9"], l["max"] * 1.04})
		assert.Positive(t, r.Decisions)
		assert.Positive(t, r.PerSecond)
		assert.Positive(t, r.Script)
		assert.Positive(t, r.PerCall)
		assert.Positive(t, r.ServerBusy)
		assert.Zero(t, r.Unanswered)
	}
	assert.NotEmpty(t, result.Why)
	assert.Contains(t, []string{bench.RedisCPU, bench.ClientCPU, bench.SharedCPU, bench.RoundTrip, bench.NotReached}, result.Limit)
	assert.Regexp(t, `^This Redis decides .* requests a second with .*\.$`, result.Summary)
	return result
}

// TestBench measures a server, and leaves nothing but the keys of other programs.
func TestBench(t *testing.T) {
	client := redistest.Real(t)
	require.NoError(t, client.Set(t.Context(), "limit-bench", "another program's", 0).Err())
	result := benchJSON(t, "--redis", "redis://"+client.Options().Addr, "--time", "1s", "--clients", "50")
	assert.Equal(t, client.Options().Addr, result.Server.Address)
	assert.True(t, result.Server.Local)
	assert.Equal(t, 50, result.Clients)
	assert.Equal(t, []string{"per-ip-1m: 100/1m per ip", "global-1m: 10000/1m global"}, result.Policies[0].Texts)
	runs := result.Runs
	require.GreaterOrEqual(t, len(runs), 4)
	for i, callers := range []int{1, 4, 16} {
		assert.Equal(t, callers, runs[i].Callers)
		assert.False(t, runs[i].Hot)
	}
	assert.True(t, runs[len(runs)-1].Hot)
	assert.Equal(t, []string{"limit-bench"}, client.Keys(t.Context(), "*").Val())
}

func TestBenchText(t *testing.T) {
	client := redistest.Real(t)
	code, out, problem := runBench(t, "--redis", "redis://"+client.Options().Addr, "--time", "300ms", "--callers", "1,3", "--rules", "7/1s per user")
	assert.Equal(t, 0, code, problem)
	assert.Regexp(t, `^Loads 127\.0\.0\.1:\d+, Redis \S+, on this machine for up to 300ms\.\n`, problem)
	assert.Regexp(t, `(?m)^Rules +per-user-1s: 7/1s per user$`, out)
	assert.Regexp(t, `(?m)^PING +[\d.]+ (µs|ms) \(p50\)$`, out)
	assert.Regexp(t, `(?m)^ +callers +decisions/s +p50 +p90 +p99 +p99\.9 +max +Redis busy +cores here +decisions/call$`, out)
	assert.Regexp(t, `(?m)^ +1 +[\d,]+ `, out)
	assert.Regexp(t, `(?m)^ +3 +[\d,]+ `, out)
	assert.Regexp(t, `(?m)^ +[13], one client +[\d,]+ `, out)
	assert.Regexp(t, `(?m)^The limit is `, out)
	assert.Regexp(t, `\nThis Redis decides .* with one rule.*; a lone decision takes .*\.\n$`, out)
	safe(t, out+problem)
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
}

// TestBenchPolicy decides with every algorithm, none of which refuses.
func TestBenchPolicy(t *testing.T) {
	client := redistest.Real(t)
	path := file(t, `version: 1
policies:
  windows: {routes: [/a], rules: ["a: 5/1m per ip", "b: 5/1h global fixed-window", "c: 5/1m per user sliding-counter", "d: 5/1m per ip sliding-cells", "e: 9/month per user zone UTC"]}
  buckets: {routes: [/b], rules: ["a: 5/1m per ip token-bucket burst 2", "b: 5/1m per user leaky-bucket", "c: 5/1s global queue wait 1s"]}
  others: {routes: [/c], rules: ["a: 3/10s per ip concurrency", "b: 2/1m global distinct query user", "c: 5/1m per ip ban 1m", "d: 10/1m per ip plan pro 20 reserve critical 3 exempt ip 10.0.0.0/8"]}
`)
	result := benchJSON(t, "--redis", "redis://"+client.Options().Addr, "--time", "600ms", "--clients", "20", "--callers", "8", "--policy", path)
	require.Len(t, result.Runs, 2)
	for _, r := range result.Runs {
		assert.Zero(t, r.Refused)
	}
	assert.Len(t, result.Policies, 3)
	assert.Contains(t, result.Summary, "with 3 policies in turn")
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
}

func TestBenchCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 2*time.Second)
	result := benchJSON(t, "--redis", "redis://"+nodes.Addrs()[0], "--cluster", "--spread", "6", "--time", "600ms", "--callers", "8")
	assert.Equal(t, 3, result.Server.Primary)
	for _, addr := range nodes.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		assert.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 0 }, 10*time.Second, 10*time.Millisecond, "replicas follow")
	}
}

// TestBenchInterrupted interrupts a long run: it deletes its keys all the same.
func TestBenchInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	client := redistest.Real(t)
	cmd := exec.Command(os.Args[0], append(patient, "--redis", "redis://"+client.Options().Addr, "--callers", "4", "--time", "10m")...)
	cmd.Env = append(os.Environ(), "LIMITCTL_TEST_MAIN=1")
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	require.NoError(t, cmd.Start())
	redistest.Await(t, 30*time.Second, "keys", func() bool { return client.DBSize(t.Context()).Val() > 0 })
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Empty(t, out.String())
	assert.True(t, strings.HasSuffix(problem.String(), "limitctl: interrupted\n"), problem.String())
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
}

// TestBenchRights has a Redis user that may not use the keys.
func TestBenchRights(t *testing.T) {
	client := redistest.Real(t)
	user := func(rights ...any) {
		require.NoError(t, client.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, rights...)...).Err())
	}
	args := []string{"--redis", "redis://app:secret@" + client.Options().Addr, "--time", "100ms", "--callers", "1"}
	user("~limit:*", "+@all")
	code, out, problem := runBench(t, args...)
	assert.Equal(t, []any{1, ""}, []any{code, out})
	assert.Contains(t, problem, "grant it +ping +scan +unlink and the keys ~limit-bench-*")

	user("~limit-bench-*", "+ping", "+scan", "+unlink")
	code, _, problem = runBench(t, args...)
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, "no decision by Redis: ")

	user("~limit-bench-*", "+ping", "+scan", "+unlink", "+evalsha", "+eval", "+time", "+mget", "+exists", "+get", "+getrange", "+set", "+psetex", "+setrange", "+pexpire", "+pttl", "+del")
	code, out, problem = runBench(t, args...)
	assert.Equal(t, 0, code, problem)
	assert.Contains(t, out, "Note: Redis gives no INFO")
	assert.NotContains(t, out+problem, "secret")
	assert.Empty(t, client.Keys(t.Context(), "*").Val())
}

func TestBenchDown(t *testing.T) {
	code, out, problem := run(t, "bench", "--yes", "--redis", "redis://app:secret@127.0.0.1:1")
	assert.Equal(t, []any{1, ""}, []any{code, out})
	assert.Equal(t, "Redis 127.0.0.1:1 cannot be reached: connection refused", problem)
	assert.NotContains(t, problem, "secret")
	code, _, problem = run(t, "bench", "--yes", "--redis", "redis://127.0.0.1:1", "--policy", "missing.yaml")
	assert.Equal(t, 1, code)
	assert.Contains(t, problem, "missing.yaml")
}

func TestBenchAskedWrongly(t *testing.T) {
	client := redistest.Real(t)
	url := "redis://" + client.Options().Addr
	for _, args := range [][]string{
		{}, {"now"}, {"--nonsense"}, {"--redis", "redis://app:secret@:port"}, {"--redis", url, "--rules", "5/1x per ip"},
		{"--redis", url, "--rules", "5/1s per ip", "--policy", "policy.yaml"}, {"--redis", url, "--time", "1ms"}, {"--redis", url, "--clients", "0"},
		{"--redis", url, "--callers", "0"}, {"--redis", url, "--callers", "1,x"}, {"--redis", url, "--callers", "1,"}, {"--redis", url, "--timeout", "0"}, {"--redis", url, "--spread", "3"},
	} {
		code, out, problem := runProcess(t, append([]string{"bench"}, args...)...)
		assert.Equal(t, 3, code, args)
		assert.Empty(t, out)
		assert.Contains(t, problem, "limitctl: ")
		assert.NotContains(t, problem, "secret")
	}
	code, _, problem := run(t, "bench", "--redis", url, "--callers", "1,x")
	assert.Equal(t, []any{3, "--callers 1,x: x is not a number from 1 to 10000: write numbers and commas, such as --callers 1,8,64"}, []any{code, problem})
	code, out, problem := runProcess(t, "bench", "--redis", url) // without --yes, and without a terminal
	assert.Equal(t, []any{2, ""}, []any{code, out})
	assert.Regexp(t, `^This loads 127\.0\.0\.1:.*\nIt ran \d+ commands? a second just before\. Programs that use it are slower meanwhile\.\n`, problem)
	assert.Contains(t, problem, "Nothing was done: without a terminal to ask on, write --yes.")
	assert.NotContains(t, client.Info(t.Context(), "commandstats").Val(), "evalsha")
}
