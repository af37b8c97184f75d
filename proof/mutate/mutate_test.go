//go:build unix

// Package mutate tests the tests.
package mutate

import (
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// TestMutants puts one fault at a time into a copy of a source file, Go or Lua, and expects the
// tests of that file to fail. It draws LIMIT_MUTANTS faults at random, 0 for all, in the folders of
// LIMIT_MUTANTS_IN, such as core,stores/memstore, and prints each with its verdict. A fault that
// survives is either equivalent or lacks a test. LIMIT_MUTANTS_SEED repeats a sample. The tree is
// not touched: go test reads the copy through -overlay. Mutants that do not compile do not count.
func TestMutants(t *testing.T) {
	if os.Getenv("LIMIT_MUTANTS") == "" {
		t.Skip("LIMIT_MUTANTS is not set")
	}
	number := must.Get(strconv.Atoi(os.Getenv("LIMIT_MUTANTS")))(t)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LIMIT_MUTANTS_SEED"); text != "" {
		seed = must.Get(strconv.ParseUint(text, 10, 64))(t)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mutants := must.Get(collect(root, os.Getenv("LIMIT_MUTANTS_IN")))(t)
	t.Logf("seed %d, %d possible mutants", seed, len(mutants))
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })

	scratch := t.TempDir()
	timeouts := map[string]time.Duration{} // by folder
	tested, killed := 0, 0
	for _, m := range mutants {
		if number > 0 && tested == number {
			break
		}
		folder := path.Dir(m.file)
		if timeouts[folder] == 0 {
			began := time.Now()
			v, out := run(ctx, folder, 10*time.Minute)
			require.NoError(t, ctx.Err())
			require.Equal(t, survived, v, "the tests of %s fail without a fault:\n%s", folder, out)
			timeouts[folder] = 2*time.Since(began) + 20*time.Second
		}
		began := time.Now()
		v := must.Get(m.test(ctx, scratch, timeouts[folder]))(t)
		require.NoError(t, ctx.Err(), "%d of %d mutants killed", killed, tested)
		if v == invalid {
			continue
		}
		tested++
		if v == caught {
			killed++
		}
		t.Logf("%-8s %5.1fs  %s", v, time.Since(began).Seconds(), m)
	}
	share := float64(killed) / float64(max(1, tested))
	t.Logf("%d of %d mutants killed: %.0f %%", killed, tested, 100*share)
	require.GreaterOrEqual(t, share, 0.75)
}
