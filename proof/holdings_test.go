package proof

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
)

// A holding is a lease as its holder has told of it: what it says it has, it has
// had for sure.
type holding struct {
	holder       int
	from, until  int64 // from when Take has returned until before Release was called; 0 is not yet
	renewed      int64 // before the last renewal was asked for
	renewals     int
	killed, lost bool
}

// An observer is told by all processes.
type observer struct {
	mu   sync.Mutex
	held map[uint64]*holding
}

// listen reads what a process tells until it is dead.
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

// of returns what a process says it holds.
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

// most returns the most leases that were held at the same time, until their
// holder released them, was killed, or had not renewed for as long as they live.
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
