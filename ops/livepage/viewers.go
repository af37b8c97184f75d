package livepage

import (
	"slices"
	"sync"
)

const (
	maxViewers = 64 // streams of all viewers
	maxStreams = 8  // streams of one viewer
)

// viewers are the streams that are open. A viewer that opens too many loses its oldest
// one, and never takes the place of a viewer with fewer.
type viewers struct {
	mu    sync.Mutex
	open  map[string][]chan struct{} // by viewer, the oldest first
	total int
}

func (v *viewers) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.total
}

// enter opens a stream of a viewer. The channel is closed when a newer stream replaces it.
// ok is false if as many viewers are there as may be.
func (v *viewers) enter(id string) (replaced chan struct{}, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := len(v.open[id])
	if v.total >= maxViewers || own >= maxStreams {
		loser := id
		if own < maxStreams {
			for other, streams := range v.open {
				if len(streams) > max(own+1, len(v.open[loser])) {
					loser = other
				}
			}
		}
		if len(v.open[loser]) == 0 {
			return nil, false
		}
		close(v.open[loser][0])
		v.remove(loser, 0)
	}
	if v.open == nil {
		v.open = map[string][]chan struct{}{}
	}
	replaced = make(chan struct{})
	v.open[id] = append(v.open[id], replaced)
	v.total++
	return replaced, true
}

// leave closes a stream, which may have been replaced.
func (v *viewers) leave(id string, stream chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.open[id], stream); i >= 0 {
		v.remove(id, i)
	}
}

func (v *viewers) remove(id string, i int) {
	v.total--
	if v.open[id] = slices.Delete(v.open[id], i, i+1); len(v.open[id]) == 0 {
		delete(v.open, id)
	}
}
