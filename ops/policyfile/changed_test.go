package policyfile_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

// TestChangedLimits checks the table of the page: what is left to a key that has taken
// four of ten units when its limit becomes another one.
func TestChangedLimits(t *testing.T) {
	for _, test := range []struct {
		words           string
		limit, wantLeft int64
	}{
		{"sliding-log", 5, 1}, {"sliding-log", 4, 0}, {"sliding-log", 20, 16},
		{"fixed-window", 5, 1}, {"fixed-window", 3, 0}, {"fixed-window", 20, 16},
		{"sliding-cells", 5, 1}, {"sliding-cells", 20, 16},
		{"sliding-counter", 5, 1}, {"sliding-counter", 20, 16},
		{"token-bucket burst 10", 20, 6}, {"token-bucket burst 10", 2, 6},
		{"concurrency", 5, 1}, {"concurrency", 3, 0},
		{"leaky-bucket burst 10", 20, 6},
		{"leaky-bucket burst 10", 5, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limit.New(nil, nil)
			text := func(n int64) limit.RuleSet {
				return limit.Named("x", limit.MustParse(fmt.Sprintf("x: %d/1m global %s", n, test.words)).Rules()...)
			}
			p, err := l.Policy(text(10).Overridable())
			require.NoError(t, err)
			for range 4 {
				d, err := p.Take(t.Context(), limit.Request{})
				require.NoError(t, err)
				require.True(t, d.Allowed)
				defer d.Release()
			}
			require.NoError(t, operate.Change(l, text(test.limit)))
			d, err := p.Peek(t.Context(), limit.Request{})
			require.NoError(t, err)
			assert.Equal(t, test.wantLeft, slices.Collect(d.Rules())[0].Remaining, "%s, from 10 to %d", test.words, test.limit)
		})
	}
}
