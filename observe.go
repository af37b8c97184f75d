package limit

import (
	"net/http"
	"slices"
	"sync"
)

// An observer is a function that sees all decisions. It has a pointer, since functions
// cannot be compared.
type observer struct {
	observe func(*http.Request, Decision, error)
}

// Observe has a function called with each decision from now on, as [Options].Observe is
// and after it, until the program calls stop: for packages that are given a limiter. It is
// safe for concurrent use, and stop may be called more than once. A decision that is being
// made when stop is called may still be observed.
func (l *Limiter) Observe(observe func(*http.Request, Decision, error)) (stop func()) {
	if observe == nil {
		panic("limit: Observe(nil): write a function")
	}
	o := &observer{observe}
	l.setObservers(func(list []*observer) []*observer { return append(list, o) })
	return sync.OnceFunc(func() {
		l.setObservers(func(list []*observer) []*observer {
			return slices.DeleteFunc(list, func(other *observer) bool { return other == o })
		})
	})
}

// setObservers replaces the observers by what change makes of a copy of them.
func (l *Limiter) setObservers(change func([]*observer) []*observer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*observer
	if now := l.observers.Load(); now != nil {
		list = slices.Clone(*now)
	}
	list = change(list)
	l.engine.Timed.Store(len(list) > 0)
	if len(list) == 0 {
		l.observers.Store(nil)
		return
	}
	l.observers.Store(&list)
}

func notify(observers []*observer, r *http.Request, d Decision, err error) {
	for _, o := range observers {
		o.observe(r, d, err)
	}
}
