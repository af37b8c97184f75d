//go:build race

// Package race tells tests whether the race detector runs. Random schedules of one
// goroutine are then fewer: it finds nothing in them and takes many times as long.
// scripts/test.sh runs all of them without it.
package race

// Enabled reports whether the race detector runs.
const Enabled = true
