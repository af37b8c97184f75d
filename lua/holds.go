package lua

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/routelimit/limit/core"
)

// wrap returns a driver around other scripts. They stand where it has the lines INNER and
// OTHER, as bodies of functions of KEYS and ARGV.
func wrap(driver string, inner ...*Script) *Script {
	key := driver
	for _, s := range inner {
		key += " " + s.SHA
	}
	return once(key, func() *Script {
		var files selection
		files.add(driver)
		plain := ""
		for _, name := range files.names {
			plain += parsed()[name].text[taking]
		}
		for mark, name := range map[string]string{"HELD\n": "held.lua", "BE48\n": "be48.lua"} {
			plain = strings.Replace(plain, mark, parsed()[name].text[taking], 1)
		}
		text := strip(plain)
		for i, mark := range []string{"INNER\n", "OTHER\n", "FEW\n"}[:len(inner)] {
			text = strings.Replace(text, mark, inner[i].Text, 1)
			plain = strings.Replace(plain, mark, inner[i].plain, 1)
		}
		return newScript(text, plain)
	})
}

// nothing stands where a driver has no second script.
var nothing Script

// memoryMillis is [core.HoldMemory] in ms.
const memoryMillis = core.HoldMemory / 1000

// hexOf returns an id as the scripts have it.
func hexOf(id core.HoldID) string { return hex.EncodeToString(id[:]) }

// Held is a call that decides an ask, and holds what it takes.
type Held struct {
	Script *Script
	Keys   []string
	Args   []any // the caller appends the number of the call

	rules *Rules
	held  []int // the charges that are held
}

// unheld leaves those keys and arguments that a script reads from behind.
const unheld = `KEYS = {unpack(KEYS, 1, #KEYS - 2*(#ARGV[#ARGV - 2] - 24))}
for _ = 1, 3 do table.remove(ARGV, #ARGV - 1) end
`

// Held encodes a call of hold.lua. Prefix, now and grace are as for [NewRules] and
// [Rules.Encode], and so is Args[1]. Tallied is a script of [Rules.Tallied], or nil.
func (l *Rules) Held(prefix, now string, grace int, ask *core.Ask, h *core.Hold, tallied *Script) *Held {
	of, encode := &Held{rules: l}, l.Encode
	switch {
	case tallied != nil:
		inner := once("held "+tallied.SHA, func() *Script { return newScript(unheld+tallied.Text, unheld+tallied.plain) })
		of.Script, encode = wrap("hold.lua", inner, &nothing), l.EncodeTallied
	case l.One != nil:
		of.Script = wrap("hold.lua", l.One, l.Script)
	default:
		of.Script = wrap("hold.lua", l.Script, &nothing)
	}
	of.Keys, of.Args = encode(now, grace, [][]core.Ask{{*ask}})
	var flags []byte
	var behind []string
	for i := range ask.Charges {
		c := &ask.Charges[i]
		if !c.Quota.Holds() {
			continue
		}
		flag := byte(i+1) | byte(h.Kept>>i&1)<<6
		if bucket(c.Quota.Algorithm) {
			flag |= 128
		}
		flags = append(flags, flag)
		hash, ends := HoldKeys(prefix, c)
		of.Keys, behind = append(of.Keys, hash), append(behind, ends)
		of.held = append(of.held, i)
	}
	of.Keys = append(of.Keys, behind...)
	of.Args = append(of.Args, memoryMillis, hexOf(h.ID)+string(flags), h.Life)
	return of
}

