package livepage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestViewersFair opens and closes streams of some viewers at random. No bound is exceeded,
// a stream is only refused or replaced when it must be, the oldest goes first, and no viewer
// loses one to a viewer that then has more.
func TestViewersFair(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var v viewers
		open := map[string][]chan struct{}{}
		people, total := 1+random.IntN(80), 0
		for range 1000 {
			id := fmt.Sprint(random.IntN(1 + random.IntN(people)))
			if own := open[id]; random.IntN(4) == 0 && len(own) > 0 {
				i := random.IntN(len(own))
				v.leave(id, own[i])
				v.leave(id, own[i]) // a stream that was replaced leaves too
				open[id] = append(own[:i:i], own[i+1:]...)
				total--
			} else {
				stream, ok := v.enter(id)
				largest, lost := 0, ""
				for other, streams := range open {
					largest = max(largest, len(streams))
					for i, s := range streams {
						select {
						case <-s:
							require.Zero(t, i, "the oldest")
							require.Empty(t, lost, "one only")
							lost = other
						default:
						}
					}
				}
				switch full := total >= maxViewers; {
				case !ok:
					require.True(t, full && len(own) == 0 && largest == 1)
				case len(own) == maxStreams:
					require.Equal(t, id, lost)
				case !full:
					require.Empty(t, lost)
				case lost != id:
					require.Equal(t, largest, len(open[lost]))
					require.Greater(t, len(open[lost]), len(own)+1)
				default:
					require.LessOrEqual(t, largest, len(own)+1)
				}
				if lost != "" {
					open[lost] = open[lost][1:]
					total--
				}
				if ok {
					open[id] = append(open[id], stream)
					total++
				}
			}
			require.Equal(t, total, v.count())
			require.LessOrEqual(t, total, 64)
			require.LessOrEqual(t, len(open[id]), 8)
		}
		for id, streams := range open {
			for _, s := range streams {
				v.leave(id, s)
			}
		}
		assert.Empty(t, v.open)
	}
}
