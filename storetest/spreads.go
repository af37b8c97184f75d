package storetest

import (
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
)

// spread leaves out of a schedule what a store that takes and gives back does not
// hold: see [Harness].Spreads. Of everything else a refusal leaves no trace, and
// every outcome is that of package core.
func (s *schedule) spread() {
	s.stepsBack = false // to take forgets what has left the window
	for i := range s.rules {
		q := &s.rules[i].Quota
		for q.Algorithm == core.Queue || (s.returns || s.changes) && (q.Algorithm == core.TokenBucket || q.Algorithm == core.LeakyBucket) {
			*q = someQuota(s.t, s.random)
		}
	}
}

// noneLost tells that what was refused at once with others has been given back to
// every rule.
func noneLost(t *testing.T, h Harness, rules int, quota core.Quota, admitted int64) {
	t.Helper()
	if admitted == 0 || admitted > quota.Limit {
		t.Errorf("%d admitted of %d", admitted, quota.Limit)
	}
	for i := range rules {
		d := take(t, h, "policy", core.Charge{Rule: fmt.Sprint(i), Quota: quota})
		if spent := quota.Limit - d.Outcomes()[0].Remaining; spent != admitted {
			t.Errorf("%d admitted, but %d spent of rule %d", admitted, spent, i)
		}
	}
}
