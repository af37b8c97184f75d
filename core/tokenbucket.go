package core

// TokenBucket holds up to Burst tokens and refills at Limit tokens a Window. A
// unit takes a token. A new bucket lacks Missing tokens and begins to refill when
// it is first charged, whether that charge is admitted or not.
//
// In any time t it admits at most Burst + t·Limit/Window units, rounded down. It
// refills from the time that has passed when it is charged. Parts of a token are
// kept exactly, so that neither frequent nor rare callers gain or lose any.
//
// A bucket that has been full for an hour and had Missing tokens at first is new again: the next
// charge finds Missing tokens missing. No store can remember every key forever, and this makes the
// decision the same whether a store still has the key or not. So a client that waits RetryAfter is
// admitted, unless it comes back more than an hour after its bucket was full. Then it may be
// refused once more, with a new RetryAfter.
//
// Trade-off: a burst and a window's refill fit into one window.
//
// When the clock steps back, the last refill is dated now: no time is credited twice.
//
// Versions of a quota, with other bursts, rates or windows, count what all of them admitted.
// Together they admit at most the largest burst and what the fastest refills, and at least what the
// smallest burst and the slowest rate admit. A version with a smaller burst never lacks more than
// that when the bucket was last taken from, so that it refills from then on; it keeps what others
// lack. Between two charges that are admitted, the bucket refills at the rate of the second. Each
// time that the window is another, up to a windowth of a token is lost.
//
// The method is the token bucket of Turner, "New directions in communications
// (or which way to the information age?)" (1986), refilled lazily.
const TokenBucket Algorithm = 4

// debtMemory is how long a bucket or queue that debts left full is remembered: other
// debts from before that are paid later, and add up as they did then.
const debtMemory = 60 * 1_000_000

// newAgain is how long a full bucket that did not begin full is remembered.
const newAgain = 3600 * 1_000_000

// A bucketState holds how many tokens a bucket lacks, and since when. It is the truth for
// all versions of the quota, each of which reads it in its own way: see lacked.
type bucketState struct {
	usual
	missing int64    // tokens, when last taken from
	part    int64    // windowths of the last of them that were refilled
	window  int64    // what part counts in
	last    int64    // when that was
	owed    int64    // of the missing, what debts took above the burst
	until   int64    // when all of it is refilled, or does not matter any more
	again   int64    // when the bucket was last found new again, unless it was charged since
	begun   bool     // whether it has been charged
	isNew   bool     // whether it is new at the last Advance
	returns *returns // nil until something is given back

	// of the last Advance
	limit, span, burst, initial, now int64 // span is the window
	short, back                      int64 // what the version lacks; as missing and part
}

func (b *bucketState) Advance(q *Quota, now int64) int64 {
	b.read(q, now)
	if b.last > now {
		b.last = now
		b.keep(b.missing, b.counted())
	}
	missing, part := b.lacked()
	b.short, b.back = b.refilled(missing, part, now-b.last)
	b.isNew = !b.begun
	if b.begun && b.initial > 0 {
		b.isNew = b.again > now // it was, before the clock stepped back
		if b.short == 0 && b.last+b.regain(b.missing, b.counted())+newAgain <= now {
			b.isNew = true
			if b.until <= now { // so that a store may have forgotten it
				b.again = max(b.again, now)
			}
		}
	}
	if b.isNew && b.short <= b.initial {
		b.short, b.back = b.initial, 0
	}
	return b.burst - b.short
}

// read notes by which quota the state is read.
func (b *bucketState) read(q *Quota, now int64) {
	b.limit, b.span, b.burst, b.initial, b.now = q.Limit, q.Window, q.Burst, q.Missing, now
}

// counted returns part in windowths of the last Advance, rounded so that less is refilled.
func (b *bucketState) counted() int64 {
	if b.part == 0 || b.window == b.span {
		return b.part
	}
	part, _ := MulDiv(b.part, b.span, b.window)
	return part
}

// lacked returns what the version lacked after the last take: at most its burst and what is owed.
func (b *bucketState) lacked() (missing, part int64) {
	most := b.burst
	if b.owed > 0 {
		most = min(most+b.owed, mostOwed(b.limit, b.span, most))
	}
	if b.missing > most {
		return most, 0
	}
	return b.missing, b.counted()
}

// refilled returns what is left of missing tokens after some time.
func (b *bucketState) refilled(missing, back, micros int64) (left, rest int64) {
	came, rest := MulDiv(micros, b.limit, b.span)
	if rest += back; rest >= b.span {
		came, rest = came+1, rest-b.span
	}
	if missing <= came {
		return 0, 0
	}
	return missing - came, rest
}

