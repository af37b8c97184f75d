package turns

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun compares two functions, of which one does a hundred times as much, and one that is not there.
func TestRun(t *testing.T) {
	if _, err := Time(); err != nil {
		t.Skip(err)
	}
	x := 1
	work := func(n int) func() {
		return func() {
			for range n {
				x = x*31 + 7
			}
		}
	}
	ns, err := Run([]func(){work(100), nil, work(10_000)}, 3)
	require.NoError(t, err)
	require.Len(t, ns[0], 3)
	require.Empty(t, ns[1])
	for round := range 3 {
		require.Greater(t, ns[2][round], 2*ns[0][round])
	}
}
