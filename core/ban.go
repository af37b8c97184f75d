package core

import (
	"slices"
	"sort"
)

// Ban bars a key after Limit strikes within a Window: for Bar the first time, and for twice as long
// each time after that, at most for MaxBar. A barred key refuses every charge, even one of cost 0.
//
// A strike is a request that other charges refuse while all bans of the request admit it. Each unit
// of Cost that is taken is a strike too. A request that a ban refuses is no strike, for that ban or
// another one. After a bar, the strikes begin anew; a next bar is twice as long if it begins within
// the longest bar after the end of the last one.
//
// Remaining is how many strikes a key has left, 0 while it is barred. The strike that bars a key
// makes the ban one of those that refuse the request, so that RetryAfter is true.
//
// Trade-offs: a client that shares its key with others is barred with them. A store without room
// for a key counts none of its strikes and does not bar it, rather than have clients share a bar.
// The state has an entry for each strike, so limits are at most [MaxStrikes].
//
// When the clock steps back, strikes ahead of now are dated now, and a bar ends no
// later than it would if it began now.
//
// Quotas with different limits, windows and bars may charge one key in turn. Each counts
// the strikes by all of them within its own window, and ends a bar that any of them began
// after its own time.
const Ban Algorithm = 8

// A banState has the strikes of one key since its last bar.
type banState struct {
	usual
	strikes []int64 // their times, oldest first
	level   int64   // how many bars followed each other; 0 if none is remembered
	begins  int64   // when the last of them began
	kept    versions
	bars    bars // the longest of the versions

	// of the last Advance
	limit, window, now int64
	own                bars
	left, first        int // of the strikes: the first in the window, and the first that counts
}

// bars are how long bars last.
type bars struct{ first, longest int64 }

// maxLevel is as often as the shortest bar can double.
const maxLevel = 40

// length is that of a bar of a level.
func (b bars) length(level int64) int64 {
	length := b.first
	for i := int64(1); i < level && length < b.longest; i++ {
		length *= 2
	}
	return min(length, b.longest)
}

// forgotten returns when the last bar is forgotten by all versions.
func (b *banState) forgotten() int64 { return b.begins + b.bars.length(b.level) + b.bars.longest }

// ends returns when the last bar ends for the quota of the last Advance.
func (b *banState) ends() int64 { return min(b.begins+b.own.length(b.level), b.forgotten()) }

func (b *banState) barred() bool { return b.level > 0 && b.ends() > b.now }

func (b *banState) Advance(q *Quota, now int64) int64 {
	b.limit, b.window, b.now, b.own = q.Limit, q.Window, now, bars{q.Bar, q.longestBar()}
	redated := false
	if b.level > 0 && b.begins > now {
		b.begins, redated = now, true
	}
	for i := len(b.strikes) - 1; i >= 0 && b.strikes[i] > now; i-- {
		b.strikes[i], redated = now, true
	}
	if redated {
		b.keep(now)
		gone := b.until(now - b.kept.window())
		if b.barred() { // by a bar that came before them
			gone = len(b.strikes)
		}
		b.drop(gone)
	}
	b.left = len(b.strikes)
	if b.Expires() > now {
		b.left = b.until(now - b.window)
	}
	b.first = max(b.left, len(b.strikes)-int(b.limit)+1) // only a strike bars, not a lowered limit
	return b.limit - b.Used()
}

// keep remembers the version, and forgets the last bar if none did at a time. Of a key that is new
// again, it keeps only strikes that counted then.
func (b *banState) keep(at int64) {
	isNew := b.Expires() <= b.now
	b.forget(at)
	if isNew {
		b.drop(b.until(at - b.kept.window()))
		b.kept, b.bars = 0, bars{}
	}
	b.kept = b.kept.and(versionOf(b.limit, b.window))
	b.bars = bars{max(b.bars.first, b.own.first), max(b.bars.longest, b.own.longest)}
}

// forget forgets the last bar, if no version remembers it.
func (b *banState) forget(at int64) {
	if b.level > 0 && b.forgotten() <= at {
		b.level, b.begins = 0, 0
	}
}

// drop removes the first strikes.
func (b *banState) drop(n int) { b.strikes = b.strikes[:copy(b.strikes, b.strikes[n:])] }

// until returns how many strikes are from a time or before.
func (b *banState) until(at int64) int {
	return sort.Search(len(b.strikes), func(i int) bool { return b.strikes[i] > at })
}

// Needs implements [State]: a barred key refuses even what costs nothing.
func (b *banState) Needs(c *Charge) int64 { return max(1, c.Cost) }

func (b *banState) Take(n int64, _ uint64) (room, delay int64) {
	used := b.Used()
	b.keep(b.now)
	if used+n >= b.limit {
		b.begin(b.now)
	} else {
		b.drop(max(b.until(b.now-b.kept.window()), len(b.strikes)+int(n)-b.kept.limit()))
		for range n {
			b.strikes = append(b.strikes, b.now)
		}
	}
	return b.again(), 0
}

// again brings what a decision asks for up to date, and returns the room.
func (b *banState) again() int64 {
	return b.Advance(&Quota{Limit: b.limit, Window: b.window, Bar: b.own.first, MaxBar: b.own.longest}, b.now)
}

// begin begins the next bar.
func (b *banState) begin(at int64) {
	b.level, b.begins = min(b.level+1, maxLevel), at
	b.strikes = slices.Delete(b.strikes, 0, b.until(b.ends()-1))
}

// Owe implements [State]: strikes of that time count unless a bar ended since. If they,
// or one that came after them, would have been enough for a bar, it began then. Strikes
// that had left the longest window when the last strike came are forgotten.
func (b *banState) Owe(_ *Quota, n, at int64, _ uint64, _ bool) {
	if b.level > 0 && at < b.ends() {
		return
	}
	b.keep(at)
	i := b.until(at)
	b.strikes = slices.Insert(b.strikes, i, slices.Repeat([]int64{at}, int(min(n, b.limit)))...)
	for ; i < len(b.strikes); i++ {
		last, first := b.strikes[i], i-int(b.limit)+1
		if first >= 0 && last-b.strikes[first] < b.window {
			b.forget(last)
			b.begin(last)
			return
		}
	}
	b.forget(b.now)
	gone := b.until(at - b.kept.window())
	if b.window < b.kept.window() {
		gone = max(gone, len(b.strikes)-b.kept.limit())
	}
	b.drop(gone)
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
		return b.ends() - b.now
	}
	return min(b.strikes[b.first+int(n)-1]+b.window, b.Expires()) - b.now
}

func (b *banState) Expires() (at int64) {
	if b.level > 0 {
		at = b.forgotten()
	}
	if n := len(b.strikes); n > 0 {
		at = max(at, b.strikes[n-1]+b.kept.window())
	}
	return at
}

// Return implements [State]: strikes that were taken exactly at At are forgotten, as
// long as they have not barred the key.
func (b *banState) Return(r *Return, now int64) int64 {
	if r.At > now || now-r.At >= b.kept.window() {
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