// truth returns what the bucket lacks now for a burst that is large enough.
func (b *bucketState) truth() (missing, back int64) {
	if b.missing <= b.burst {
		return b.short, b.back
	}
	missing, back = b.refilled(b.missing, b.counted(), b.now-b.last)
	if b.isNew && missing <= b.initial {
		return b.initial, 0
	}
	return missing, back
}

// write notes what the bucket lacks from a time on.
func (b *bucketState) write(missing, back, at int64) {
	b.missing, b.part, b.window, b.last, b.begun, b.owed, b.again = missing, back, b.span, at, true, 0, 0
	b.keep(missing, back)
}

// keep notes until when the bucket matters that lacks so much at last.
func (b *bucketState) keep(missing, back int64) { b.until = b.matters(missing, back) }

func (b *bucketState) matters(missing, back int64) (until int64) {
	if until = b.last + min(b.regain(missing, back), MaxFill); b.initial > 0 {
		until += newAgain
	}
	return until
}

func (b *bucketState) Take(n int64, _ uint64) (room, delay int64) {
	missing, back := b.truth()
	b.write(missing+n, back, b.now)
	b.short, b.back = b.lacked()
	return b.burst - b.short, 0
}

// Owe implements [State]: the tokens are missing from that time on, or from the last charge on if
// that is later. This is exact if the bucket was not full since, but for the last charge. A bucket
// that is new begins then, at most an hour ago. The version pays for what is above its burst before
// it admits anything, but not for what others have admitted above that.
func (b *bucketState) Owe(q *Quota, n, at int64, _ uint64, _ bool) {
	b.owe(n, at, q.mostOwed())
	b.until = max(b.until, b.now+debtMemory)
}

// owe takes tokens from a time on, until most are missing, or as many as were before.
func (b *bucketState) owe(n, at, most int64) {
	if at = max(at, b.last); b.isNew && b.initial > 0 {
		at = max(at, b.now-newAgain)
	}
	missing, back := b.refilled(b.missing, b.counted(), at-b.last)
	admitted := max(b.burst, min(missing, b.missing-b.owed))
	if b.isNew && missing <= b.initial {
		missing, back = b.initial, 0
	}
	most, n = max(most, missing), min(n, most)
	if missing += n; missing > most {
		missing, back = most, 0
	}
	b.write(missing, back, at)
	b.owed = max(0, missing-admitted)
}

// Refuse implements [State]: a bucket that does not begin full refills from its first charge.
func (b *bucketState) Refuse(bool) bool {
	if b.isNew && b.initial > 0 {
		missing, back := b.truth()
		b.write(missing, back, b.now)
	}
	return false
}

func (b *bucketState) Used() int64 { return b.short }

func (b *bucketState) After(n int64) int64 { return b.regain(n, b.back) }

// regain returns how long n tokens take to refill, less back windowths of the first.
func (b *bucketState) regain(n, back int64) int64 {
	whole, rest := MulDiv(n, b.span, b.limit)
	return whole + CeilDiv(rest-back, b.limit)
}

// Expires implements [State]: as seen by the version that wrote it and by the one that
// read it last. What was given back is remembered for as long as it matters.
func (b *bucketState) Expires() int64 {
	if !b.begun {
		return b.returns.until()
	}
	return max(b.until, b.matters(b.missing, b.counted()), b.returns.until())
}

// Return implements [State]: it gives back as much of r as the bucket would still
// lack if no other request had come. What has been refilled is not given back.
func (b *bucketState) Return(r *Return, now int64) int64 {
	q := &r.Quota
	if !b.begun || b.window != q.Window || b.last > now || r.At > now {
		return 0
	}
	b.read(q, now)
	missing, back := b.refilled(b.missing, b.part, now-b.last)
	if missing == 0 {
		return 0
	}
	lacks := levelOf(missing, back, q.Window)
	left, given := give(&b.returns, r, now, lacks)
	switch {
	case given == 0:
	case left == level{} && q.Missing == 0:
		*b = bucketState{returns: b.returns} // as new, for debts too
	default:
		// It lacks less since its last take: what a small burst has refilled since stays.
		was := levelOf(b.missing, b.part, q.Window).minus(lacks.minus(left, q.Window), q.Window)
		b.missing, b.part = was.missing(q.Window)
		b.owed = min(b.owed, max(0, b.missing-q.Burst))
		until := b.until
		b.keep(b.missing, b.part)
		b.until = max(b.until, until)
	}
	return given
}

func (b *bucketState) Clone() State {
	copied := *b
	if b.returns != nil {
		returns := *b.returns
		copied.returns = &returns
	}
	return &copied
}
