package doctor

import (
	"context"
	"strings"
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
	if n.Time, n.Offset, n.Uncertainty, err = redisfacts.Clock(ctx, client); err != nil {
		n.TimeErr = err.Error()
	}
}

// askSlowlog reads the entries of the last day, by the clock of the node.
func askSlowlog(ctx context.Context, client *redis.Client, prefix string, n *Node) {
	entries, err := client.SlowLogGet(ctx, 128).Result()
	if err != nil {
		n.SlowErr = err.Error()
		return
	}
	now := n.Time
	if now.IsZero() {
		now = time.Now()
	}
	for _, e := range entries {
		if len(e.Args) == 0 || now.Sub(e.Time) > 24*time.Hour {
			continue
		}
		command := strings.ToLower(e.Args[0])
		n.Slow = append(n.Slow, Slow{
			Command:  command,
			Ours:     strings.HasPrefix(command, "eval") && len(e.Args) > 3 && strings.HasPrefix(e.Args[3], prefix+":"),
			Duration: e.Duration,
		})
	}
}
