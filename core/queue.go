package core

import "slices"

// Queue admits requests one after the other, at Limit a Window. An admitted
// request is delayed until its turn: see [Decision].Delay. Up to Burst units
// wait, each for at most MaxWait if that is not 0.
//
// Admitted units follow one another by Window/Limit, exactly and over all
// instances, in whatever order they were charged. It keeps one time.
//
// Trade-off: after a pause, units come no faster. The turn of a client that goes
// away passes unused, unless it is returned. A later request may then have that turn,
// before requests that came earlier.
//
// When the clock steps back, the queue is as long as when a request last joined or left it.
//
// Versions of a quota share the time at which the last unit has passed. Each adds its units there,
// if there is room by its own Burst and MaxWait, at its own rate; a version with a shorter queue is
// full until then. In any time t, units pass at most as fast as the fastest version lets them, and
// at least as fast as the slowest. Where the rates are the same, at most the largest Burst + 1 +
// t·Limit/Window units are admitted. Where they differ, units of a fast version take little time of
// the queue of a slow one: then the other versions' Burst + 1 may be admitted beside that.
//
// The method is the leaky bucket of Turner (1986), in which nginx's limit_req and
// uber-go/ratelimit reserve turns.
const Queue Algorithm = 6

// A queueState is a schedule of at most Burst units that wait and one that passes.
type queueState struct {
	usual
	schedule
	gaps *gaps // nil if there are none

	capacity, room, maxWait int64 // of the last Advance
	turn                    int64 // how long until the end of a turn that was taken in a gap
	known                   int64 // until when an end that has passed matters to debts
}

func (u *queueState) Advance(q *Quota, now int64) int64 {
	u.capacity, u.maxWait, u.turn = q.Burst+1, q.MaxWait, 0
	u.schedule.advance(q, now)
	return u.count()
}

// count counts the units that there is room for, at the end or in the largest gap: none if the next
// one would wait for too long.
func (u *queueState) count() int64 {
	u.room = u.capacity - u.units()
	if u.maxWait > 0 && u.until(0) > u.maxWait {
		u.room = min(u.room, 0)
	}
	for _, g := range u.turns() {
		if left, delay := u.open(g); u.maxWait == 0 || delay <= u.maxWait {
			u.room = max(u.room, min(left.units, u.capacity-1)) // of a version with a longer queue, maybe
		}
	}
	return u.room
}

func (u *queueState) Take(n int64, _ uint64) (room, delay int64) {
	end, part := u.now+u.ahead, u.aheadPart
	if i := u.fits(n); i >= 0 {
		var left gap
		left, delay = u.open(u.gaps.list[i])
		u.turn = u.until(u.gaps.total - left.from - n)
		u.gaps.list[i] = gap{left.from + n, left.units - n}
		u.trim()
		u.write(end, part)
		return u.count(), delay
	}
	u.trim()
	delay = u.until(0)
	u.known = 0
	u.write(u.after(n, end, part))
	if u.gaps != nil {
		u.gaps.total += n
	}
	return u.count(), delay
}

// Owe implements [State]: it moves the end as far back as units that come at that time
// do, which is exact if no turn since then began later than it could. Gaps stay.
func (u *queueState) Owe(q *Quota, n, at int64, _ uint64, _ bool) {
	u.owe(n, at, q.mostOwed())
	u.known = u.now + debtMemory
}

// owe adds units that came at a time, until it has so many, or is as long as before.
func (u *queueState) owe(n, at, units int64) {
	n = min(n, units)
	longest, most := u.after(units, 0, 0)
	if u.ahead > longest || u.ahead == longest && u.aheadPart > most {
		longest, most = u.ahead, u.aheadPart
	}
	end, part := u.stop()
	if end < at {
		end, part = at, 0
	}
	if end, part = u.after(n, end, part); end-u.now > longest || end-u.now == longest && part > most {
		end, part, u.gaps = u.now+longest, most, nil // numbers end
	}
	u.trim()
	u.write(end, part)
	if u.gaps != nil {
		u.gaps.total += n
		u.trim()
	}
}

func (u *queueState) Used() int64 { return u.capacity - u.room }

// After implements [State]. After a request took its turn in a gap, that turn is what
// it waits for, the first time that it asks: its end names it for a [Return].
func (u *queueState) After(n int64) int64 {
	if turn := u.turn; turn > 0 && n == u.Used() {
		u.turn = 0
		return turn
	}
	after := u.until(u.Used() - n)
	if u.maxWait == 0 {
		return max(0, after)
	}
	after = max(after, u.until(0)-u.maxWait)
	for _, g := range u.turns() {
		if left, delay := u.open(g); min(left.units, u.capacity-1) >= u.room+n {
			after = min(after, delay-u.maxWait)
		}
	}
	return max(0, after)
}

// Return implements [State]. It gives back units whose turn has not come: the last ones of what was
// taken. At the end they shorten the queue, with the gaps before them; elsewhere they are a gap. A
// queue remembers up to [MaxGaps] gaps. Beyond that, the turn passes unused. If the rate is above
// one unit a microsecond, turns cannot be told apart and nothing is given back.
func (u *queueState) Return(r *Return, now int64) int64 {
	s, q := &u.schedule, &r.Quota
	if s.scale != q.Limit || q.Limit > q.Window || r.At > now || s.last > now || s.end < now || u.gaps != nil && u.gaps.window != q.Window {
		return 0
	}
	s.advance(q, now)
	behind, ok := s.behind(r.At + r.ResetAfter)
	if !ok {
		return 0
	}
	all := &gaps{window: q.Window, total: s.units()} // numbered from the one that is passing
	for _, g := range u.turns() {
		g.from -= u.gaps.total - all.total
		if from := max(g.from, 1); from < g.end() {
			all.list = append(all.list, gap{from, g.end() - from})
		}
	}
	more := gap{from: max(1, all.total-behind-r.Cost)}
	more.units = all.total - behind - more.from
	if more.units <= 0 || slices.ContainsFunc(all.list, func(g gap) bool { return g.from < more.end() && more.from < g.end() }) {
		return 0
	}
	all.list = all.add(more)
	if last := len(all.list) - 1; all.list[last].end() == all.total {
		s.cut(all.list[last].units)
		all.total, all.list = all.list[last].from, all.list[:last]
	}
	if len(all.list) > MaxGaps {
		return 0
	}
	if u.gaps = all; len(all.list) == 0 {
		u.gaps = nil
	}
	return more.units
}

func (u *queueState) Expires() int64 { return max(u.schedule.Expires(), u.known) }

func (u *queueState) Clone() State {
	copied := *u
	if u.gaps != nil {
		gaps := *u.gaps
		gaps.list = slices.Clone(gaps.list)
		copied.gaps = &gaps
	}
	return &copied
}
