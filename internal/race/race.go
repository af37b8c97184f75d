// Package race says whether the race detector runs. Long tests of one goroutine are skipped
// or shortened under it, since it finds nothing in them and takes ten times as long.
// scripts/test.sh finds them by the words Skip and Enabled, and runs them without it.
package race

import (
	"os/exec"
	"testing"
)

// Skip skips a test under the race detector.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: runs without the race detector")
	}
}

// Build returns the command that builds a program for a test: for the race detector if the test
// runs under it, so that its packages are compiled once.
func Build(dir, output string) *exec.Cmd {
	args := []string{"build", "-o", output}
	if Enabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	build.Dir = dir
	return build
}
