// Package figures writes numbers as people read them.
package figures

import "strconv"

// Number writes 1234567 as 1,234,567.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Percent writes a part of a whole. Only nothing is 0 %, and only all is 100 %.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == 0:
		return "0%"
	case part == whole:
		return "100%"
	case p < 0.1:
		return "<0.1%"
	case p > 99.9:
		return ">99.9%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}
