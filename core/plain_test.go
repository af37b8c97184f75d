package core

import (
	"math/big"
	"time"
)

// A plain is the definition of an algorithm for one key, a quota that stays the
// same and a clock that does not step back: as plain as can be, and without
// anything of the implementation. Its times never decrease.
type plain interface {
	room(at int64) int64 // if nothing is taken until then
	take(at, n int64)
}

func newPlain(q Quota) plain {
	switch q.Algorithm {
	case FixedWindow:
		return &plainWindow{q: q}
	case SlidingCells:
		return &plainCells{q: q}
	case SlidingCounter:
		return &plainCounter{q: q, counts: make(map[int64]int64)}
	case TokenBucket, LeakyBucket:
		return &plainBucket{q: q}
	case Queue:
		return &plainLine{q: q, end: new(big.Rat)}
	}
	return nil
}

// taken is units and when they were taken.
type taken struct{ at, n int64 }

// A plainWindow counts what was taken in the window that a time is in, told by
// what a calendar or a clock would show.
type plainWindow struct {
	q      Quota
	units  []taken
	starts int64 // of the last window of its own
}

func (p *plainWindow) name(at int64) any {
	t := time.UnixMicro(at)
	if z := p.q.Calendar.Zone; z != nil {
		t = t.In(z)
	}
	switch p.q.Calendar.Unit {
	case Hour:
		return t.Format("2006-01-02 15 -0700")
	case Day:
		return t.Format("2006-01-02")
	case Week:
		year, week := t.ISOWeek()
		return [2]int{year, week}
	case Month:
		return t.Format("2006-01")
	}
	return at / p.q.Window
}

func (p *plainWindow) room(at int64) int64 {
	room := p.q.Limit
	for _, u := range p.units {
		if p.q.Aligned || p.q.Calendar.Unit != 0 {
			if p.name(u.at) == p.name(at) {
				room -= u.n
			}
		} else if u.at >= p.starts && at < p.starts+p.q.Window {
			room -= u.n
		}
	}
	return room
}

func (p *plainWindow) take(at, n int64) {
	if len(p.units) == 0 || at >= p.starts+p.q.Window {
		p.starts = at
	}
	p.units = append(p.units, taken{at, n})
}

// A plainCells counts a unit until all of its cell has left the window.
type plainCells struct {
	q     Quota
	units []taken
}

func (p *plainCells) length() int64 {
	length := p.q.Window / p.q.Cells
	for length*p.q.Cells < p.q.Window {
		length++
	}
	return length
}

func (p *plainCells) room(at int64) int64 {
	room := p.q.Limit
	for _, u := range p.units {
		ends := (u.at/p.length() + 1) * p.length()
		if at < ends+p.q.Cells*p.length() {
			room -= u.n
		}
	}
	return room
}

func (p *plainCells) take(at, n int64) { p.units = append(p.units, taken{at, n}) }

// exactRetry is how long the exact window would have to be waited for.
func (p *plainCells) exactRetry(at, cost int64) int64 {
	for wait := int64(0); ; {
		room, next := p.q.Limit, int64(1<<62)
		for _, u := range p.units {
			if leaves := u.at + p.q.Window - at; leaves > wait {
				room -= u.n
				next = min(next, leaves)
			}
		}
		if room >= cost {
			return wait
		}
		wait = next
	}
}

// A plainCounter is the formula: the current window, and what of the previous
// one a window that ends now still covers.
type plainCounter struct {
	q      Quota
	counts map[int64]int64
}

func (p *plainCounter) room(at int64) int64 {
	index := at / p.q.Window
	covered := big.NewRat((index+1)*p.q.Window-at, p.q.Window)
	covered.Mul(covered, big.NewRat(p.counts[index-1], 1))
	return p.q.Limit - p.counts[index] - ceil(covered)
}

func (p *plainCounter) take(at, n int64) { p.counts[at/p.q.Window] += n }

// A plainBucket holds tokens, as a fraction. One that had some missing at first
// is new again an hour after it is full.
type plainBucket struct {
	q      Quota
	tokens *big.Rat
	last   int64
	keeps  bool // whether it is never new again
}

// isNew reports whether the bucket has not been charged, or so long ago that it
// is new again.
func (p *plainBucket) isNew(at int64) bool {
	if p.tokens == nil {
		return true
	}
	lacks := new(big.Rat).Sub(big.NewRat(p.q.Burst, 1), p.tokens)
	full := p.last + ceil(lacks.Mul(lacks, big.NewRat(p.q.Window, p.q.Limit)))
	return p.q.Missing > 0 && !p.keeps && at >= full+3600*1_000_000
}

func (p *plainBucket) at(at int64) *big.Rat {
	if p.isNew(at) {
		return big.NewRat(p.q.Burst-p.q.Missing, 1)
	}
	tokens := big.NewRat(at-p.last, p.q.Window)
	tokens.Mul(tokens, big.NewRat(p.q.Limit, 1))
	tokens.Add(tokens, p.tokens)
	if full := big.NewRat(p.q.Burst, 1); tokens.Cmp(full) > 0 {
		return full
	}
	return tokens
}

func (p *plainBucket) room(at int64) int64 { return floor(p.at(at)) }

func (p *plainBucket) take(at, n int64) {
	p.tokens = p.at(at)
	p.tokens.Sub(p.tokens, big.NewRat(n, 1))
	p.last = at
}

// refuse begins a new bucket.
func (p *plainBucket) refuse(at int64) {
	if p.isNew(at) {
		p.take(at, 0)
	}
}

// A plainLine knows when its last unit has passed, as a fraction.
type plainLine struct {
	q   Quota
	end *big.Rat
}

// ahead is how much of the line is ahead of a time.
func (p *plainLine) ahead(at int64) *big.Rat {
	ahead := new(big.Rat).Sub(p.end, big.NewRat(at, 1))
	if ahead.Sign() < 0 {
		return ahead.SetInt64(0)
	}
	return ahead
}

func (p *plainLine) room(at int64) int64 {
	ahead := p.ahead(at)
	late := p.q.MaxWait > 0 && ahead.Cmp(big.NewRat(p.q.MaxWait, 1)) > 0
	units := ceil(ahead.Mul(ahead, big.NewRat(p.q.Limit, p.q.Window)))
	room := p.q.Burst + 1 - units
	if late {
		return min(room, 0)
	}
	return room
}

// delay is that of a unit taken at a time, rounded up.
func (p *plainLine) delay(at int64) int64 { return ceil(p.ahead(at)) }

func (p *plainLine) take(at, n int64) {
	p.end = p.ahead(at)
	p.end.Add(p.end, big.NewRat(at, 1))
	length := big.NewRat(p.q.Window, p.q.Limit)
	p.end.Add(p.end, length.Mul(length, big.NewRat(n, 1)))
}

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // of a positive divisor, down
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
