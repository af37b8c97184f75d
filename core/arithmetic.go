package core

import (
	"math"
	"math/bits"
	"time"
)

// huge is more than any number of units or microseconds that a state has.
const huge = int64(1) << 62

// MulDiv returns a*b/c rounded down, and the remainder. The arguments must not
// be negative, and c must not be 0. The product may exceed 64 bits; a quotient
// above 1<<62 is returned as 1<<62, with no remainder.
func MulDiv(a, b, c int64) (quotient, remainder int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return huge, 0
	}
	q, r := bits.Div64(high, low, uint64(c))
	if q > uint64(huge) {
		return huge, 0
	}
	return int64(q), int64(r)
}

// CeilDiv returns a/b rounded up. A may be negative; b must be positive.
func CeilDiv(a, b int64) int64 {
	if a > 0 {
		return (a + b - 1) / b
	}
	return a / b
}

// FloorDiv returns a/b rounded down. A may be negative; b must be positive.
func FloorDiv(a, b int64) int64 { return -CeilDiv(-a, b) }

// Duration returns a number of microseconds as a duration, at most the longest one.
func Duration(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}
