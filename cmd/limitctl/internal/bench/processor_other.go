//go:build !unix

package bench

import "time"

// processorTime returns 0, which stands for unknown.
func processorTime() time.Duration { return 0 }
