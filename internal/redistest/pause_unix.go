//go:build unix

package redistest

import (
	"os"
	"syscall"
	"testing"
)

// Pause stops a process, as when a machine is paused: connections stay open, and
// nothing is answered until Resume. It skips the test where that is not possible.
func Pause(t testing.TB, process *os.Process) { send(t, process, syscall.SIGSTOP) }

// Resume lets a paused process go on.
func Resume(t testing.TB, process *os.Process) { send(t, process, syscall.SIGCONT) }

func send(t testing.TB, process *os.Process, signal syscall.Signal) {
	t.Helper()
	if err := process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}
