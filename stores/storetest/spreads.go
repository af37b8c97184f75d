package storetest

import (
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
)

// spread leaves out of a schedule what giving back does not restore exactly: see
// [Harness].Spreads.
func (s *schedule) spread() {
	s.stepsBack = false // taking removes what has left the window
	for i := range s.rules {
		q := &s.rules[i].Quota
		for q.Queues() || q.Bars() || q.Algorithm == core.Distinct || (s.returns || s.changes) && q.Refills() {
			*q = someQuota(s.t, s.random)
		}
		q.Missing = 0 // taking and giving back changes when the bucket is new again
	}
}

// noneLost tests that every rule has got back the units of refused requests.
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
