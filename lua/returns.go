package lua

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

// Returns is a call that gives units back.
type Returns struct {
	Script *Script
	Keys   []string
	Args   []any

	returns []core.Return
	first   []int // of the keys of each
}

// NewReturns encodes a call of return.lua. Prefix, now and grace are as for [NewRules]
// and [Rules.Encode].
func NewReturns(prefix, now string, grace int, returns []core.Return) *Returns {
	files := newSelection(returning)
	l := &Returns{Args: []any{now, grace}, returns: returns}
	for i := range returns {
		r := &returns[i]
		l.first = append(l.first, len(l.Keys))
		l.Keys = append(l.Keys, Key(prefix, &r.Charge))
		if remembersReturns(r.Quota.Algorithm) {
			l.Keys = append(l.Keys, ReturnedKey(prefix, &r.Charge))
		}
		params := parameters(&r.Quota, now)
		if r.Quota.Identified() {
			params += string(appendID(nil, r.ID))
		}
		l.Args = append(l.Args, int(r.Quota.Algorithm), r.Quota.Limit, r.Quota.Window, params,
			r.Cost, r.At, r.Remaining, r.ResetAfter)
	}
	files.addAlgorithms(len(returns), func(i int) *core.Quota { return &returns[i].Quota })
	l.Script = files.join("return.lua")
	return l
}

// WeightOfReturn estimates for how many µs a return makes a call longer at worst.
func WeightOfReturn(q *core.Quota) int64 { return 4*weightOfCharge + q.Cells + weightOfSize(q) }

// Decode returns what came of each return, from the reply to the call. With an error
// none gave any units.
func (l *Returns) Decode(reply []int64) ([]core.Returned, error) {
	n := len(l.returns)
	if len(reply) != n && len(reply) != 4*n {
		return nil, fmt.Errorf("%w: %d numbers for %d returns", ErrReply, len(reply), n)
	}
	for i, given := range reply[:n] {
		if given < 0 {
			return nil, wrong(-given, l.Keys[l.first[i]])
		}
	}
	if len(reply) == n {
		return nil, fmt.Errorf("%w: no outcomes of %d returns", ErrReply, n)
	}
	results := make([]core.Returned, n)
	for i := range results {
		c, o := &l.returns[i].Charge, &results[i].Outcome
		results[i].Units = reply[i]
		left, more, reset := reply[n+3*i], reply[n+3*i+1], reply[n+3*i+2]
		if more < 0 || !plausible(c, left, more, reset) {
			return nil, fmt.Errorf("%w: %s makes no sense: %d", ErrValue, l.Keys[l.first[i]], reply[n+3*i:n+3*i+3])
		}
		*o = core.Outcome{Remaining: left, MoreAfter: more, ResetAfter: reset}
		if c.Quota.Bars() {
			o.Need(1)
		}
	}
	return results, nil
}
