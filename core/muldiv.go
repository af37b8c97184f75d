package core

import "math/bits"

// huge is more than any number of units or microseconds that a state has.
const huge = int64(1) << 62

// muldiv returns a*b/c rounded down, and the remainder, for numbers that are
// not negative. The product may have 126 bits; a quotient of more than [huge]
// is huge.
func muldiv(a, b, c int64) (quotient, remainder int64) {
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

// ceilDiv returns a/b rounded up; a may be negative, b is positive.
func ceilDiv(a, b int64) int64 {
	if a > 0 {
		return (a + b - 1) / b
	}
	return a / b
}

// floorDiv returns a/b rounded down; a may be negative, b is positive.
func floorDiv(a, b int64) int64 { return -ceilDiv(-a, b) }
