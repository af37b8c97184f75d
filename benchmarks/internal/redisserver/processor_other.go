//go:build !unix

package redisserver

import (
	"errors"
	"time"
)

// ProcessorTime fails: the processor time of this process is read on Unix only.
func ProcessorTime() (time.Duration, error) {
	return 0, errors.New("this benchmark reads its processor time, which needs a Unix")
}