// Decode sets the decision of the ask and what was found, from the reply of the call without
// its number. With an error nothing was taken.
func (l *Held) Decode(reply []int64, ask *core.Ask, h *core.Hold) error {
	n := len(l.held)
	if len(reply) == 2 && reply[1] < 0 {
		if at := slices.Index(l.held, int(-reply[1]-1)); at >= 0 {
			return wrong(2, l.Keys[len(l.Keys)-2*n+at])
		}
	}
	h.Found, h.Units, h.Over = core.HoldUnknown, [core.MaxCharges]int64{}, nil
	if len(reply) > 1 && reply[1] >= -1 {
		return l.decide(reply, ask, ask.Charges)
	}
	if len(reply) < 3+n || reply[1] < -5 || reply[2+n] < 0 || reply[2+n] > int64(len(reply)-3-n)/3 {
		return fmt.Errorf("%w: %d numbers for a hold", ErrReply, len(reply))
	}
	h.Found = [...]core.Found{core.HoldUnknown, core.HoldLives, core.HoldSettled, core.HoldEnded}[-2-reply[1]]
	for i, charge := range l.held {
		if h.Units[charge] = reply[2+i]; reply[2+i] < 0 || reply[2+i] > core.MaxCost {
			return fmt.Errorf("%w: a hold of %d units", ErrReply, reply[2+i])
		}
	}
	over, rest := reply[3+n:][:3*reply[2+n]], reply[3+n+3*int(reply[2+n]):]
	for i := 0; i < len(over); i += 3 {
		if over[i] < 1 || over[i] > int64(len(ask.Charges)) || !slices.Contains(l.held, int(over[i]-1)) {
			return fmt.Errorf("%w: a hold of charge %d", ErrReply, over[i])
		}
		of := core.Settlement{Return: core.Return{Charge: ask.Charges[over[i]-1]}, Ends: true}
		copy(of.Hold[:6], number(over[i+1], 6))
		copy(of.Hold[6:], number(over[i+2], 6))
		h.Over = append(h.Over, of)
	}
	if h.Found == core.HoldSettled || h.Found == core.HoldEnded {
		return nil
	}
	charges := ask.Charges
	if h.Found == core.HoldLives {
		charges = core.Repeated(charges)
	}
	return l.decide(append([]int64{reply[0]}, rest...), ask, charges)
}

// decide sets the decision from what the inner script has replied to charges.
func (l *Held) decide(reply []int64, ask *core.Ask, charges []core.Charge) (failed error) {
	asks := []core.Ask{{Charges: charges}}
	err := l.rules.Decode(reply, [][]core.Ask{asks}, func(_ int, err error) { failed = err })
	ask.Decision = asks[0].Decision
	return cmp.Or(err, failed)
}

// Settlements is a call that settles or ends holds.
type Settlements struct {
	Script *Script
	Keys   []string
	Args   []any

	Unreleased bool // set by Decode: a key of the leases has no value that their script knows

	keys   []string // of the states
	leases int
}

// NewSettlements encodes a call of settle.lua; owes is whether it can take units in addition, and
// tallied whether several algorithms may charge the keys.
func NewSettlements(prefix, now string, grace int, list []core.Settlement, owes, tallied bool) *Settlements {
	returns, charges := make([]core.Return, len(list)), make([]core.Charge, len(list))
	for i := range list {
		charges[i] = list[i].Charge
		charges[i].Reserve, charges[i].Debt = 0, true
		returns[i] = list[i].Return
		returns[i].Cost = list[i].Used
	}
	back, owing := newReturns(prefix, now, grace, returns, true, tallied, false), NewDebts(prefix, now, grace, charges)
	for i := range charges {
		if charges[i].MaxDebt == 0 {
			owing.Args[3+9*i+8] = -1
		}
	}
	if tallied {
		owing.Tallied(charges)
	}
	if !owes {
		owing.Keys, owing.Args = nil, nil
	}
	one := &nothing
	if !tallied {
		one = settleOneScript(list)
	}
	l := &Settlements{Script: wrap("settle.lua", back.Script, owing.Script, one), keys: back.states}
	l.Keys = append(append(l.Keys, back.Keys...), owing.Keys...)
	l.Args = append(l.Args, now, grace, memoryMillis, len(back.Keys), len(back.Args)-2, len(owing.Args))
	l.Args = append(append(l.Args, back.Args[2:]...), owing.Args...)
	var behind []string
	for i := range list {
		s := &list[i]
		hash, ends := HoldKeys(prefix, &s.Charge)
		l.Keys, behind = append(l.Keys, hash), append(behind, ends)
		how := "0"
		switch {
		case s.Ends:
			how = "1"
		case s.Forget:
			how = "2"
		}
		l.Args[7+2*i] = append(l.Args[7+2*i].([]byte), how+hexOf(s.Hold)...)
	}
	l.Keys = append(l.Keys, behind...)
	if leases := core.Leased(list); len(leases) > 0 {
		keys, args, _ := EncodeLeases(prefix, now, grace, false, leases)
		l.Script, l.leases = wrap("release.lua", LeaseScript(), l.Script), len(leases)
		l.Keys = append(keys, l.Keys...)
		l.Args = append(append([]any{len(keys), len(args)}, args...), l.Args...)
	}
	return l
}

