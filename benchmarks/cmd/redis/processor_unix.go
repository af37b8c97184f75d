//go:build unix

package main

import "syscall"

// processorTime returns how many seconds of processor time this process has used.
func processorTime() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, err
}
