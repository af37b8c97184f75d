package doctor

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

const samples = 50

// measure returns how long calls take, sorted. It stops after five seconds, and at
// the first error.
func measure(call func() error) (took []time.Duration, problem string) {
	begin := time.Now()
	for range samples {
		start := time.Now()
		if err := call(); err != nil {
			return nil, err.Error()
		}
		took = append(took, time.Since(start))
		if time.Since(begin) > 5*time.Second {
			break
		}
	}
	return sorted(took), ""
}

// askTime compares clocks.
func askTime(ctx context.Context, client *redis.Client, n *Node) {
	var err error
	if _, n.Offset, n.Uncertainty, err = redisfacts.Clock(ctx, client); err != nil {
		n.TimeErr = err.Error()
	}
}
