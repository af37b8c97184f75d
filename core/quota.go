package core

// A Quota is how much a rule allows: Limit units a Window, by an algorithm. The
// other fields are for the algorithms that they name, and zero for the rest.
// [Quota.Validate] says what is allowed; the zero Quota is not.
type Quota struct {
	Algorithm Algorithm
	Limit     int64 // units, at least 1
	Window    int64 // microseconds; Concurrency: how long a lease lives that is not renewed

	Burst   int64 // TokenBucket, LeakyBucket: units at once, at least 1; Queue: units that may wait
	Cells   int64 // SlidingCells: how many, 2 to 60
	Missing int64 // TokenBucket: tokens that a new bucket lacks, at most Burst
	MaxWait int64 // Queue: the longest wait in microseconds; 0 for any
	Bar     int64 // Ban: how long the first bar lasts, in microseconds
	MaxBar  int64 // Ban: the longest of the bars that follow, in microseconds; 0 for Bar

	Aligned  bool     // FixedWindow: windows begin at multiples of Window since the epoch
	Calendar Calendar // FixedWindow: windows are calendar periods; Window is their usual length
}

// Refills reports whether units come back one by one, at Limit a Window. For
// other algorithms, units come back as they leave a window or are released.
func (q *Quota) Refills() bool { return q.Algorithm.row().refills }

// Queues reports whether admitted units wait for their turn: see [Decision].Delay.
func (q *Quota) Queues() bool { return q.Algorithm.row().queues }

// Leases reports whether units are held as leases, which are renewed and
// released instead of returned.
func (q *Quota) Leases() bool { return q.Algorithm.row().leases }

// Bars reports whether refusals by other rules count, and may bar a key: see [Ban].
func (q *Quota) Bars() bool { return q.Algorithm.row().bars }

// Spends reports whether clients spend the units of the quota, so that headers show them:
// the strikes of a [Ban] and the values of a [Distinct] are none.
func (q *Quota) Spends() bool { return !q.Bars() && q.Algorithm != Distinct }

// Identified reports whether charges carry an ID.
func (q *Quota) Identified() bool { return q.Algorithm.row().identified }

// Capacity returns the largest cost that can ever fit.
func (q *Quota) Capacity() int64 {
	switch row := q.Algorithm.row(); {
	case row.queues:
		return q.Burst + 1
	case row.refills:
		return q.Burst
	}
	return q.Limit
}

// Span returns how long a unit matters: units taken longer ago have no effect
// on a decision, unless a bucket or queue has not been full since.
func (q *Quota) Span() int64 { return q.Algorithm.row().span(q) }

func (q *Quota) oneWindow() int64  { return q.Window }
func (q *Quota) twoWindows() int64 { return 2 * q.Window }

// windowAndBars is a window, the bar that may follow, and the time for which that is remembered.
func (q *Quota) windowAndBars() int64 { return q.Window + 2*q.longestBar() }

func (q *Quota) longestBar() int64 { return max(q.Bar, q.MaxBar) }

// windowAndCells is a window, rounded up to whole cells, and the cell of now.
func (q *Quota) windowAndCells() int64 { return q.Window + 2*q.cellLength() }

// refillTime is the time in which an empty bucket refills, rounded up.
func (q *Quota) refillTime() int64 {
	micros, _ := MulDiv(q.Burst+1, q.Window, q.Limit)
	return min(micros+1, 2*MaxFill)
}

// Share returns the part of q that one of several instances may admit alone, rounded up: of the
// limit, and of the burst where units refill. Where rounding would make an invalid quota, it
// returns q. The strikes of a ban are not divided: they are no units that instances could admit.
func (q *Quota) Share(instances int64) Quota {
	part := *q
	if instances == 1 || q.Bars() {
		return part
	}
	part.Limit = CeilDiv(q.Limit, instances)
	if q.Refills() {
		part.Burst -= q.Capacity() - CeilDiv(q.Capacity(), instances)
		part.Missing = CeilDiv(q.Missing, instances)
	}
	if !part.valid() {
		return *q
	}
	return part
}

// Wider returns a quota with room for the given multiple of what q admits, as far as the algorithm
// allows. Where units refill, they do at the rate of [Quota.Share], and only the burst is wider.
func (q *Quota) Wider(instances, times int64) Quota {
	wide := *q
	if !q.Refills() {
		wide.Limit = min(times*q.Limit, q.Algorithm.row().maxLimit)
		return wide
	}
	part := q.Share(instances)
	wide.Limit, wide.Missing, wide.MaxWait = part.Limit, part.Missing, 0
	wide.Burst = min(times*q.Capacity(), MaxLimit)
	if wide.fills() > MaxFill {
		wide.Burst = part.Burst
	}
	return wide
}

// mostOwed returns how many units may be lacking, debts included: what comes back in [MaxFill].
func (q *Quota) mostOwed() int64 { return mostOwed(q.Limit, q.Window, q.Capacity()) }

func mostOwed(limit, window, capacity int64) int64 {
	most, _ := MulDiv(MaxFill, limit, window)
	return max(min(most, MaxCost), capacity)
}

// fills returns how long a burst takes at the rate of q.
func (q *Quota) fills() int64 {
	if q.Limit < 1 || q.Window < 1 || q.Burst < 0 {
		return 0
	}
	fills, _ := MulDiv(q.Burst, q.Window, q.Limit)
	return fills
}
