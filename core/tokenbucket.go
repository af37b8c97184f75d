package core

// A Bucket is the state of the [TokenBucket] algorithm: Burst tokens, refilled
// at Limit tokens a Window. A unit takes a token, and a new bucket lacks
// Missing of them.
//
// It promises that in any time t at most Burst + t·Limit/Window units are
// admitted, rounded down, at any rate: a part of a token that has come back is
// kept as a number of Windowths, so that neither rare nor frequent callers lose
// or gain any. It is refilled when it is asked, from the time that has passed.
// What it gives up is the window: a burst and a window's refill fit into one.
//
// When the clock steps back, the last refill is dated now: no time is credited
// twice. When the burst is lowered, the bucket lacks no more than all of it, and
// a changed rate is that since the last unit was taken.
//
// The method is the token bucket of Turner, "New directions in communications
// (or which way to the information age?)" (1986), refilled lazily.
type Bucket struct {
	missing int64 // tokens, when last taken from
	part    int64 // Windowths of the last of them that had come back
	last    int64 // when that was
	window  int64 // what part counts in
	begun   bool
	returns *returns // nil until something is given back

	// of the last Advance
	limit, burst, initial, now, short, back int64
}

// Advance implements [State].
func (b *Bucket) Advance(q *Quota, now int64) int64 {
	b.limit, b.burst, b.initial, b.now = q.Limit, q.Burst, q.Missing, now
	if !b.begun {
		b.missing, b.part, b.last = q.Missing, 0, now
	}
	if b.window != q.Window {
		b.part, b.window = 0, q.Window
	}
	b.last = min(b.last, now)
	missing, part := b.missing, b.part
	if missing > q.Burst {
		missing, part = q.Burst, 0
	}
	came, rest := muldiv(now-b.last, q.Limit, q.Window)
	if rest += part; rest >= q.Window {
		came, rest = came+1, rest-q.Window
	}
	if b.short, b.back = missing-came, rest; b.short <= 0 {
		b.short, b.back = 0, 0
	}
	return b.burst - b.short
}

// Take implements [State].
func (b *Bucket) Take(n int64) int64 {
	b.short += n
	b.missing, b.part, b.last, b.begun = b.short, b.back, b.now, true
	return b.burst - b.short
}

// begin remembers when the bucket was first asked for a token, if it is not
// full then: it fills from that time on.
func (b *Bucket) begin() { b.begun = b.begun || b.initial > 0 }

// Used implements [State].
func (b *Bucket) Used() int64 { return b.short }

// After implements [State].
func (b *Bucket) After(n int64) int64 { return b.regain(n, b.back) }

// regain returns how long n tokens take to come back, of the first of which
// back Windowths are there.
func (b *Bucket) regain(n, back int64) int64 {
	whole, rest := muldiv(n, b.window, b.limit)
	return whole + ceilDiv(rest-back, b.limit)
}

// Expires implements [State]. A bucket that does not begin full is remembered
// for as long again as its filling took, and what was given back as long as it
// matters.
func (b *Bucket) Expires() int64 {
	if !b.begun || b.short == 0 && b.initial == 0 {
		return b.returns.until()
	}
	return max(b.now+b.regain(b.short, b.back)+b.regain(b.initial, 0), b.returns.until())
}
