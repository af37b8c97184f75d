// Package race has long tests of one goroutine skipped or shortened under the race
// detector, which finds nothing in them and takes ten times as long. scripts/test.sh
// finds them by these words, and runs them without it.
package race

import "testing"

// Skip skips a test under the race detector.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: runs without the race detector")
	}
}
