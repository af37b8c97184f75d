package proof

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

// A mutant is a fault put into one file of the library.
type mutant struct {
	name     string
	file     string
	from, to string
	packages string // whose tests must fail, separated by spaces
}

const (
	memory = "./core ./memstore"
	redis7 = "./redisstore"
)

var mutants = []mutant{
	// The script.
	{"charges the rules that pass although another refuses", "lua/take.lua",
		"if verdict >= 1 and cost > 0 then", "if cost <= room[k] and cost > 0 then", redis7},
	{"charges refused requests", "lua/take.lua", "if verdict >= 1 and cost > 0 then", "if cost > 0 then", redis7},
	{"admits one more than the limit", "lua/take.lua", "elseif cost > room[k] and", "elseif cost > room[k] + 1 and", redis7},
	{"keeps a unit one microsecond too long", "lua/slidinglog.lua", "until age < span", "until age <= span", redis7},
	{"keeps a unit of a ring one microsecond too long", "lua/ring.lua",
		"high < s.live and now - time_at(s, high) >= window", "high < s.live and now - time_at(s, high) > window", redis7},
	{"forgets a unit one microsecond too early", "lua/slidinglog.lua", "until age < span", "until age < span - 1", redis7},
	{"sets no TTL", "lua/slidinglog.lua", "call('PSETEX', keys[k], ttl, ", "call('SET', keys[k], ", redis7},
	{"sets no TTL on rings", "lua/ring.lua", "then call('PEXPIRE', key, ttl) end", "then end", redis7},
	{"does not date entries ahead of now now", "lua/slidinglog.lua", "if t > now then t, ahead = now, true end", "", redis7},
	{"does not keep the new dates of a refusal", "lua/slidinglog.lua", "(n > 0 or redated[k])", "n > 0", redis7},
	{"overwrites values of other types", "lua/state.lua", "call('EXISTS', unpack(missing)) > 0", "false", redis7},
	{"reads a ring by a limit that has changed", "lua/ring.lua", "u24(header, 2) == rule.limit and\n", "true and\n", redis7},
	{"tells clients to come back too early", "lua/take.lua", "rule.as.after(rule, k, cost - left, now)", "rule.as.after(rule, k, 1, now)", redis7},
	{"decides a batch as if each were alone", "lua/slidinglog.lua", "= room[k] - n, taken[k] + n", "= room[k], taken[k] + n", redis7},
	{"lets ticks wrap around", "lua/take.lua", "local short = window < 4294967296", "local short = true", redis7},

	// Its client side.
	{"sends the client's clock", "redisstore/redisstore.go", `now:        func() string { return "" }`,
		`now:     func() string { return time.Now().Format("20060102150405") }`, redis7},
	{"repeats a call whose reply is lost", "redisstore/run.go", "NoRetry() bool { return true }", "NoRetry() bool { return false }", redis7},
	{"fails when the script is not loaded", "redisstore/run.go", `"NOSCRIPT "`, `"NEVER "`, redis7},
	{"repeats a call after any error", "redisstore/run.go", `redis.HasErrorPrefix(err, "NOSCRIPT ")`, "err != nil", redis7},
	{"waits as long as the client does", "redisstore/run.go", "if s.deadlines {", "if true {", redis7},
	{"takes the verdict of another call", "redisstore/redisstore.go", "last < 0 || reply[last] != number", "last < 0", redis7},
	{"takes what a client caused for a failure of Redis", "redisstore/unavailable.go", "replied && !isUnavailable(code, message)", "replied && message == code", redis7},
	{"keeps the caller's slice", "redisstore/batcher.go", "append(r.charges[:0], charges...)", "charges", redis7},
	{"loses a call that is done", "redisstore/batcher.go", "defer b.sendQueued() //", "//", redis7},
	{"charges who has left the queue", "redisstore/batcher.go", "if r.state == queued {\n\t\t\treturn r", "if true {\n\t\t\treturn r", redis7},
	{"fails neighbours for an error of one", "redisstore/batcher.go", "len(batch) > 1 && isScriptError(err)", "false", redis7},
	{"writes keys that can forge others", "lua/key.go", "partBytes = byteSet(alphanumeric + \"", "partBytes = byteSet(alphanumeric + \":%{}", "./lua"},

	{"lets identities out", "redisstore/batcher.go", "b.store.hasher.replace(b.policy, r.charges)", "", redis7},
	{"lets identities out where it gives back", "redisstore/return.go", "s.hasher.returns(policy, returns)", "returns", redis7},
	{"hashes without lengths", "redisstore/keyhash.go", "binary.AppendUvarint(state.text, uint64(len(rule)))", "state.text[:len(state.text):cap(state.text)]", redis7},
	{"takes an empty secret for none", "redisstore/keyhash.go", "if secret == nil {", "if len(secret) == 0 {", redis7},

	// The pure functions and the memory store.
	{"charges the rules that pass although another refuses", "core/decide.go", "if d.Allowed && c.Cost > 0 {", "if fits && c.Cost > 0 {", memory},
	{"charges refused requests", "core/decide.go", "if d.Allowed && c.Cost > 0 {", "if c.Cost > 0 {", memory},
	{"forgets units when a decision only looks", "core/decide.go", "if d.Allowed && c.Cost > 0 {", "if d.Allowed {", memory},
	{"admits one more than the limit", "core/decide.go", "c.Cost <= room ||", "c.Cost <= room+1 ||", memory},
	{"tells clients to come back too early", "core/decide.go", "state.After(c.Cost - room)", "state.After(1)", memory},
	{"keeps a unit one microsecond too long", "core/slidinglog.go", "now-l.at(l.gone) >= l.window", "now-l.at(l.gone) > l.window", memory},
	{"does not date entries ahead of now now", "core/slidinglog.go", "\tl.ring[l.index(i)] = now\n", "", memory},
	{"loses units when a log grows", "core/slidinglog.go", "ring[i] = l.at(i)", "ring[i] = l.ring[i]", memory},
	{"forgets keys that are not whole yet", "memstore/table.go", "(*at).expires > now ||", "(*at).expires > now+1000 ||", memory},
	{"remembers keys that were only looked at", "memstore/memstore.go", "case k.entry.expires <= now:", "case k.entry.expires < 0:", memory},
	{"keeps the caller's strings", "memstore/table.go", "e.key = strings.Clone(c.Key)", "e.key = c.Key\n\t_ = strings.Clone(\"\")", memory},
	{"takes one key of a shard for all", "memstore/table.go", "e.key == c.Key && ", "", memory},
}

