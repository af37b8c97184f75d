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

	first []int // of the keys of each return
}

// NewReturns encodes a call of return.lua for one policy. Prefix, now and grace
// are as for [NewRules] and [Rules.Encode].
func NewReturns(prefix, policy, now string, grace int, returns []core.Return) *Returns {
	files := newSelection(returning)
	l := &Returns{Args: []any{now, grace}}
	for i := range returns {
		r := &returns[i]
		l.first = append(l.first, len(l.Keys))
		l.Keys = append(l.Keys, Key(prefix, policy, r.Rule, r.Key))
		if remembersReturns(r.Quota.Algorithm) {
			l.Keys = append(l.Keys, ReturnedKey(prefix, policy, r.Rule, r.Key))
		}
		params := parameters(&r.Quota, now)
		if r.Quota.Identified() {
			params = string(appendID(nil, r.ID))
		}
		l.Args = append(l.Args, int(r.Quota.Algorithm), r.Quota.Limit, r.Quota.Window, params,
			r.Cost, r.At, r.Remaining, r.ResetAfter)
	}
	files.addAlgorithms(len(returns), func(i int) *core.Quota { return &returns[i].Quota })
	l.Script = files.join("return.lua")
	return l
}

// Decode returns how many units each return gave back, from the reply of the
// call. With an error none gave any.
func (l *Returns) Decode(reply []int64) ([]int64, error) {
	if len(reply) != len(l.first) {
		return nil, fmt.Errorf("%w: %d numbers for %d returns", ErrReply, len(reply), len(l.first))
	}
	for i, given := range reply {
		if given < 0 {
			return nil, wrong(-given, l.Keys[l.first[i]])
		}
	}
	return reply, nil
}
