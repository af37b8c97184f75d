//go:build !unix

package turns

import (
	"errors"
	"time"
)

// Time returns how much processor time this process has used.
func Time() (time.Duration, error) {
	return 0, errors.New("this benchmark reads its processor time, which needs a Unix")
}
