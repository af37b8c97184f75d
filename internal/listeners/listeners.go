// Package listeners keeps functions that are called again and again while others come and go.
package listeners

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A List is a list of functions. The zero List is empty. It is safe for concurrent use. Reading it
// takes no lock.
type List[F any] struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*F] // functions cannot be compared, but pointers to them can; nil if there are none
}

// All returns the functions. Do not change them.
func (l *List[F]) All() []*F {
	if all := l.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Add adds a function until remove is called. Changed is told whether there is any, in the order of
// the changes.
func (l *List[F]) Add(f F, changed func(any bool)) (remove func()) {
	l.change(func(all []*F) []*F { return append(all, &f) }, changed)
	return sync.OnceFunc(func() {
		l.change(func(all []*F) []*F { return slices.DeleteFunc(all, func(other *F) bool { return other == &f }) }, changed)
	})
}

func (l *List[F]) change(by func([]*F) []*F, changed func(bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := by(slices.Clone(l.All()))
	changed(len(all) > 0)
	if len(all) == 0 {
		l.all.Store(nil)
		return
	}
	l.all.Store(&all)
}