// settleOneScript returns the script that settles downward, or nothing where it would leave all to
// settle.lua.
func settleOneScript(list []core.Settlement) *Script {
	var algorithms Algorithms
	for i := range list {
		s := &list[i]
		algorithms |= 1 << s.Quota.Algorithm
		if s.Ends || slices.ContainsFunc(list[:i], func(o core.Settlement) bool { return o.Key == s.Key && o.SameState(&s.Charge) }) {
			return &nothing
		}
	}
	return once([1]Algorithms{algorithms}, func() *Script {
		files := newSelection(returning)
		files.one, files.settles = true, true
		files.add("be48.lua")
		files.addAlgorithms(len(list), func(i int) *core.Quota { return &list[i].Quota })
		return files.join("settleone.lua")
	})
}

// ErrOwes is the error of a call that cannot take units in addition, and must.
var ErrOwes = errors.New("lua: a settlement takes more")

// Decode returns what came of each settlement. With an error nothing has changed.
func (l *Settlements) Decode(reply []int64, list []core.Settlement) ([]core.Settled, error) {
	if len(reply) < l.leases {
		return nil, fmt.Errorf("%w: %d numbers for %d leases", ErrReply, len(reply), l.leases)
	}
	settled := len(reply) - l.leases
	l.Unreleased = slices.ContainsFunc(reply[settled:], func(n int64) bool { return n < 0 })
	reply = reply[:settled]
	if len(reply) == len(list) { // of settleone.lua
		one := reply
		reply = nil
		for _, given := range one {
			reply = append(reply, min(given, 0)+1, max(given, 0), 0, 0)
		}
	}
	if len(reply) != 4*len(list) {
		return nil, fmt.Errorf("%w: %d numbers for %d settlements", ErrReply, len(reply), len(list))
	}
	done := make([]core.Settled, len(list))
	for i := range list {
		found, given, taken, forgiven := reply[4*i], reply[4*i+1], reply[4*i+2], reply[4*i+3]
		switch {
		case found == -4:
			return nil, wrong(2, l.Keys[len(l.Keys)-2*len(list)+i])
		case found < 0:
			return nil, wrong(-found, l.keys[i])
		case found == 4:
			return nil, ErrOwes
		case found > 3 || min(given, taken, forgiven) < 0 || max(given, taken, forgiven) > core.MaxCost:
			return nil, fmt.Errorf("%w: %d of a settlement", ErrReply, reply[4*i:4*i+4])
		}
		done[i] = core.Settled{Found: [...]core.Found{core.HoldUnknown, core.HoldLives, core.HoldEnded, core.HoldSettled}[found],
			Given: given, Taken: taken, Forgiven: forgiven}
	}
	return done, nil
}

// NewExtensions encodes a call of extend.lua. Its reply has a number for each, 1 if it lived.
func NewExtensions(prefix, now string, grace int, list []core.Extension) (script *Script, keys []string, args []any) {
	args = []any{now, grace, memoryMillis}
	for i := range list {
		hash, ends := HoldKeys(prefix, &list[i].Charge)
		keys = append(keys, hash, ends)
		args = append(args, hexOf(list[i].Hold), list[i].Life)
	}
	return wrap("extend.lua"), keys, args
}
