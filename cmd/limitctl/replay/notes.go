package replay

import (
	"fmt"
	"slices"
	"strconv"
)

// Notes are sentences, each once. Numbers in them are of type int64.
type notes struct{ list []string }

func (n *notes) add(format string, args ...any) {
	for i, arg := range args {
		if number, ok := arg.(int64); ok {
			args[i] = commas(number)
		}
	}
	if text := fmt.Sprintf(format, args...); !slices.Contains(n.list, text) {
		n.list = append(n.list, text)
	}
}

// count adds a note that begins with a number, unless that is 0.
func (n *notes) count(number int64, format string, args ...any) {
	if number > 0 {
		n.add("%v "+format, append([]any{number}, args...)...)
	}
}

// commas writes 1234567 as 1,234,567.
func commas(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
