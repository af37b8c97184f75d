package proof

import (
	"cmp"
	"sort"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// A past is what was admitted to one key of one rule, and the definition of its algorithm.
// Every version counts what any version has admitted since it came, and before that what the
// shortest window holds. It comes with its first charge of a key that has forgotten it.
type past struct {
	versions []limit.Rule
	came     []int64   // when each version did, or 0
	wrote    int64     // when the key was last charged
	rate     int64     // the largest limit of a version, which buckets and queues refill by
	at, sum  []int64   // when something was admitted, and the units until then
	values   []int     // that it showed
	held     []attempt // all that will be admitted, if it holds slots

	level, last int64   // of a bucket: the units that it lacked, times the window, and when
	end         int64   // of a queue: when the last slot has passed, times the rate
	starts      []int64 // of fixed windows that begin with a request: that of each version
	strikes     []int64 // since the last bar
	barred      int64   // when the last bar ends
}

func newPast(versions []limit.Rule) *past {
	p := &past{versions: versions, came: make([]int64, len(versions)), starts: make([]int64, len(versions))}
	for _, r := range versions {
		p.rate = max(p.rate, r.Limit)
	}
	return p
}

// charge notes that a version charges the key.
func (p *past) charge(version int, at int64) {
	if p.forgotten(at) {
		clear(p.came)
	}
	if p.wrote = at; p.came[version] == 0 {
		p.came[version] = at
	}
}

// forgotten reports whether all that the key was charged may have left the windows of the
// versions that have come.
func (p *past) forgotten(at int64) bool {
	for v, r := range p.versions {
		window := r.Window.Microseconds()
		counts := at-p.wrote < window
		if of, ok := r.Algorithm.(limit.FixedWindow); ok && of.Aligned {
			counts = p.wrote/window == at/window
		}
		if p.came[v] > 0 && counts {
			return false
		}
	}
	return true
}

// knows returns the time from which the version of a counts.
func (p *past) knows(a *attempt) int64 {
	of, fixed := p.versions[0].Algorithm.(limit.FixedWindow)
	if len(p.versions) == 1 || fixed && !of.Aligned {
		return 0
	}
	came := p.came[a.Version]
	if came == 0 || p.forgotten(a.At) {
		came = a.At
	}
	if fixed {
		return came // the shorter window may just have begun
	}
	return came - min(p.versions[0].Window, p.versions[1].Window).Microseconds() + 1
}

// since returns the units that were admitted from a time on, as far as the version of a
// knows them.
func (p *past) since(from int64, a *attempt) int64 {
	from = max(from, p.knows(a))
	i := sort.Search(len(p.at), func(i int) bool { return p.at[i] >= from })
	switch {
	case i == len(p.at):
		return 0
	case i == 0:
		return p.sum[len(p.sum)-1]
	}
	return p.sum[len(p.sum)-1] - p.sum[i-1]
}

// used returns how many units count at the time of a, those of a included, and how many
// its version allows: a is admitted if they are no more.
func (p *past) used(a *attempt) (units, most int64) {
	r := p.versions[a.Version]
	window := r.Window.Microseconds()
	switch of := r.Algorithm.(type) {
	case nil, rules.SlidingLog:
		return p.since(a.At-window+1, a) + a.Cost, r.Limit
	case limit.SlidingCells:
		from := a.At - window + 1
		if len(p.versions) == 1 { // another version may forget earlier what is in the cell before the window
			cells := int64(cmp.Or(of.Cells, 10))
			length := core.CeilDiv(window, cells)
			from = (a.At/length - cells) * length
		}
		return p.since(from, a) + a.Cost, r.Limit
	case limit.SlidingCounter:
		begin := a.At - a.At%window
		now := p.since(begin, a)
		before := p.since(begin-window, a) - now
		return now + core.CeilDiv(before*(begin+window-a.At), window) + a.Cost, r.Limit
	case limit.FixedWindow:
		switch {
		case of.Aligned:
			return p.since(a.At-a.At%window, a) + a.Cost, r.Limit
		case len(p.versions) == 1 && a.At-p.starts[0] >= window:
			return a.Cost, r.Limit
		case len(p.versions) == 1:
			return p.since(p.starts[0], a) + a.Cost, r.Limit
		}
		// Where the windows of a version begin depends on when it was first used. There
		// are two around the edge of one, and others may add to the first of them.
		return p.since(a.At-window+1, a) + a.Cost, 2*r.Limit + p.rate
	case limit.TokenBucket:
		return core.CeilDiv(p.lack(a.At, of.Missing), window) + a.Cost, p.burst()
	case limit.LeakyBucket:
		return core.CeilDiv(p.lack(a.At, 0), window) + a.Cost, p.burst()
	case limit.Queue:
		return p.queued(a, of, window)
	case limit.Concurrency:
		return p.holders(a, r.Limit, window)
	case limit.Distinct:
		return p.shown(a, window), r.Limit
	case limit.Ban:
		if a.At < p.barred {
			return 1, 0
		}
		return 0, 0
	}
	panic(r)
}

// burst returns the largest one of a version.
func (p *past) burst() (most int64) {
	for _, r := range p.versions {
		switch of := r.Algorithm.(type) {
		case limit.TokenBucket:
			most = max(most, cmp.Or(of.Burst, r.Limit))
		case limit.LeakyBucket:
			most = max(most, cmp.Or(of.Burst, r.Limit))
		case limit.Queue:
			most = max(most, of.Burst)
		}
	}
	return most
}

// lack returns the units that a bucket lacks, times its window. It begins with the first
// request.
func (p *past) lack(at, missing int64) int64 {
	if p.last == 0 {
		p.level, p.last = missing*p.versions[0].Window.Microseconds(), at
	}
	return max(0, p.level-(at-p.last)*p.rate)
}

// queued counts the units in a queue. The slot of an admission is where the last one ends.
func (p *past) queued(a *attempt, of limit.Queue, window int64) (units, most int64) {
	ahead := max(0, p.end-a.At*p.rate)
	wait := core.CeilDiv(ahead, p.rate)
	units, most = core.CeilDiv(ahead, window)+a.Cost, p.burst()+1
	if of.MaxWait > 0 && wait > of.MaxWait.Microseconds() ||
		a.Allowed && a.Slot < a.At+wait || a.Allowed && a.Slot > a.At+wait && len(p.versions) == 1 {
		return max(units, most+1), most
	}
	return units, most
}

// holders counts the units that are held while a is decided: for an admission those that
// certainly are, and for a refusal those that may be. On a busy machine a lease may end a
// window after its call began, since it was not renewed, or be released a window later.
func (p *past) holders(a *attempt, most, window int64) (units, allowed int64) {
	units, together := a.Cost, int64(0)
	for i := range p.held {
		b := &p.held[i]
		ends, free := min(b.Ends, b.Began+window), b.Free
		if b.Free-b.Ends > window/2 {
			free += window
		}
		if a.Allowed && b.Holds < a.Began && ends > a.Holds || !a.Allowed && b.Began <= a.Holds && free >= a.Began {
			units += b.Cost
		}
		if b.Holds <= a.Holds && a.Holds < ends {
			together += b.Cost
		}
	}
	if a.Allowed && together > p.rate {
		return together, p.rate
	}
	return units, most
}

// shown counts the different values in a window, with that of a. A value that is among
// them always passes.
func (p *past) shown(a *attempt, window int64) int64 {
	seen := make(map[int]bool)
	from := max(a.At-window+1, p.knows(a))
	for i := len(p.at) - 1; i >= 0 && p.at[i] >= from; i-- {
		if seen[p.values[i]] = true; p.values[i] == a.Value {
			return 0
		}
	}
	return int64(len(seen)) + 1
}

// admit adds an admission to the past.
func (p *past) admit(a *attempt) {
	r := p.versions[a.Version]
	window := r.Window.Microseconds()
	if _, ok := r.Algorithm.(limit.Ban); ok {
		return
	}
	p.charge(a.Version, a.At)
	switch of := r.Algorithm.(type) {
	case limit.FixedWindow:
		if a.At-p.starts[a.Version] >= window {
			p.starts[a.Version] = a.At
		}
	case limit.TokenBucket:
		p.level, p.last = p.lack(a.At, of.Missing)+a.Cost*window, a.At
	case limit.LeakyBucket:
		p.level, p.last = p.lack(a.At, 0)+a.Cost*window, a.At
	case limit.Queue:
		p.end = max(p.end, a.At*p.rate) + a.Cost*window
	}
	sum := a.Cost
	if len(p.sum) > 0 {
		sum += p.sum[len(p.sum)-1]
	}
	p.at, p.sum, p.values = append(p.at, a.At), append(p.sum, sum), append(p.values, a.Value)
}

// strike adds a refusal by another rule to the past of a ban.
func (p *past) strike(a *attempt, ban limit.Ban) {
	r := p.versions[a.Version]
	p.charge(a.Version, a.At)
	p.strikes = append(p.strikes, a.At)
	from := max(a.At-r.Window.Microseconds()+1, p.knows(a))
	i := sort.Search(len(p.strikes), func(i int) bool { return p.strikes[i] >= from })
	switch {
	case len(p.strikes)-i >= int(r.Limit):
		p.strikes, p.barred = nil, a.At+ban.Bar.Microseconds()
		clear(p.came)
	case a.Barred && len(p.versions) > 1: // by strikes that it need not have known
		p.strikes = nil
		clear(p.came)
	}
}
