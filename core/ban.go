package core

import (
	"slices"
	"sort"
)

// Ban bars a key after Limit strikes within a Window: for Bar the first time, and
// for twice as long each time after that, at most for MaxBar. A barred key refuses
// every charge, even one of cost 0.
//
// A strike is a request that other charges refuse while all bans of the request
// admit it. Each unit of Cost that is taken is a strike too. A request that a ban
// refuses is no strike, for that ban or another one. After a bar, the strikes begin
// anew; a next bar is twice as long if it begins within the longest bar after the
// end of the last one.
//
// Remaining is how many strikes a key has left, 0 while it is barred. The strike that
// bars a key makes the ban one of those that refuse the request, so that RetryAfter
// is true.
//
// Trade-offs: a client that shares its key with others is barred with them. A store
// without room for a key counts none of its strikes and does not bar it, rather than
// have clients share a bar. The state has an entry for each strike, so limits are at
// most [MaxStrikes].
//
// When the clock steps back, strikes ahead of now are dated now, and a bar ends no
// later than it would if it began now. The same happens when bars are shortened.
const Ban Algorithm = 8

// A banState has the strikes of one key since its last bar.
type banState struct {
	Base
	strikes []int64 // their times, oldest first
	level   int64   // how many bars followed each other; 0 if none is remembered
	ends    int64   // when the last of them ends

	// of the last Advance
	limit, window, bar, longest, now int64
	left, first                      int // of the strikes: the first in the window, and the first that counts
}

// maxLevel is as often as the shortest bar can double.
const maxLevel = 40

// length is that of a bar.
func (b *banState) length() int64 {
	length := b.bar
	for i := int64(1); i < b.level && length < b.longest; i++ {
		length *= 2
	}
	return min(length, b.longest)
}

func (b *banState) barred() bool { return b.level > 0 && b.ends > b.now }

func (b *banState) Advance(q *Quota, now int64) int64 {
	b.limit, b.window, b.bar, b.longest, b.now = q.Limit, q.Window, q.Bar, q.longestBar(), now
	redated := false
	if b.level > 0 {
		if latest := now + b.length(); b.ends > latest {
			b.ends, redated = latest, true
		}
	}
	for i := len(b.strikes) - 1; i >= 0 && b.strikes[i] > now; i-- {
		b.strikes[i], redated = now, true
	}
	switch {
	case redated && b.barred(): // by a bar that came before them
		b.strikes = b.strikes[:0]
	case redated:
		b.strikes = b.strikes[:copy(b.strikes, b.strikes[b.until(now-b.window):])]
	}
	b.left = b.until(now - b.window)
	b.first = max(b.left, len(b.strikes)-int(b.limit)+1) // only a strike bars, not a lowered limit
	return b.limit - b.Used()
}

// until returns how many strikes are from a time or before.
func (b *banState) until(at int64) int {
	return sort.Search(len(b.strikes), func(i int) bool { return b.strikes[i] > at })
}

// Needs implements [State]: a barred key refuses even what costs nothing.
func (b *banState) Needs(c *Charge) int64 { return max(1, c.Cost) }

func (b *banState) Take(n int64, _ uint64) (room, delay int64) {
	if b.now-b.ends >= b.longest {
		b.level, b.ends = 0, 0
	}
	if b.Used()+n >= b.limit {
		b.begin(b.now)
		return 0, 0
	}
	b.strikes = b.strikes[:copy(b.strikes, b.strikes[b.left:])]
	b.left, b.first = 0, 0
	for range n {
		b.strikes = append(b.strikes, b.now)
	}
	return b.limit - b.Used(), 0
}

// begin begins the next bar.
func (b *banState) begin(at int64) {
	b.level = min(b.level+1, maxLevel)
	b.ends = at + b.length()
	b.strikes, b.left, b.first = slices.Delete(b.strikes, 0, b.until(b.ends-1)), 0, 0
}

// Owe implements [State]: strikes of that time count unless a bar ended since. If they,
// or one that came after them, would have been enough for a bar, it began then. Strikes
// that had left the window when the last strike came are forgotten.
func (b *banState) Owe(_ *Quota, n, at int64, _ uint64) {
	if b.level > 0 && at < b.ends {
		return
	}
	i := b.until(at)
	b.strikes = slices.Insert(b.strikes, i, slices.Repeat([]int64{at}, int(min(n, b.limit)))...)
	for ; i < len(b.strikes); i++ {
		last, first := b.strikes[i], i-int(b.limit)+1
		if first < 0 || last-b.strikes[first] >= b.window {
			continue
		}
		if last-b.ends >= b.longest {
			b.level = 0
		}
		b.begin(last)
		return
	}
	b.strikes = b.strikes[b.until(at-b.window):]
}

func (b *banState) Refuse(barred bool) bool {
	if barred {
		return false
	}
	b.Take(1, 0)
	return true
}

func (b *banState) Used() int64 {
	if b.barred() {
		return b.limit
	}
	return int64(len(b.strikes) - b.first)
}

// After implements [State]: the bar must end, or the n oldest strikes must leave.
func (b *banState) After(n int64) int64 {
	if b.barred() {
		return b.ends - b.now
	}
	return b.strikes[b.first+int(n)-1] + b.window - b.now
}

func (b *banState) Expires() (at int64) {
	if b.level > 0 {
		at = b.ends + b.longest
	}
	if n := len(b.strikes); n > 0 {
		at = max(at, b.strikes[n-1]+b.window)
	}
	return at
}

// Return implements [State]: strikes that were taken exactly at At are forgotten, as
// long as they have not barred the key.
func (b *banState) Return(r *Return, now int64) int64 {
	if r.At > now || now-r.At >= r.Quota.Window {
		return 0
	}
	first, next := b.until(r.At-1), b.until(r.At)
	given := min(r.Cost, int64(next-first))
	b.strikes = slices.Delete(b.strikes, first, first+int(given))
	return given
}

func (b *banState) Clone() State {
	copied := *b
	copied.strikes = slices.Clone(b.strikes)
	return &copied
}
