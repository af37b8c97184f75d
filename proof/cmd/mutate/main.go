//go:build unix

// Command mutate tests the tests: it puts one fault at a time into a copy of a source file,
// Go or Lua, and expects the tests of that file to fail. It draws the faults at random, and
// prints each with its verdict. A fault that survives is either equivalent or lacks a test.
// The tree is not touched: go test reads the copy through -overlay.
//
//	mutate [-n 100] [-seed N] [-in core,stores/memstore] [-min 0.8] ROOT
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"syscall"
	"time"
)

func main() {
	number := flag.Int("n", 100, "how many mutants to test; 0 tests all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the sample")
	in := flag.String("in", "", "folders to mutate, such as core,stores/memstore; empty means all")
	least := flag.Float64("min", 0, "fail if a smaller share of the mutants is killed")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mutants, err := collect(flag.Arg(0), *in)
	if err == nil {
		fmt.Printf("seed %d, %d possible mutants\n", *seed, len(mutants))
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		err = test(ctx, flag.Arg(0), mutants, *number, *least)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// test tests the mutants in order until it has a verdict on number of them, or on all if
// number is 0. It fails if a smaller share than least was killed. Mutants that do not
// compile do not count.
func test(ctx context.Context, root string, mutants []mutant, number int, least float64) error {
	r, err := newRunner(root)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	timeouts := map[string]time.Duration{} // by folder
	tested, killed := 0, 0
	for _, m := range mutants {
		if number > 0 && tested == number {
			break
		}
		folder := path.Dir(m.file)
		if timeouts[folder] == 0 {
			began := time.Now()
			if v, out := r.run(ctx, folder, 10*time.Minute); ctx.Err() == nil && v != survived {
				return fmt.Errorf("the tests of %s fail without a fault:\n%s", folder, out)
			}
			timeouts[folder] = 2*time.Since(began) + 20*time.Second
		}
		began := time.Now()
		v, err := r.mutate(ctx, m, timeouts[folder])
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		if v == invalid {
			continue
		}
		tested++
		if v == caught {
			killed++
		}
		fmt.Printf("%-8s %5.1fs  %s\n", v, time.Since(began).Seconds(), m)
	}
	share := float64(killed) / float64(max(1, tested))
	fmt.Printf("%d of %d mutants killed: %.0f %%\n", killed, tested, 100*share)
	if err := ctx.Err(); err != nil {
		return err
	}
	if tested == 0 || share < least {
		return fmt.Errorf("less than %g of the mutants were killed", least)
	}
	return nil
}
