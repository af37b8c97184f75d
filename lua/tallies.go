package lua

import (
	"errors"
	"fmt"
	"slices"

	"github.com/routelimit/limit/core"
)

// newTallied returns the files of a script, by n quotas, for keys that several algorithms charge,
// or did of late: see tallies.lua. To other scripts, something else has written such a key.
func newTallied(purpose int, others Algorithms, n int, quota func(i int) *core.Quota) *selection {
	s := &selection{names: []string{"overlay.lua", "bytes.lua", "state.lua"}, purpose: purpose, tallies: true}
	s.addSet(others)
	s.addAlgorithms(n, quota)
	s.add("tallies.lua")
	return s
}

func (s *selection) addSet(algorithms Algorithms) {
	for _, a := range core.Algorithms() {
		if algorithms&(1<<a) != 0 {
			s.add(fileOf(a))
		}
	}
}

// Algorithms is a set of algorithms.
type Algorithms uint16

// all are those whose units count for each other, each kind of state once.
const all Algorithms = 1<<core.SlidingLog | 1<<core.FixedWindow | 1<<core.SlidingCells | 1<<core.SlidingCounter | 1<<core.TokenBucket | 1<<core.Queue

const lackBase = 10 // see lacking in tallies.lua

// A lackError says that a key has an algorithm that the script lacks. It wraps [ErrValue].
type lackError struct {
	key       string
	algorithm core.Algorithm
}

func (e *lackError) Error() string {
	return fmt.Sprintf("%v: %s has units of %v", ErrValue, e.key, e.algorithm)
}
func (e *lackError) Unwrap() error { return ErrValue }

// Lacking returns the algorithm that the script of a decision lacked, if its error says so.
func Lacking(err error) Algorithms {
	var lacks *lackError
	if !errors.As(err, &lacks) {
		return 0
	}
	return 1 << lacks.algorithm
}

// Tallied returns the script that decides what l.Script does, also on keys that other algorithms
// charge too. Its arguments are those of [Rules.EncodeTallied].
func (l *Rules) Tallied(others Algorithms) *Script {
	if known, ok := l.tallied.Load(others); ok {
		return known.(*Script)
	}
	s := newTallied(taking, others, len(l.rules), func(i int) *core.Quota { return &l.rules[i].Quota })
	s.extra, s.several = l.reserves != nil, l.shape != nil
	script := l.usual(others, s.join("take.lua"))
	l.tallied.Store(others, script)
	return script
}

// usual returns a script that decides the usual calls of l itself, and is the whole one otherwise.
func (l *Rules) usual(others Algorithms, whole *Script) *Script {
	var own Algorithms
	for i := range l.rules {
		own |= 1 << l.rules[i].Quota.Algorithm
	}
	if l.reserves != nil || l.shape != nil || (own|others)&^(all|1<<core.LeakyBucket) != 0 {
		return whole
	}
	s := newSelection(owing)
	s.addSet(own)
	n := len(s.names)
	s.addSet(others)
	s.told = slices.Clone(s.names[n:])
	for a, name := range [...]string{core.SlidingLog: "talliedlog.lua", core.FixedWindow: "talliedwindow.lua"} {
		if own&(1<<a) != 0 {
			s.add(name)
		}
	}
	s.add("heads.lua")
	usual := s.join("taketallied.lua")
	return once([2]*Script{usual, whole}, func() *Script {
		return newScript("local function whole()\n"+whole.Text+"end\n"+usual.Text, whole.plain)
	})
}

// EncodeTallied is [Rules.Encode] for the script of [Rules.Tallied].
func (l *Rules) EncodeTallied(now string, grace int, requests [][]core.Ask) (keys []string, args []any) {
	keys, args, counts := l.encode(now, grace, requests)
	var heads []byte
	for r := range l.rules {
		head := headOf(&l.rules[r].Quota)
		for range counts[r] {
			heads = append(heads, head...)
		}
	}
	return keys, append(args, heads)
}

// headOf returns the head of a quota, with its size.
func headOf(q *core.Quota) []byte {
	params := ""
	switch {
	case q.Identified() || q.Bars():
	case q.Algorithm == core.FixedWindow:
		params = parameters(q, "")[:7] // the mark, without the periods of a calendar
	default:
		params = parameters(q, "")
	}
	head := string([]byte{byte(q.Algorithm)}) + number(q.Span(), 7) + number(q.Limit, 6) + number(q.Window, 6) + params
	return append([]byte(number(int64(len(head)), 2)), head...)
}

// Tallied makes l, a call that takes charges, one for keys that several algorithms charge.
// All charges on a key must have one algorithm.
func (l *Debts) Tallied(charges []core.Charge) {
	s := newTallied(owing, all, len(charges), func(i int) *core.Quota { return &charges[i].Quota })
	var heads []byte
	for i := range charges {
		heads = append(heads, headOf(&charges[i].Quota)...)
	}
	l.Script, l.Args = s.join("debts.lua"), append(l.Args, heads)
}

// tally makes l, with a rule for each return, a call for keys that several algorithms charge.
// All returns to a key must be to one algorithm.
func (l *Returns) tally(rules []returnRule) {
	s := newTallied(returning, all, len(rules), func(i int) *core.Quota { return rules[i].quota })
	s.several = true
	var heads []byte
	for i := range rules {
		if heads = append(heads, headOf(rules[i].quota)...); rules[i].memories != nil {
			heads = append(heads, 0, 0)
		}
	}
	l.Script, l.Args = s.join("return.lua"), append(l.Args, heads)
}

// TalliedLeases makes a call of [EncodeLeases] one for keys that several algorithms charge.
func TalliedLeases(prefix string, keys []string, args []any, charges []core.Charge) (*Script, []any) {
	var heads []byte
	for _, key := range keys {
		i := slices.IndexFunc(charges, func(c core.Charge) bool { return Key(prefix, &c) == key })
		heads = append(heads, headOf(&charges[i].Quota)...)
	}
	return leaseScript(newTallied(taking, all, 0, nil)), append(args, heads)
}
