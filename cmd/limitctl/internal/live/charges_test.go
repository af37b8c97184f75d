package live

import (
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// chargesOf returns the charges of a request on a rule.
func chargesOf(policy, text, key string) []core.Charge {
	r := limit.MustParse(text).Rules()[0]
	algorithm := core.SlidingLog
	for _, word := range strings.Fields(text) {
		if a, ok := core.ParseAlgorithm(word); ok {
			algorithm = a
		}
	}
	return []core.Charge{{Policy: policy, Rule: r.Name, Key: key, Cost: 1, Quota: core.Quota{Algorithm: algorithm, Limit: r.Limit, Window: int64(r.Window / time.Microsecond)}}}
}