// TestMutantsApply holds that each mutant still is what it was meant to be: a
// part of a file, which is there once.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(mutants, algorithmMutants, overflowMutants, guardMutants, refusalMutants, spreadMutants, inputMutants) {
		text, err := os.ReadFile(filepath.Join("..", m.file))
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(text), m.from), "%s: %s", m.file, m.name)
	}
}

// TestMutants puts each fault into the library, and expects its tests to fail.
func TestMutants(t *testing.T) {
	if os.Getenv("LIMIT_MUTANTS") == "" {
		t.Skip("builds the library once for each mutant: LIMIT_MUTANTS is not set")
	}
	if !redistest.Installed(t) {
		t.Skip("the mutants of the script need a redis-server")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, m := range slices.Concat(mutants, algorithmMutants, overflowMutants, guardMutants, refusalMutants, spreadMutants, inputMutants) {
		t.Run(m.file+" "+m.name, func(t *testing.T) {
			t.Parallel()
			original := filepath.Join(root, m.file)
			text, err := os.ReadFile(original)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.from), "the mutant must apply once")
			mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
			require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
			require.NoError(t, err)
			overlayFile := filepath.Join(t.TempDir(), "overlay.json")
			require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

			args := append([]string{"test", "-vet=off", "-failfast", "-short", "-timeout=60s", "-overlay=" + overlayFile}, strings.Fields(m.packages)...)
			test := exec.Command("go", args...)
			test.Dir = root
			out, err := test.CombinedOutput()
			require.NotContains(t, string(out), "[build failed]")
			require.Error(t, err, "the tests of %s pass with this fault", m.packages)
		})
	}
}
