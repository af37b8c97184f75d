package lua

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// Returns is a call that gives units back.
type Returns struct {
	Script *Script
	One    *Script // for one key: with an empty reply, it leaves the call to Script; or nil
	Keys   []string
	Args   []any

	returns []core.Return
	order   []int         // of the returns, if those that can be are joined
	places  []returnPlace // of each return
	records int
	states  []string // keys but those of what was given back before
}

// A returnPlace is where the reply has what came of a return.
type returnPlace struct{ rule, record, state int }

// A returnRule is a quota, with its keys and the returns to them.
type returnRule struct {
	quota    *core.Quota
	keys     []string
	numbers  map[string]int // of the keys
	last     []int          // of each key, its last record
	memories []string       // of what was given back before
	records  []returnRecord
}

// A returnRecord is a return, or several to one key of units that were taken at once and are alike.
type returnRecord struct {
	core.Return
	state int // the number of its key
}

const (
	ruleSize   = 15
	recordSize = 36
	stringMost = 128 // units of a log in one string: see logforms.lua
)

// NewReturns encodes a call of return.lua. Prefix, now and grace are as for [NewRules]
// and [Rules.Encode]; tallied is whether several algorithms may charge the keys.
func NewReturns(prefix, now string, grace int, returns []core.Return, tallied bool) *Returns {
	return newReturns(prefix, now, grace, returns, false, tallied, false)
}

// JoinReturns is NewReturns for callers that do not know of each other. Their order is open, so
// those of a key that can be given back together are.
func JoinReturns(prefix, now string, grace int, returns []core.Return) *Returns {
	return newReturns(prefix, now, grace, returns, false, false, true)
}

// newReturns has a rule for each return if they are to be apart.
func newReturns(prefix, now string, grace int, returns []core.Return, apart, tallied, joined bool) *Returns {
	keys := make([]string, len(returns))
	for i := range returns {
		keys[i] = Key(prefix, &returns[i].Charge)
	}
	l := &Returns{returns: returns, places: make([]returnPlace, len(returns))}
	if joined {
		l.order = inOrder(keys, returns)
	}
	rules := l.group(prefix, keys, !apart)
	several := tallied || len(rules) > 1 && repeats(rules)
	if several && !apart { // a key has several quotas: in their order
		rules = l.group(prefix, keys, false)
	}
	l.Args = append(make([]any, 0, 2+2*len(rules)), now, grace)
	for i := range rules {
		l.encode(now, &rules[i])
	}
	if tallied {
		l.tally(rules)
	} else {
		l.Script = returnScript(rules, several)
		if len(l.states) == 1 {
			l.One = returnOneScript(&rules[0])
		}
	}
	for i := range l.places {
		p := &l.places[i]
		for r := range rules[:p.rule] {
			p.record, p.state = p.record+len(rules[r].records), p.state+len(rules[r].keys)
		}
	}
	return l
}

// inOrder returns the numbers of returns, with those side by side that can be given back together.
func inOrder(keys []string, returns []core.Return) []int {
	order := make([]int, len(returns))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &returns[i], &returns[j]
		return cmp.Or(cmp.Compare(keys[i], keys[j]), cmp.Compare(a.At, b.At), cmp.Compare(a.Remaining, b.Remaining), i-j)
	})
	return order
}

// group finds the rules of the returns and their places, or makes a rule of each return.
func (l *Returns) group(prefix string, keys []string, together bool) []returnRule {
	var rules []returnRule
	for i := range l.returns {
		if l.order != nil {
			i = l.order[i]
		}
		r := &l.returns[i]
		n := len(rules)
		if together {
			n = 0
			for n < len(rules) && *rules[n].quota != r.Quota {
				n++
			}
		}
		if n == len(rules) {
			rules = append(rules, returnRule{quota: &r.Quota, numbers: make(map[string]int)})
		}
		record, state := rules[n].add(prefix, keys[i], r, l.order != nil)
		l.places[i] = returnPlace{n, record, state}
	}
	return rules
}

// add adds a return, and returns the numbers of its record and of its key.
func (u *returnRule) add(prefix, key string, r *core.Return, joined bool) (record, state int) {
	state, known := u.numbers[key]
	if !known {
		state = len(u.keys)
		u.keys, u.numbers[key], u.last = append(u.keys, key), state, append(u.last, 0)
		if bucket(r.Quota.Algorithm) {
			u.memories = append(u.memories, ReturnedKey(prefix, &r.Charge))
		}
	} else {
		record = u.last[state]
		if o := &u.records[record]; (alike(r.Quota.Algorithm) && o.At == r.At || joined && follows(&o.Return, r)) && o.Cost <= core.MaxCost-r.Cost {
			o.Cost += r.Cost
			return record, state
		}
	}
	u.last[state] = len(u.records)
	u.records = append(u.records, returnRecord{*r, state})
	return len(u.records) - 1, state
}

// follows reports whether the units of b were taken from a bucket right before those of a, so
// that both are given back as if one admission had taken them. A caller that returns units twice
// gets less than from one after the other.
func follows(a, b *core.Return) bool {
	return bucket(b.Quota.Algorithm) && a.At == b.At && a.Remaining+a.Cost == b.Remaining
}

