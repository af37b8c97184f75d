package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// expiry tests that no key expires while what it counts matters.
func expiry() []namedTest {
	return []namedTest{{"of leases that are renewed", renewedKeys}, {"of a long window after a short one", shortenedKeys}}
}

// renewedKeys renews a lease while nothing else asks for its key.
func renewedKeys(t *testing.T, h Harness) {
	m := newMirror(t, h, "renewed", 1, 1)
	m.expires = h.Elapse != nil
	m.begin()
	c := lease(core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: sec}, 1, 7)
	c.Policy = m.policy
	m.take(c)
	for range 5 {
		m.pass(900 * ms)
		m.renew(c)
	}
	m.pass(900 * ms)
	c.ID = 8
	require.False(t, m.take(c).Allowed)
}

// shortenedKeys has a version with a short window be the last to charge, or to look at, what
// one with a long window has taken.
func shortenedKeys(t *testing.T, h Harness) {
	for i, a := range core.Algorithms() {
		for _, cost := range []int64{0, 1} {
			m := newMirror(t, h, fmt.Sprint(a, " after ", cost), 1, i)
			m.expires = h.Elapse != nil
			m.begin()
			long := core.Charge{Policy: m.policy, Rule: "r", Key: "k", Quota: plainQuota(a, 10, hour), Cost: 9, ID: 1}
			short := long
			short.Quota.Window, short.Cost, short.ID = sec, cost, 2
			m.take(long)
			m.take(short)
			m.pass(10 * sec)
			long.Cost, long.ID = 5, 3
			m.take(long)
		}
	}
}
