package core

// TokenBucket holds up to Burst tokens and refills at Limit tokens a Window. A
// unit takes a token. A new bucket lacks Missing tokens and begins to refill when
// it is first charged, whether that charge is admitted or not.
//
// In any time t it admits at most Burst + t·Limit/Window units, rounded down. It
// refills from the time that has passed when it is charged. Parts of a token are
// kept exactly, so that neither frequent nor rare callers gain or lose any.
//
// Trade-off: a burst and a window's refill fit into one window.
//
// When the clock steps back, the last refill is dated now: no time is credited
// twice. When the burst is lowered, the bucket lacks no more than all of it. A
// changed rate applies since the last unit was taken.
//
// The method is the token bucket of Turner, "New directions in communications
// (or which way to the information age?)" (1986), refilled lazily.
const TokenBucket Algorithm = 4

// A bucketState holds how many tokens a bucket lacks, and since when.
type bucketState struct {
	Base
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
func (b *bucketState) Advance(q *Quota, now int64) int64 {
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
	came, rest := MulDiv(now-b.last, q.Limit, q.Window)
	if rest += part; rest >= q.Window {
		came, rest = came+1, rest-q.Window
	}
	if b.short, b.back = missing-came, rest; b.short <= 0 {
		b.short, b.back = 0, 0
	}
	return b.burst - b.short
}

// Take implements [State].
func (b *bucketState) Take(n int64, _ uint64) (room, delay int64) {
	b.short += n
	b.missing, b.part, b.last, b.begun = b.short, b.back, b.now, true
	return b.burst - b.short, 0
}

// Refuse implements [State]. A bucket that does not begin full refills from the
// time when it is first charged.
func (b *bucketState) Refuse() { b.begun = b.begun || b.initial > 0 }

// Used implements [State].
func (b *bucketState) Used() int64 { return b.short }

// After implements [State].
func (b *bucketState) After(n int64) int64 { return b.regain(n, b.back) }

// regain returns how long n tokens take to come back, of the first of which
// back Windowths are there.
func (b *bucketState) regain(n, back int64) int64 {
	whole, rest := MulDiv(n, b.window, b.limit)
	return whole + CeilDiv(rest-back, b.limit)
}

// Expires implements [State]. A bucket that does not begin full is remembered
// for as long again as its filling took, and what was given back as long as it
// matters.
func (b *bucketState) Expires() int64 {
	if !b.begun || b.short == 0 && b.initial == 0 {
		return b.returns.until()
	}
	return max(b.now+b.regain(b.short, b.back)+b.regain(b.initial, 0), b.returns.until())
}

// Return implements [State]: as much as the bucket would still lack of r if
// nobody else had come. What has come back by itself does not come again.
func (b *bucketState) Return(r *Return, now int64) int64 {
	q := &r.Quota
	if !b.begun || b.window != q.Window || b.missing > q.Burst || b.last > now || r.At > now {
		return 0
	}
	b.Advance(q, now)
	lacks, given := give(&b.returns, r, now, levelOf(b.short, b.back, q.Window))
	if given > 0 {
		b.missing, b.part = lacks.units, 0
		if lacks.part > 0 {
			b.missing, b.part = lacks.units+1, q.Window-lacks.part
		}
		b.last = now
	}
	return given
}

// Clone implements [State].
func (b *bucketState) Clone() State {
	copied := *b
	copied.returns = b.returns.clone()
	return &copied
}
