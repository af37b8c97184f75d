package memstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

// TestNames charges more rules than a store remembers, by the same strings and by others:
// each rule and variant has a quota of its own for each key.
func TestNames(t *testing.T) {
	s := New(&Options{Now: func() int64 { return 1 }})
	const rules, limit = 3 * len(names{}), 4
	var charges []core.Charge
	for i := range rules {
		charges = append(charges, core.Charge{Policy: "p", Rule: fmt.Sprint("rule", i/2), Variant: []string{"", "v"}[i%2], Cost: 1,
			Quota: core.Quota{Limit: limit, Window: 1_000_000}})
	}
	for round := range limit + 1 {
		for _, c := range charges {
			if round%2 == 1 {
				c.Rule = string([]byte(c.Rule)) // elsewhere in memory
			}
			for _, c.Key = range []string{"", "a"} {
				d := must.Get(core.Take(t.Context(), s, []core.Charge{c}))(t)
				assert.Equal(t, round < limit, d.Allowed, c)
			}
		}
	}
}
