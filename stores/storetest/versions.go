package storetest

import (
	"cmp"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// Versions draws n random schedules in which two to four versions of a rule charge one key:
// quotas with other limits, windows, bursts, cells, waits, calendars. They are of one
// algorithm or, if they are mixed, of two or more. A balancer decides which version a request
// meets, and versions come and go. The clock runs forward. Two promises are checked, by plain
// counts of what was admitted:
//
//   - each version holds its own bound on what all versions have admitted, and
//   - all together admit at least what the tightest version alone would, but for a constant.
//
// In overflow, the first holds for the versions that share an overflow quota, and twice their limit.
//
// [core.Ban] is left out: it refuses no units. Of several algorithms, so are those whose units
// are no units of the others: leases, strikes, values.
func Versions(t *testing.T, h Harness, mixed bool, seed uint64, n int) {
	t.Helper()
	admitted, refused := 0, 0
	for i := range n {
		v := newVersions(t, h, mixed, seed, i)
		v.run()
		admitted, refused = admitted+len(v.taken), refused+v.refused
	}
	t.Logf("seed %d: %d schedules, %d requests admitted and %d refused", seed, n, admitted, refused)
}

// versions is one schedule.
type versions struct {
	*mirror
	ask    [1]core.Ask
	quotas []core.Quota
	mixed  bool       // whether they have several algorithms
	last   *lone      // that met a request
	turned int64      // when that was one of another algorithm
	turn   func() int // the version of the next request

	taken  []taken
	shared bool    // whether an overflow quota took part, which others use too, and not all versions
	alone  []*lone // each version, if it met all requests
	meter  meter
}

// taken is a unit that was admitted.
type taken struct {
	at      int64
	version int
	id      uint64
}

// A lone is one version that meets all requests.
type lone struct {
	quota core.Quota
	state core.State
	units int64

	met int64 // when it last admitted a request of all

	// if there are several algorithms
	came  int64 // when its algorithm last met a request
	known bool  // whether the key has a tally of its algorithm
	from  int   // of what all have taken: the first that counts for it
}

func (l *lone) take(c *core.Charge, now int64) {
	if room := l.state.Advance(&l.quota, now); l.state.Needs(c) > room {
		return
	}
	l.state.Take(c.Cost, c.ID)
	l.units++
}

func newVersions(t *testing.T, h Harness, mixed bool, seed uint64, number int) *versions {
	v := &versions{mirror: newMirror(t, h, "versions", seed, number), mixed: mixed}
	v.now = v.now / sec * sec
	v.expires = h.Elapse != nil && v.random.IntN(8) == 0 // which takes the test longer
	if mixed {
		v.drawAlgorithms(number)
	} else {
		v.drawOne(number)
	}
	var queues []core.Quota // see slowest
	for _, q := range v.quotas {
		if err := q.Validate(); err != nil {
			v.fail("%+v: %v", q, err)
		}
		v.alone = append(v.alone, &lone{quota: q, state: core.NewState(q.Algorithm)})
		if q.Queues() || mixed && q.Refills() {
			q.Algorithm, q.Burst = core.Queue, q.Capacity()-1
			queues = append(queues, q)
		}
	}
	if len(queues) > 0 {
		v.alone = append(v.alone, &lone{quota: slowest(queues), state: core.NewState(core.Queue)})
	}
	v.turn, v.meter = v.balancer(), newMeter(v.quotas, v.now, mixed)
	return v
}

// drawOne draws versions of one algorithm.
func (v *versions) drawOne(number int) {
	all := core.Algorithms()
	a := all[number%len(all)]
	for a == core.Ban {
		a = pick(v.random, all)
	}
	base := someQuota(v.T, v.random, a)
	base.Limit = min(base.Limit, pick(v.random, []int64{2, 5, 10, 150}), a.MaxLimit())
	base.Missing = 0 // is about new keys
	base.Burst = min(base.Burst, 3*base.Limit)
	base.Window = min(max(base.Window, base.Limit), day)
	v.quotas = append(v.quotas, base)
	for range 1 + v.random.IntN(3) {
		v.quotas = append(v.quotas, v.another(base))
	}
}

// drawAlgorithms draws versions of several algorithms.
func (v *versions) drawAlgorithms(number int) {
	all := slices.DeleteFunc(core.Algorithms(), func(a core.Algorithm) bool { return !counts(a) })
	base := ofAlgorithm(v.random, all[number%len(all)], pick(v.random, []int64{1, 2, 5, 10, 30}), pick(v.random, []int64{sec, 10 * sec, 60 * sec}))
	other := pick(v.random, all)
	for other.Alike(base.Algorithm) {
		other = pick(v.random, all)
	}
	limit, window := base.Limit, base.Window
	if v.random.IntN(2) == 0 {
		factor := pick(v.random, []int64{1, 2, 3})
		limit, window = limit*factor, window*pick(v.random, []int64{1, factor})
	}
	v.quotas = append(v.quotas, base, ofAlgorithm(v.random, other, limit, window))
	for range v.random.IntN(3) {
		more := v.another(pick(v.random, v.quotas))
		if v.random.IntN(2) == 0 {
			more = ofAlgorithm(v.random, pick(v.random, all), base.Limit, base.Window)
		}
		v.quotas = append(v.quotas, more)
	}
}

// another returns a version of a quota in which some fields differ.
func (v *versions) another(q core.Quota) core.Quota {
	other := q
	for other == q {
		fields, factor := q.Algorithm.Fields(), pick(v.random, []int64{2, 3, 10})
		if v.random.IntN(2) == 0 {
			other.Limit = pick(v.random, []int64{max(1, q.Limit/factor), min(q.Limit*factor, q.Algorithm.MaxLimit())})
		}
		if v.random.IntN(3) == 0 && q.Calendar.Unit == 0 {
			other.Window = pick(v.random, []int64{max(q.Window/factor, ms), min(q.Window*factor, day)})
		}
		if fields.Has(core.FieldBurst) && v.random.IntN(2) == 0 {
			other.Burst = pick(v.random, []int64{max(1, q.Burst/factor), q.Burst * factor})
		}
		if fields.Has(core.FieldCells) && v.random.IntN(3) == 0 {
			other.Cells = pick(v.random, []int64{2, 3, 10, core.MaxCells})
		}
		if fields.Has(core.FieldMaxWait) && v.random.IntN(4) == 0 {
			other.MaxWait = pick(v.random, []int64{0, q.Window / 2, 3 * q.Window})
		}
		if fields.Has(core.FieldAligned) && v.random.IntN(4) == 0 {
			other.Aligned, other.Calendar = !q.Aligned, core.Calendar{}
		}
		if other.Validate() != nil {
			other = q
		}
	}
	return other
}

// balancer returns a function that says which version the next request meets.
func (v *versions) balancer() func() int {
	n, calls, first := len(v.quotas), 0, v.random.IntN(len(v.quotas))
	switch v.random.IntN(4) {
	case 0: // each in turn
		return func() int { calls++; return calls % n }
	case 1: // one after the other, as in a deploy, and back
		spell := 1 + v.random.IntN(60)
		return func() int { calls++; return (first + calls/spell) % n }
	case 2: // mostly one
		return func() int {
			if v.random.IntN(20) == 0 {
				return v.random.IntN(n)
			}
			return first
		}
	}
	return func() int { return v.random.IntN(n) }
}

func (v *versions) run() {
	v.begin()
	smallest := slices.MinFunc(v.quotas, func(a, b core.Quota) int { return cmp.Compare(a.Window/a.Limit, b.Window/b.Limit) })
	interval := max(1, smallest.Window/smallest.Limit)
	for range 200 + v.random.IntN(200) {
		switch v.random.IntN(60) {
		case 0:
			v.pass(v.random.Int64N(2 * pick(v.random, v.quotas).Window))
		case 1, 2, 3: // at once
		default:
			v.pass(v.random.Int64N(1 + interval))
		}
		v.request()
	}
	v.enough()
}

// request makes one request, by the version whose turn it is.
func (v *versions) request() {
	version := v.turn()
	c := core.Charge{Policy: v.policy, Rule: "r", Key: "k", Cost: 1, Quota: v.quotas[version]}
	if c.Quota.Identified() {
		c.ID = v.random.Uint64() | 1
	}
	if c.Quota.Algorithm == core.Distinct {
		c.ID = v.random.Uint64N(uint64(3*c.Quota.Limit)) + 1
	}
	v.ask[0].Charges = append(v.ask[0].Charges[:0], c)
	if err := v.Store.Take(v.Context(), v.ask[:]); err != nil {
		v.fail("%+v: %v", c, err)
	}
	if v.mixed {
		v.come(version)
	}
	for i := range v.alone {
		v.alone[i].take(&c, v.now)
	}
	v.shared = v.shared || v.ask[0].Decision.Overflow(0) != core.OwnQuota
	if !v.ask[0].Decision.Allowed {
		v.refused++
		return
	}
	v.meet(version)
	v.taken = append(v.taken, taken{v.now, version, c.ID})
	counted, most := v.counted(version)
	if used := v.used(&c.Quota, counted); used > most {
		v.fail("%d of %d by version %d", used, most, version)
	}
	if level, most := v.meter.add(v.now), v.capacity(); level > most && !v.shared {
		v.fail("%d of %d together", level, most)
	}
}

// slowest returns a queue that is as slow as the slowest, and in time as short as the shortest.
// Each of the versions may admit more requests that come now and then, the one since it is
// fast, the other since it is long.
func slowest(quotas []core.Quota) core.Quota {
	slow := slices.MinFunc(quotas, compareRates)
	for _, q := range quotas {
		length, _ := core.MulDiv(q.Burst+1, q.Window, q.Limit)
		units, _ := core.MulDiv(length, slow.Limit, slow.Window)
		slow.Burst = min(slow.Burst, max(0, units-1))
		if q.MaxWait > 0 && (slow.MaxWait == 0 || q.MaxWait < slow.MaxWait) {
			slow.MaxWait = q.MaxWait
		}
	}
	return slow
}

// meet notes that a version admits a request. A key does not know a version before that, and
// may forget it after a window without requests, or when the version has admitted nothing for
// an hour. A fixed window that one version alone has charged is forgotten when it ends. What
// was admitted before does not count for a version then.
func (v *versions) meet(version int) {
	n, known := len(v.taken), 0
	for i, l := range v.alone[:len(v.quotas)] {
		if n > 0 && v.now-v.taken[n-1].at >= v.quotas[i].Window {
			l.met = 0
		}
		if l.met > 0 && l.quota.Algorithm.Alike(v.quotas[version].Algorithm) {
			known++
		}
	}
	if v.quotas[version].Algorithm == core.FixedWindow && known == 1 {
		for _, l := range v.alone {
			if l.quota.Algorithm == core.FixedWindow {
				l.met = 0 // or it goes on with all that it has admitted itself
			}
		}
	}
	l := v.alone[version]
	if l.met == 0 || v.now-l.met >= hour {
		l.from = n
	}
	l.met = v.now
}

// counted returns the units that count for a version, and how many of them may. In overflow,
// these are the units of versions that share the overflow quota: a limit, and another one when
// the key gets a quota of its own, of which these versions may not be the first. Of values
// nothing is known there: a known one takes nothing of either quota.
func (v *versions) counted(version int) (list []taken, most int64) {
	list, most = v.taken[v.alone[version].from:], v.quotas[version].Limit
	switch {
	case !v.shared:
		return list, most
	case v.quotas[0].Algorithm == core.Distinct:
		return nil, most
	}
	return slices.DeleteFunc(slices.Clone(list), func(one taken) bool {
		return v.quotas[one.version].OverflowQuota() != v.quotas[version].OverflowQuota()
	}), 2 * most
}

// used returns how many units of all versions count for a quota, or 0 where units come
// back one by one.
func (v *versions) used(q *core.Quota, list []taken) (n int64) {
	within := func(from int64) (n int64) {
		for i := len(list) - 1; i >= 0 && list[i].at >= from; i-- {
			n++
		}
		return n
	}
	switch q.Algorithm {
	case core.SlidingLog, core.SlidingCells:
		return within(v.now - q.Window + 1)
	case core.Concurrency: // nothing is renewed
		for _, one := range list {
			if v.now < one.at+v.quotas[one.version].Window {
				n++
			}
		}
		return n
	case core.SlidingCounter:
		return within(v.now - v.now%q.Window)
	case core.FixedWindow:
		switch {
		case q.Calendar.Unit != 0:
			from, _ := q.Calendar.Period(v.now)
			return within(from)
		case q.Aligned:
			return within(v.now - v.now%q.Window)
		}
		for _, one := range list { // windows of the key may begin anywhere
			if one.at > v.now-q.Window && v.quotas[one.version] == *q {
				n++
			}
		}
		return (n + 1) / 2
	case core.Distinct:
		return v.values(q, list)
	}
	return 0
}

// values returns how many values were shown in the window, or 0 if the last one was in it
// before: that takes nothing.
func (v *versions) values(q *core.Quota, list []taken) int64 {
	last := len(v.taken) - 1
	counts := func(one taken) bool { return one.at > v.now-q.Window }
	if slices.ContainsFunc(v.taken[:last], func(one taken) bool { return counts(one) && one.id == v.taken[last].id }) {
		return 0
	}
	seen := make(map[uint64]bool)
	for _, one := range list {
		if counts(one) {
			seen[one.id] = true
		}
	}
	return int64(len(seen))
}

// capacity returns the most units that may be missing at the highest rate, one more for
// parts that were rounded. Units of a fast queue take little time of the queue of a slow
// version, so that of each may be full beside the others. Of several algorithms, one with
// windows may admit two limits around the end of a window, and another one its own before it
// comes.
func (v *versions) capacity() (most int64) {
	for _, q := range v.quotas {
		if q.Queues() && !v.mixed {
			most += q.Capacity()
		} else {
			most = max(most, q.Capacity())
		}
	}
	if v.mixed {
		most *= 3
	}
	return most + 1
}

// A meter is a bucket without an end, at the highest rate of the versions.
type meter struct {
	rate                core.Quota
	missing, part, last int64 // part: windowths of a unit
}

// newMeter returns a meter, whose rate is 0 where units of one algorithm do not come back one
// by one.
func newMeter(quotas []core.Quota, now int64, mixed bool) meter {
	if !quotas[0].Refills() && !mixed {
		return meter{}
	}
	return meter{last: now, rate: slices.MaxFunc(quotas, compareRates)}
}

// add takes a unit, and returns how many are missing.
func (m *meter) add(now int64) int64 {
	if m.rate.Window == 0 {
		return 0
	}
	came, rest := core.MulDiv(now-m.last, m.rate.Limit, m.rate.Window)
	if m.part -= rest; m.part < 0 {
		came, m.part = came+1, m.part+m.rate.Window
	}
	if m.missing -= came; m.missing < 0 {
		m.missing, m.part = 0, 0
	}
	m.missing, m.last = m.missing+1, now
	return m.missing
}

// compareRates compares how fast units come back.
func compareRates(a, b core.Quota) int {
	whole, rest := core.MulDiv(a.Limit, b.Window, a.Window)
	return cmp.Or(cmp.Compare(whole, b.Limit), cmp.Compare(rest, 0))
}

// enough checks that the versions together admitted what the tightest of them would have. How
// often leases and known values are admitted says nothing.
func (v *versions) enough() {
	if v.quotas[0].Identified() || v.shared {
		return
	}
	alone := v.alone
	if v.quotas[0].Queues() && !v.mixed {
		alone = alone[len(v.quotas):]
	}
	tightest := slices.MinFunc(alone, func(a, b *lone) int { return cmp.Compare(a.units, b.units) })
	var constant int64
	for _, q := range v.quotas {
		constant = max(constant, q.Capacity()+2)
	}
	if v.mixed { // a counter dates the units of others late
		constant *= 2
	}
	if slices.ContainsFunc(v.quotas, func(q core.Quota) bool { return q.Algorithm == core.FixedWindow }) { // what a window has above its limit counts in the next
		constant += tightest.units / 8
	}
	if together := int64(len(v.taken)); together < tightest.units-constant {
		v.fail("%d were admitted; the tightest version alone admits %d", together, tightest.units)
	}
}

func (v *versions) fail(format string, args ...any) {
	v.Helper()
	for i, q := range v.quotas {
		v.log("version %d: %+v", i, q)
	}
	for _, one := range v.taken[max(0, len(v.taken)-60):] {
		v.log("taken at %d by version %d", one.at, one.version)
	}
	v.mirror.fail(format, args...)
}
