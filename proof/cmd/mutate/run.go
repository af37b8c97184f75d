//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// limitMemory runs a test binary with at most 8 GiB of address space, since a
// mutant may append in an endless loop.
const limitMemory = "#!/bin/sh\nulimit -v 8388608\nexec \"$@\"\n"

// A runner runs the tests of a module.
type runner struct {
	module  string // absolute
	scratch string // for the mutated file and the overlay
}

// test tests the candidates in order until it has a verdict on number of them,
// and returns the share that was killed. Mutants that do not compile do not
// count.
func test(ctx context.Context, module string, candidates []candidate, number int) (float64, error) {
	if number == 0 {
		number = len(candidates)
	}
	module, err := filepath.Abs(module)
	if err != nil {
		return 0, err
	}
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	if err := os.WriteFile(filepath.Join(scratch, "limited"), []byte(limitMemory), 0o700); err != nil {
		return 0, err
	}
	r := runner{module, scratch}

	timeouts := map[*suite]time.Duration{}
	survivors := map[string]int{}
	tested, killed := 0, 0
	for _, c := range candidates {
		if tested == number {
			break
		}
		if _, known := timeouts[c.suite]; !known {
			began := time.Now()
			verdict, out := r.run(ctx, c.suite, 10*time.Minute)
			if ctx.Err() == nil && verdict != survived {
				return 0, fmt.Errorf("the tests of %s fail without a fault:\n%s", c.suite.folder, out)
			}
			timeouts[c.suite] = 2*time.Since(began) + 20*time.Second
		}
		began := time.Now()
		verdict, err := r.mutate(ctx, c, timeouts[c.suite])
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return 0, err
		}
		switch verdict {
		case invalid:
			continue
		case caught:
			killed++
		case survived:
			survivors[c.suite.folder]++
		}
		tested++
		fmt.Printf("%-8s %5.1fs  %s\n", verdict, time.Since(began).Seconds(), c.Mutant)
	}
	if tested == 0 {
		return 0, errors.New("no mutant was tested")
	}
	share := float64(killed) / float64(tested)
	fmt.Printf("%d of %d mutants killed: %.0f %%\n", killed, tested, 100*share)
	return share, ctx.Err()
}

type verdict string

const (
	caught   verdict = "killed"
	survived verdict = "SURVIVED"
	invalid  verdict = "invalid" // it does not compile
)

// mutate runs the tests of one mutant.
func (r runner) mutate(ctx context.Context, c candidate, timeout time.Duration) (verdict, error) {
	original := filepath.Join(r.module, filepath.FromSlash(c.File))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(r.scratch, "mutated"+filepath.Ext(original))
	if err := os.WriteFile(mutated, []byte(c.Apply(string(text))), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		return "", err
	}
	overlayFile := filepath.Join(r.scratch, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	v, _ := r.run(ctx, c.suite, timeout, "-overlay="+overlayFile)
	return v, nil
}

// run runs the tests of a suite.
func (r runner) run(ctx context.Context, s *suite, timeout time.Duration, flags ...string) (verdict, string) {
	args := []string{"test", "-vet=off", "-failfast", "-short", "-count=1",
		"-timeout=" + timeout.String(), "-exec=" + filepath.Join(r.scratch, "limited")}
	command := exec.CommandContext(ctx, "go", append(append(args, flags...), s.tests...)...)
	command.Dir = r.module
	command.Env = append(os.Environ(), "LIMIT_REQUIRE_REDIS=1") // a skipped test kills nothing
	// A test that ends in a timeout leaves its Redis servers behind.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	command.WaitDelay = time.Second // those servers hold the pipe
	err := command.Run()
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return survived, out.String()
	case strings.Contains(out.String(), "[build failed]") || strings.Contains(out.String(), "[setup failed]"):
		return invalid, out.String()
	default:
		return caught, out.String()
	}
}
