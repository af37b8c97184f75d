package guard

import (
	"math/bits"

	"github.com/routelimit/limit/core"
)

// share returns the part of q that one of so many instances may admit alone,
// rounded up. Of rates it is a part of the rate as well as of the burst.
func share(q core.Quota, instances int64) core.Quota {
	if instances == 1 {
		return q
	}
	part := q
	part.Limit = ceilDiv(q.Limit, instances)
	switch q.Algorithm {
	case core.TokenBucket, core.LeakyBucket:
		part.Burst, part.Missing = ceilDiv(q.Burst, instances), ceilDiv(q.Missing, instances)
	case core.Queue:
		part.Burst = ceilDiv(q.Burst+1, instances) - 1
	}
	if fills(part) > core.MaxFill { // by the rounding, after 10 years
		return q
	}
	return part
}

// wider returns a quota with room for so many times what q admits, for what the
// store admits of more than a share. It counts as the share does: at its rate,
// where units come back at a rate.
func wider(q core.Quota, instances, times int64) core.Quota {
	wide := q
	switch {
	case rate(q):
		part := share(q, instances)
		wide.Limit, wide.Missing, wide.MaxWait = part.Limit, part.Missing, 0
		wide.Burst = min(times*q.Capacity(), core.MaxLimit)
		if fills(wide) > core.MaxFill {
			wide.Burst = part.Burst
		}
	case q.Algorithm == core.SlidingLog:
		wide.Limit = min(times*q.Limit, core.MaxLog)
	case q.Algorithm == core.Concurrency:
		wide.Limit = min(times*q.Limit, core.MaxLeases)
	default:
		wide.Limit = min(times*q.Limit, core.MaxLimit)
	}
	return wide
}

// whole returns the quota by which the memory counts all that q admits, and no
// more.
func whole(q core.Quota, instances int64) core.Quota {
	if instances == 1 {
		return q
	}
	return wider(q, instances, 1)
}

// rate reports whether units of q come back one by one, at a rate.
func rate(q core.Quota) bool {
	return q.Algorithm == core.TokenBucket || q.Algorithm == core.LeakyBucket || q.Algorithm == core.Queue
}

// span returns how long a unit of q can matter: what was taken longer ago has
// no effect on what is admitted now, but in a bucket that has not been full since.
func span(q core.Quota) int64 {
	switch q.Algorithm {
	case core.SlidingLog, core.Concurrency: // leases are renewed, see Renew
		return q.Window
	case core.SlidingCells:
		return q.Window + 2*ceilDiv(q.Window, q.Cells)
	case core.TokenBucket, core.LeakyBucket, core.Queue:
		return fills(q)
	}
	return 2 * q.Window // counters; calendar periods may be longer than usual
}

// fills returns how long all that q admits at once takes to come back.
func fills(q core.Quota) int64 {
	high, low := bits.Mul64(uint64(q.Burst+1), uint64(q.Window))
	if high >= uint64(q.Limit) {
		return 2 * core.MaxFill
	}
	time, _ := bits.Div64(high, low, uint64(q.Limit))
	return int64(min(time+1, 2*core.MaxFill))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
