package lua

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

// Debts is a call that takes charges that are debts.
type Debts struct {
	Script *Script
	Keys   []string
	Args   []any
}

// NewDebts encodes a call of debts.lua. Prefix, now and grace are as for [NewRules] and
// [Rules.Encode], and so are Args[1] and the end of Args, which are the caller's.
func NewDebts(prefix, now string, grace int, charges []core.Charge) *Debts {
	files := newSelection(owing)
	l := &Debts{Args: []any{now, 0, grace}}
	for i := range charges {
		c := &charges[i]
		params := parameters(&c.Quota, now)
		l.Keys = append(l.Keys, Key(prefix, c))
		l.Args = append(l.Args, int(c.Quota.Algorithm), c.Quota.Limit, c.Quota.Window, params, c.Cost, c.Age, string(appendID(nil, c.ID)), c.Since, c.MaxDebt)
	}
	for i := range charges {
		l.Keys = append(l.Keys, MarkKey(prefix, &charges[i]))
	}
	files.addAlgorithms(len(charges), func(i int) *core.Quota { return &charges[i].Quota })
	l.Script = files.join("debts.lua")
	return l
}

// Decode returns the decision on charges, and how much of each was forgiven, from the reply
// of the call without the number at its end. With an error none was taken.
func (l *Debts) Decode(reply []int64, charges []core.Charge) (d core.Decision, forgiven []int64, err error) {
	if len(reply) != 1+4*len(charges) || reply[0] < 0 || reply[0] > core.MaxTime {
		return d, nil, fmt.Errorf("%w: %d numbers for %d debts", ErrReply, len(reply), len(charges))
	}
	d = core.NewDecision(reply[0], len(charges))
	d.Allowed = true
	forgiven = make([]int64, len(charges))
	for i := range charges {
		left, more, reset := reply[4*i+1], reply[4*i+2], reply[4*i+3]
		forgiven[i] = reply[4*i+4]
		switch {
		case left < 0:
			return core.Decision{}, nil, wrong(-left, l.Keys[i])
		case left > charges[i].Quota.Capacity() || more < 0 || more > maxSpan || reset < 0 || reset > maxSpan ||
			forgiven[i] < 0 || forgiven[i] > charges[i].Cost:
			return core.Decision{}, nil, fmt.Errorf("%w: %s makes no sense: %d", ErrValue, l.Keys[i], reply[4*i+1:4*i+5])
		}
		d.Outcomes()[i] = core.Outcome{Remaining: left, MoreAfter: more, ResetAfter: reset}
	}
	return d, forgiven, nil
}
