//go:build unix

package redisserver

import (
	"syscall"
	"time"
)

// ProcessorTime returns how much processor time this process has used.
func ProcessorTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
