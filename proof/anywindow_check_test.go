package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

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
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Slot, b.Slot))
	})
	versions := make(map[[2]int64]int) // a bit for each of those that decided on a key at one time
	for _, a := range attempts {
		versions[[2]int64{int64(a.Key), a.At}] |= 1 << a.Version
	}
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
		together := versions[[2]int64{int64(a.Key), a.At}] == 3 // both versions, in an order that is not known
		if a.Allowed {
			admitted++
			total += a.Cost
			if units > most && !together {
				above++
			}
			if units-most > worst && !together {
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
		if !together || a.Barred {
			h.refuse(a)
		}
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

// rank returns the place of a among those that a version decides at one time, in any order:
// what is admitted counts first, and a strike that bars is the last.
func (a *attempt) rank() int {
	switch {
	case a.Allowed:
		return 0
	case a.Barred:
		return 2
	}
	return 1
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