// alike reports whether units that were taken at one time are the same to an algorithm. A
// bucket gives back what each admission alone left it lacking.
func alike(a core.Algorithm) bool { return a != core.Queue && a != core.Distinct && !bucket(a) }

// bucket reports whether a is one of those of which a second key remembers what was given back.
func bucket(a core.Algorithm) bool { return a == core.TokenBucket || a == core.LeakyBucket }

// repeats reports whether a key is one of several rules.
func repeats(rules []returnRule) bool {
	seen := make(map[string]bool)
	for i := range rules {
		for _, key := range rules[i].keys {
			if seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// encode appends the keys and the arguments of a rule.
func (l *Returns) encode(now string, u *returnRule) {
	q := u.quota
	list := make([]byte, 0, ruleSize+recordSize*len(u.records))
	list = append(list, byte(q.Algorithm))
	list = append(list, number(int64(len(u.keys)), 2)...)
	list = append(list, number(q.Limit, 6)...)
	list = append(list, number(q.Window, 6)...)
	for i := range u.records {
		r := &u.records[i]
		index := uint64(len(l.Keys) + r.state + 1)
		list = binary.BigEndian.AppendUint64(list, index<<48|uint64(r.Cost))
		list = append(list, number(r.At, 7)...)
		list = append(list, number(r.Remaining, 6)...)
		list = append(list, number(r.ResetAfter, 7)...)
		list = appendID(list, r.ID)
	}
	l.Keys = append(append(l.Keys, u.keys...), u.memories...)
	l.records, l.states = l.records+len(u.records), append(l.states, u.keys...)
	l.Args = append(l.Args, parameters(q, now), list)
}

// returnScript returns the script for returns, which its algorithms identify.
func returnScript(rules []returnRule, several bool) *Script {
	var algorithms Algorithms
	for i := range rules {
		algorithms |= 1 << rules[i].quota.Algorithm
	}
	type key struct {
		of      Algorithms
		several bool
	}
	return once(key{algorithms, several}, func() *Script {
		files := newSelection(returning)
		files.several = several
		files.addAlgorithms(len(rules), func(i int) *core.Quota { return rules[i].quota })
		return files.join("return.lua")
	})
}

// returnOneScript returns the script for returns to one key, or nil if that would leave the call
// to the batch script: for algorithms whose give_back does not know what look would find, and
// for a log with more units than a string has.
func returnOneScript(u *returnRule) *Script {
	q := u.quota
	switch q.Algorithm {
	case core.SlidingLog:
		if slices.ContainsFunc(u.records, func(r returnRecord) bool { return q.Limit-r.Remaining > stringMost }) {
			return nil
		}
	case core.FixedWindow, core.SlidingCells, core.SlidingCounter, core.TokenBucket, core.LeakyBucket:
	default:
		return nil
	}
	return once(q.Algorithm, func() *Script {
		files := &selection{names: []string{"undo.lua", "bytes.lua", "state.lua"}, purpose: returning, one: true}
		files.addAlgorithms(1, func(int) *core.Quota { return q })
		return files.join("returnone.lua")
	})
}

// WeightOfReturn estimates for how many µs a return makes a call longer that begins with first.
func WeightOfReturn(r, first *core.Return) int64 {
	if alike(r.Quota.Algorithm) && r.At == first.At && r.Key == first.Key && r.SameState(&first.Charge) && r.Quota == first.Quota {
		return 1
	}
	return 4*weightOfCharge + r.Quota.Cells + weightOfSize(&r.Quota)
}

// Decode returns what came of each return from the reply. With an error none gave any units.
func (l *Returns) Decode(reply []int64) ([]core.Returned, error) {
	n := l.records
	if len(reply) != n && len(reply) != n+3*len(l.states) {
		return nil, fmt.Errorf("%w: %d numbers for %d returns", ErrReply, len(reply), n)
	}
	for _, p := range l.places {
		if given := reply[p.record]; given < 0 {
			return nil, wrong(-given, l.states[p.state])
		}
	}
	if len(reply) == n && l.One == nil {
		return nil, fmt.Errorf("%w: no outcomes of %d returns", ErrReply, n)
	}
	if len(reply) == n { // the key is full: see returnone.lua
		reply = append(slices.Clip(reply), l.returns[0].Quota.Capacity(), 0, 0)
	}
	given, outcomes := slices.Clone(reply[:n]), reply[n:]
	results := make([]core.Returned, len(l.returns))
	for i, p := range l.places {
		c, o := &l.returns[i].Charge, &results[i].Outcome
		results[i].Units = min(c.Cost, given[p.record])
		given[p.record] -= results[i].Units
		left, more, reset := outcomes[3*p.state], outcomes[3*p.state+1], outcomes[3*p.state+2]
		if more < 0 || !plausible(c, left, more, reset) {
			return nil, fmt.Errorf("%w: %s makes no sense: %d", ErrValue, l.states[p.state], outcomes[3*p.state:3*p.state+3])
		}
		*o = core.Outcome{Remaining: left, MoreAfter: more, ResetAfter: reset}
		if c.Quota.Bars() {
			o.Need(1)
		}
	}
	return results, nil
}
