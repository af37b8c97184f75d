package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// A clock estimates the clock of a server from its replies. A script that ran at the server's time
// t, between two readings of the clock of this process, bounds the difference of the two clocks.
// The estimate is the intersection of such bounds, which widen as the clocks drift apart.
type clock struct {
	mu        sync.Mutex
	known     bool
	at        int64 // when the bounds were true, by localTime
	low, high int64 // of the server's time less localTime, µs
}

// drift is the µs in which two clocks drift apart by one, at most: clocks that are
// slewed run up to 500 ppm fast or slow.
const drift = 2_000

// localTime is ticks in µs.
func localTime() int64 { return ticks() / 1_000 }

// learn notes that the server's time was server between two readings of localTime. A
// bound that contradicts the others means that the server's clock was set.
func (c *clock) learn(sent, received, server int64) {
	low, high := server-received-1, server-sent+1
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		l, h := c.bounds(received)
		if low <= h && l <= high {
			low, high = max(low, l), min(high, h)
		}
	}
	c.known, c.at, c.low, c.high = true, received, low, high
}

// bounds returns the bounds at a time. The caller has locked c.
func (c *clock) bounds(now int64) (low, high int64) {
	wider := max(0, now-c.at) / drift
	return c.low - wider, c.high + wider
}

// latest returns the server's time at the end of ctx, or later by up to the uncertainty,
// which is in µs. It returns 0 if nothing is known.
func (c *clock) latest(ctx context.Context, now int64) (latest, uncertainty int64) {
	end, ok := ctx.Deadline()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || !c.known {
		return 0, 0
	}
	low, high := c.bounds(now)
	return now + time.Until(end).Microseconds() + high, high - low
}

// uncertainty returns how wide the bounds are, in µs, or 0 if nothing is known.
func (c *clock) uncertainty(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	low, high := c.bounds(now)
	return high - low
}

// forget begins anew, for another server.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

// errLate is the error of a call that reached Redis after its deadline, twice, and so took nothing.
var errLate = fmt.Errorf("%w: Redis got to the call only after its deadline", core.ErrOutOfReach)

// unanswered returns err, of a call for asks that is given up at a time, as a [core.Unanswered].
// The call may run for longer by the uncertainty, in µs. After a reply that is an error, nothing
// was taken. It matters only for leases, which can be released by their ids.
func unanswered(err error, asks []core.Ask, end time.Time, uncertainty int64) error {
	if _, _, replied := replyOf(err); replied || !takesLeases(asks) || errors.Is(err, errLate) {
		return err
	}
	return &core.Unanswered{Err: err, Until: end.Add(core.Duration(uncertainty))}
}

func takesLeases(asks []core.Ask) bool {
	for i := range asks { // by index: the call may be writing the decisions
		if slices.ContainsFunc(asks[i].Charges, func(c core.Charge) bool { return c.Quota.Leases() }) {
			return true
		}
	}
	return false
}
