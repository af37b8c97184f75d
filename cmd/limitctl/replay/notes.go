package replay

import (
	"fmt"
	"slices"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// Notes are sentences, each once. Numbers in them are of type int64.
type notes struct{ list []string }

func (n *notes) add(format string, args ...any) {
	for i, arg := range args {
		if number, ok := arg.(int64); ok {
			args[i] = words.Number(number)
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
