//go:build unix

// Command mutate tests the tests: it puts one fault at a time into a copy of a
// source file, Go or Lua, and expects the tests of that file to fail. It draws the
// faults at random, and prints each with its verdict. A fault that survives is either equivalent or lacks a test. The tree
// is not touched: go test reads the copy through -overlay.
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
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	number := flag.Int("n", 100, "how many mutants to test; 0 tests all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the sample")
	in := flag.String("in", "", "folders to mutate, such as core,stores/memstore; empty means all")
	least := flag.Float64("min", 0, "fail if a smaller share of the mutants is killed")
	list := flag.Bool("list", false, "print the mutants and do not test them")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	candidates, err := collect(flag.Arg(0), *in)
	if err == nil && *list {
		for _, c := range candidates {
			fmt.Println(c.Mutant)
		}
		return
	}
	var share float64
	if err == nil {
		fmt.Printf("seed %d, %d possible mutants\n", *seed, len(candidates))
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		share, err = test(ctx, flag.Arg(0), candidates, *number)
	}
	if err == nil && share < *least {
		err = fmt.Errorf("less than %g of the mutants were killed", *least)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// A candidate is a mutant and the suite that must kill it.
type candidate struct {
	Mutant
	suite *suite
}

// collect returns the mutants of the given folders, but for the equivalent ones.
func collect(module, in string) ([]candidate, error) {
	suites, err := suitesOf(module, in)
	if err != nil {
		return nil, err
	}
	var candidates []candidate
	for _, s := range suites {
		paths, err := filepath.Glob(filepath.Join(module, s.folder, "*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			mutants, err := mutantsOf(module, path)
			if err != nil {
				return nil, err
			}
			for _, m := range mutants {
				if !isEquivalent(s.folder, m) {
					candidates = append(candidates, candidate{m, s})
				}
			}
		}
	}
	return candidates, nil
}

func mutantsOf(module, path string) ([]Mutant, error) {
	if !isSource(filepath.ToSlash(path)) {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(module, path)
	if err != nil {
		return nil, err
	}
	name = filepath.ToSlash(name)
	if filepath.Ext(path) == ".lua" {
		return luaMutants(name, string(text)), nil
	}
	return goMutants(name, string(text))
}

func isEquivalent(folder string, m Mutant) bool {
	for _, e := range equivalent {
		if e.folder == folder && e.function == m.Func && e.operator == m.Operator {
			return true
		}
	}
	return false
}
