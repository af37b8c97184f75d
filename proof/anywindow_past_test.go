package proof

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// A past is what was admitted to one key of one rule, and the definition of its algorithm.
// Every version counts what any version has admitted.
type past struct {
	versions []limit.Rule
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
	p := &past{versions: versions, starts: make([]int64, len(versions))}
	for _, r := range versions {
		p.rate = max(p.rate, r.Limit)
	}
	return p
}

// since returns the units that were admitted from a time on.
func (p *past) since(from int64) int64 {
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
	case nil, limit.SlidingLog:
		return p.since(a.At-window+1) + a.Cost, r.Limit
	case limit.SlidingCells:
		cells := int64(cmp.Or(of.Cells, 10))
		length := core.CeilDiv(window, cells)
		return p.since((a.At/length-cells)*length) + a.Cost, r.Limit
	case limit.SlidingCounter:
		begin := a.At - a.At%window
		now := p.since(begin)
		before := p.since(begin-window) - now
		return now + core.CeilDiv(before*(begin+window-a.At), window) + a.Cost, r.Limit
	case limit.FixedWindow:
		switch {
		case of.Aligned:
			return p.since(a.At-a.At%window) + a.Cost, r.Limit
		case len(p.versions) == 1 && a.At-p.starts[0] >= window:
			return a.Cost, r.Limit
		case len(p.versions) == 1:
			return p.since(p.starts[0]) + a.Cost, r.Limit
		}
		// Where the windows of a version begin depends on when it was first used. There
		// are two around the edge of one, and others may add to the first of them.
		return p.since(a.At-window+1) + a.Cost, 2*r.Limit + p.rate
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
		if a.Allowed && b.Holds <= a.Began && ends >= a.Holds || !a.Allowed && b.Began <= a.Holds && free >= a.Began {
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
	for i := len(p.at) - 1; i >= 0 && a.At-p.at[i] < window; i-- {
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
	p.strikes = append(p.strikes, a.At)
	i := sort.Search(len(p.strikes), func(i int) bool { return a.At-p.strikes[i] < r.Window.Microseconds() })
	if len(p.strikes)-i >= int(r.Limit) {
		p.strikes, p.barred = nil, a.At+ban.Bar.Microseconds()
	}
}

// A history is the pasts of all keys of a row, and of all its rules.
type history struct {
	versions [][]limit.Rule
	attempts []attempt // in the order of their times
	pasts    map[[2]int]*past
}

func newHistory(versions [][]limit.Rule, attempts []attempt) *history {
	return &history{versions, attempts, make(map[[2]int]*past)}
}

// of returns the past of a rule of an attempt.
func (h *history) of(rule int, a *attempt) *past {
	id := [2]int{rule, a.Key}
	if h.versions[0][rule].Key.String() == limit.Everyone.String() {
		id[1] = -1
	}
	p := h.pasts[id]
	if p != nil {
		return p
	}
	var versions []limit.Rule
	for _, rules := range h.versions {
		versions = append(versions, rules[rule])
	}
	p = newPast(versions)
	h.pasts[id] = p
	if _, holds := versions[0].Algorithm.(limit.Concurrency); holds {
		for _, b := range h.attempts {
			if b.Allowed && b.Key == a.Key {
				p.held = append(p.held, b)
			}
		}
	}
	return p
}

// used returns the units that count and the most that the version of a allows, by the rule
// that is exceeded the most.
func (h *history) used(a *attempt) (units, most int64) {
	for i := range h.versions[a.Version] {
		if u, m := h.of(i, a).used(a); i == 0 || u-m > units-most {
			units, most = u, m
		}
	}
	return units, most
}

func (h *history) admit(a *attempt) {
	for i := range h.versions[a.Version] {
		h.of(i, a).admit(a)
	}
}

// refuse counts a strike of a ban, unless it bars already.
func (h *history) refuse(a *attempt) {
	last := len(h.versions[a.Version]) - 1
	if ban, ok := h.versions[a.Version][last].Algorithm.(limit.Ban); ok && a.Mode == core.ModeExact && a.At >= h.of(last, a).barred {
		h.of(last, a).strike(a, ban)
	}
}

// check compares attempts with the definitions. It returns what is wrong, and whether
// something was refused: a very busy machine may make too few requests.
func (r *windowRow) check(t *testing.T, attempts []attempt) (wrong string, full bool) {
	slices.SortFunc(attempts, func(a, b attempt) int {
		switch { // what is decided at one time is in any order: what is admitted counts first
		case a.At != b.At:
			return cmp.Compare(a.At, b.At)
		case a.Allowed != b.Allowed && a.Allowed:
			return -1
		case a.Allowed != b.Allowed:
			return 1
		}
		return cmp.Compare(a.Slot, b.Slot)
	})
	h := newHistory(r.rules(), attempts)
	var admitted, refused, above, spurious int
	var total, worst int64
	worstOf, spuriousOf := "", ""
	for i := range attempts {
		a := &attempts[i]
		if a.Mode > core.ModeRemembered {
			t.Fatalf("the store has not decided: %v", a.Mode)
		}
		units, most := h.used(a)
		if a.Allowed {
			admitted++
			total += a.Cost
			if units > most {
				above++
			}
			if units-most > worst {
				worst, worstOf = units-most, fmt.Sprintf("%d of %d of version %d", units, most, a.Version)
			}
			h.admit(a)
			continue
		}
		refused++
		if units <= most && a.Mode == core.ModeExact && len(r.text) == 1 {
			spurious++
			spuriousOf = fmt.Sprintf("%d of %d", units, most)
		}
		h.refuse(a)
	}
	most, alone, least := h.mostInAny(r.longest().Microseconds()), r.alone(), r.least(attempts)
	t.Logf("%d admitted and %d refused; most units in any %v: %d, and %d of one version alone; %d units in all, and %d of the tightest version alone",
		admitted, refused, r.longest(), most, alone, total, least)
	require.NotZero(t, admitted)
	var all []string
	if above > 0 {
		all = append(all, fmt.Sprintf("%d admitted above the limit, at worst %s", above, worstOf))
	}
	if spurious > 0 {
		all = append(all, fmt.Sprintf("%d refused below the limit, such as %s", spurious, spuriousOf))
	}
	if alone > 0 && most > alone && len(r.text) == 1 {
		all = append(all, fmt.Sprintf("%d units in a window: at most %d", most, alone))
	}
	if total < least*9/10 {
		all = append(all, fmt.Sprintf("%d units in all: the tightest version alone admits %d", total, least))
	}
	return strings.Join(all, "; "), refused > 0
}

// mostInAny returns the most units of a key in any window of the length, as they may go on.
func (h *history) mostInAny(window int64) (most int64) {
	live := make(map[int][]attempt)
	units := make(map[int]int64)
	slots := slices.DeleteFunc(slices.Clone(h.attempts), func(a attempt) bool { return !a.Allowed })
	slices.SortStableFunc(slots, func(a, b attempt) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, a := range slots {
		list := append(live[a.Key], a)
		units[a.Key] += a.Cost
		for ; a.Slot-list[0].Slot >= window; list = list[1:] {
			units[a.Key] -= list[0].Cost
		}
		live[a.Key], most = list, max(most, units[a.Key])
	}
	return most
}

// alone returns the most units of a key that one version alone may admit in any window as
// long as the longest, or 0 if there is no such bound.
func (r *windowRow) alone() (most int64) {
	for _, rules := range r.rules() {
		rule := rules[0]
		windows := core.CeilDiv(r.longest().Microseconds(), rule.Window.Microseconds())
		units := windows * rule.Limit
		switch of := rule.Algorithm.(type) {
		case limit.FixedWindow, limit.SlidingCounter:
			units += rule.Limit
		case limit.TokenBucket:
			units += cmp.Or(of.Burst, rule.Limit)
		case limit.LeakyBucket:
			units += cmp.Or(of.Burst, rule.Limit)
		case limit.Queue:
			units += max(1, rule.Limit/8) // a request has the slot of its first unit
		case limit.Concurrency, limit.Distinct:
			return 0
		}
		most = max(most, units)
	}
	return most
}

// least returns how many units the version that admits the least would have admitted,
// alone, of the attempts that were made.
func (r *windowRow) least(attempts []attempt) int64 {
	least := int64(-1)
	for _, rules := range r.rules() {
		if _, holds := rules[0].Algorithm.(limit.Concurrency); holds {
			return 0
		}
		h, admitted := newHistory([][]limit.Rule{rules}, nil), int64(0)
		for _, a := range attempts {
			a.Version, a.Allowed = 0, false
			if units, most := h.used(&a); units > most {
				h.refuse(&a)
				continue
			}
			h.admit(&a)
			admitted += a.Cost
		}
		if least < 0 || admitted < least {
			least = admitted
		}
	}
	return least
}
