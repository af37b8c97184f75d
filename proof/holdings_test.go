package proof

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
)

// A holding is a lease as its process reports it. The process held it for at least this
// time.
type holding struct {
	holder       int
	from, until  int64 // from when Take has returned until before Release was called; 0 is not yet
	renewed      int64 // before the last renewal was asked for
	renewals     int
	killed, lost bool
}

// An observer collects the reports of all processes.
type observer struct {
	mu   sync.Mutex
	held map[uint64]*holding
}

// listen reads the reports of a process until it is dead.
func (o *observer) listen(t *testing.T, holder int, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var word string
		var at int64
		var id uint64
		if _, err := fmt.Sscan(lines.Text(), &word, &at, &id); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			return
		}
		o.mu.Lock()
		h := o.held[id]
		if h == nil {
			h = &holding{holder: holder}
			o.held[id] = h
		}
		switch word {
		case "holds":
			h.from = at
		case "renewed":
			h.renewed = max(h.renewed, at)
			h.renewals++
		case "ends":
			h.until = at
		}
		o.mu.Unlock()
	}
}

// of returns the leases that a process holds.
func (o *observer) of(holder int) (ids []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, h := range o.held {
		if h.holder == holder && h.from > 0 && h.until == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// most returns the most leases that were held at the same time. A lease ends when it is
// released, when its process is killed, or when it has not been renewed for its life.
func (o *observer) most() int {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, h := range o.held {
		if end := h.renewed + leaseLife.Microseconds(); h.until > end {
			h.until, h.lost = end, true
		}
		if h.from > 0 && h.from < h.until {
			edges = append(edges, edge{h.from, 1}, edge{h.until, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.step - b.step
	})
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}
