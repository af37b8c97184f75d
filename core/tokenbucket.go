package core

// TokenBucket holds up to Burst tokens and refills at Limit tokens a Window. A
// unit takes a token. A new bucket lacks Missing tokens and begins to refill when
// it is first charged, whether that charge is admitted or not.
//
// In any time t it admits at most Burst + t·Limit/Window units, rounded down. It
// refills from the time that has passed when it is charged. Parts of a token are
// kept exactly, so that neither frequent nor rare callers gain or lose any.
//
// A bucket that has been full for an hour and had Missing tokens at first is new
// again: the next charge finds Missing tokens missing. No store can remember every
// key for ever, and this makes the decision the same whether a store still has
// the key or not. So a client that waits RetryAfter is admitted, unless it comes
// back more than an hour after its bucket was full. Then it may be refused once
// more, with a new RetryAfter.
//
// Trade-off: a burst and a window's refill fit into one window.
//
// When the clock steps back, the last refill is dated now: no time is credited
// twice. A changed rate applies since the last unit was taken. When the burst is
// lowered, the bucket lacks no more than all of it. It remembers what else it lacked
// until it is full, for a burst that is raised again; until then it gathers no tokens
// beside those that are taken.
//
// The method is the token bucket of Turner, "New directions in communications
// (or which way to the information age?)" (1986), refilled lazily.
const TokenBucket Algorithm = 4

// debtMemory is how long a bucket or queue that debts left full is remembered: other
// debts from before that are paid later, and add up as they did then.
const debtMemory = 60 * 1_000_000

// newAgain is how long a full bucket that did not begin full is remembered.
const newAgain = 3600 * 1_000_000

// A bucketState holds how many tokens a bucket lacks, and since when.
type bucketState struct {
	Base
	missing int64    // tokens, when last taken from
	part    int64    // Windowths of the last of them that were refilled
	last    int64    // when that was
	window  int64    // what part counts in
	begun   bool     // whether the bucket has been charged
	owes    bool     // whether debts took more than the burst, all of which is missing
	known   int64    // until when a full bucket matters to debts
	isNew   bool     // whether it is new at the last Advance
	returns *returns // nil until something is given back

	// of the last Advance
	limit, burst, initial, most, now, short, back int64

	debt int64 // tokens that it lacks for a larger burst; 0 if it lacked no more than this one
}

func (b *bucketState) Advance(q *Quota, now int64) int64 {
	b.limit, b.burst, b.initial, b.most, b.now = q.Limit, q.Burst, q.Missing, q.mostOwed(), now
	if b.window != q.Window {
		b.part, b.window = 0, q.Window
	}
	b.last = min(b.last, now)
	b.refill()
	if b.initial > 0 && b.short == 0 && b.fullAt()+newAgain <= now {
		b.begun = false // and stays so if the clock steps back
	}
	if b.isNew = !b.begun; b.isNew {
		b.short, b.back = b.initial, 0
	}
	return b.burst - b.short
}

// lacked returns how much the bucket lacked when it was last taken from, which is
// at most its burst of now, unless it owes more.
func (b *bucketState) lacked() (missing, part int64) {
	most := b.burst
	if b.owes {
		most = b.most
	}
	if b.missing > most {
		return most, 0
	}
	return b.missing, b.part
}

// refill finds what the bucket lacks now.
func (b *bucketState) refill() {
	missing, part := b.lacked()
	came, rest := MulDiv(b.now-b.last, b.limit, b.window)
	if rest += part; rest >= b.window {
		came, rest = came+1, rest-b.window
	}
	b.debt = 0
	if b.short, b.back = missing-came, rest; b.short <= 0 {
		b.short, b.back = 0, 0
	} else if b.missing > b.burst && !b.owes {
		b.debt = b.missing - came
	}
}

// fullAt returns when the bucket is full if nothing more is taken.
func (b *bucketState) fullAt() int64 { return b.last + b.regain(b.lacked()) }

func (b *bucketState) Take(n int64, _ uint64) (room, delay int64) {
	b.short += n
	if b.debt > 0 {
		b.debt += n
		b.short = b.debt
	}
	if b.short > b.burst {
		b.back = 0
	}
	b.missing, b.part, b.last, b.begun, b.owes, b.known = b.short, b.back, b.now, true, false, 0
	b.short = min(b.short, b.burst)
	return b.burst - b.short, 0
}

// Owe implements [State]: the tokens are missing from that time on, or from the last
// charge on if that is later. This is exact if the bucket was not full since, but for
// the last charge. A bucket that is new begins then, at most an hour ago. What it
// lacked for a larger burst is forgotten.
func (b *bucketState) Owe(_ *Quota, n, at int64, _ uint64) {
	if now := b.now; b.isNew {
		if b.missing, b.part, b.last = b.initial, 0, at; b.initial > 0 {
			b.last = max(at, now-newAgain)
		}
		b.short, b.back = b.initial, 0
	} else {
		b.now = max(at, b.last)
		b.refill()
		b.last, b.now = b.now, now
	}
	if b.missing, b.part = b.short+min(n, b.most), b.back; b.missing > b.most {
		b.missing, b.part = b.most, 0
	}
	b.begun, b.owes, b.known = true, b.missing > b.burst, b.now+debtMemory
}

// Refuse implements [State]: a bucket that does not begin full refills from its
// first charge on.
func (b *bucketState) Refuse(bool) bool {
	if b.isNew && b.initial > 0 {
		b.missing, b.part, b.last, b.begun, b.owes = b.initial, 0, b.now, true, false
	}
	return false
}

func (b *bucketState) Used() int64 { return b.short }

func (b *bucketState) After(n int64) int64 { return b.regain(n, b.back) }

// regain returns how long n tokens take to refill, if back Windowths of the first
// are there.
func (b *bucketState) regain(n, back int64) int64 {
	whole, rest := MulDiv(n, b.window, b.limit)
	return whole + CeilDiv(rest-back, b.limit)
}

// Expires implements [State]. What was given back is remembered for as long as it
// matters.
func (b *bucketState) Expires() int64 {
	if !b.begun {
		return b.returns.until()
	}
	at := b.fullAt()
	if b.initial > 0 {
		at += newAgain
	}
	return max(at, b.known, b.returns.until())
}

// Return implements [State]: it gives back as much of r as the bucket would still
// lack if no other request had come. What has been refilled is not given back.
func (b *bucketState) Return(r *Return, now int64) int64 {
	q := &r.Quota
	if !b.begun || b.window != q.Window || b.missing > q.Burst && !b.owes || b.last > now || r.At > now {
		return 0
	}
	b.Advance(q, now)
	if b.isNew {
		b.begun = true // the quota of the next charge may refill more slowly
		return 0
	}
	lacks, given := give(&b.returns, r, now, levelOf(b.short, b.back, q.Window))
	if given > 0 {
		b.missing, b.part = lacks.units, 0
		if lacks.part > 0 {
			b.missing, b.part = lacks.units+1, q.Window-lacks.part
		}
		b.last, b.owes = now, b.missing > q.Burst
		if b.missing+b.initial == 0 {
			b.last, b.known = 0, 0 // as new, for debts too
		}
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
