//go:build !unix

package redistest

import (
	"os"
	"testing"
)

// Pause skips the test.
func Pause(t testing.TB, process *os.Process) {
	t.Helper()
	t.Skip("needs a Unix, where a process can be paused")
}

// Resume does nothing.
func Resume(t testing.TB, process *os.Process) {}
