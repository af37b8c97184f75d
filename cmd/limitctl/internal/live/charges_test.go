package live

import (
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// chargesOf returns the charges of a request on a rule.
func chargesOf(text, key string) []core.Charge {
	r := limit.MustParse(text).Rules()[0]
	return []core.Charge{{Rule: r.Name, Key: key, Cost: 1, Quota: core.Quota{Algorithm: r.Algorithm, Limit: r.Limit, Window: int64(r.Window / time.Microsecond)}}}
}
