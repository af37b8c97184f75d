package lua

import (
	"fmt"

	"github.com/routelimit/limit/core"
)

// returnFiles are the files that giving back to an algorithm needs, beside
// those of every script.
var returnFiles = map[core.Algorithm][]string{
	core.SlidingLog:     {"slidinglog.lua", "return_log.lua"},
	core.FixedWindow:    {"small.lua", "fixedwindow.lua", "return_count.lua"},
	core.SlidingCells:   {"small.lua", "return_count.lua"},
	core.SlidingCounter: {"small.lua", "return_count.lua"},
	core.TokenBucket:    {"small.lua", "return_bucket.lua"},
	core.LeakyBucket:    {"small.lua", "return_bucket.lua"},
	core.Queue:          {"small.lua", "return_count.lua"},
}

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
	need := make(map[string]bool)
	l := &Returns{Args: []any{now, grace}}
	for i := range returns {
		r := &returns[i]
		for _, name := range returnFiles[r.Quota.Algorithm] {
			need[name] = true
		}
		l.first = append(l.first, len(l.Keys))
		l.Keys = append(l.Keys, Key(prefix, policy, r.Rule, r.Key))
		if a := r.Quota.Algorithm; a == core.TokenBucket || a == core.LeakyBucket {
			l.Keys = append(l.Keys, ReturnedKey(prefix, policy, r.Rule, r.Key))
		}
		l.Args = append(l.Args, int(r.Quota.Algorithm), r.Quota.Limit, r.Quota.Window, parameters(&r.Quota, now),
			r.Cost, r.At, r.Remaining, r.ResetAfter)
	}
	l.Script = join(need, "return.lua")
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
