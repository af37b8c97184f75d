//go:build unix

package turns

import (
	"syscall"
	"time"
)

// Time returns how much processor time this process has used.
func Time() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
