// Package storetest is the suite that every [core.Store] must pass. It compares
// a store with the pure functions of package core: by written scripts, by random schedules
// and by many goroutines at once.
//
// The test of a store is its harness:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
//			store := mystore.New()
//			test(t, storetest.Harness{Store: store, SetTime: store.setTime})
//		})
//	}
//
// A store that wraps another one passes the same suite. Set Elapse in the harness
// too if keys can expire by another clock than that of SetTime.
//
// In the environment, LIMIT_SCHEDULES=n asks for n random schedules, LIMIT_SEED=s
// draws others, and LIMIT_ALGORITHM=word uses one algorithm for all rules, such as
// LIMIT_ALGORITHM=token-bucket.
package storetest

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
)

// A Harness is a store under test and the clock that it decides by.
type Harness struct {
	// Store is empty, and used by no other test.
	Store core.Store

	// SetTime fixes the time, in microseconds since the epoch, at which the
	// store decides until the next call. It may step back. Keys must not expire
	// by another clock, such as that of Redis, while the test runs.
	SetTime func(micros int64)

	// Elapse deletes the keys that the store would have let expire by now. Nothing else may
	// delete keys during a test. It is called after SetTime, with the microseconds by which the
	// clock has moved, or stepped back if they are negative. Nil means that no key expires in a
	// test.
	Elapse func(micros int64)

	// Spreads says that the store takes the charges of an ask in several
	// places, and gives units back if one of them refuses. It may then refuse a
	// request because of units that another request holds for a moment. The
	// random schedules of several rules leave out what giving back does not restore
	// exactly:
	//   - clocks that step back
	//   - queues
	//   - buckets with returns or changed quotas, or that begin with tokens missing
	//   - ids of leases that are taken twice
	//   - debts where quotas change
	//   - bans and distinct values
	// The rest must agree with package core to the unit and the microsecond.
	Spreads bool
}

// Run runs the suite. It calls with once for each subtest, and with must call
// test with a fresh harness, so that it can set up and tear down around it.
func Run(t *testing.T, with func(t *testing.T, test func(t *testing.T, h Harness))) {
	groups := []struct {
		name  string
		tests []namedTest
	}{
		{"Window", scripts(windows())},
		{"Clock", scripts(clocks())},
		{"Rules", scripts(stacks())},
		{"Asks", []namedTest{{"with reserves of their own", reservesOfAsks}, {"many rules", manyAsks}}},
		{"Debts", []namedTest{{"above the limit", debtsAbove}}},
		{"Algorithms", algorithms()},
		{"Edges", edges()},
		{"Leases", leases()},
		{"Expiry", expiry()},
		{"Returns", returns()},
		{"Grids", grids()},
		{"Told", told()},
		{"Beside", beside()},
		{"Returning", returning()},
		{"Names", names()},
		{"Calls", calls()},
		{"Concurrent", concurrent()},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { with(t, test.run) })
			}
		})
	}
	for _, random := range []struct {
		name    string
		n, few  int // schedules, and in a short test
		holders bool
		run     func(t *testing.T, h Harness, seed uint64, n int)
	}{
		{"Schedules", 1_000, 100, false, Schedules},
		{"Holds", 300, 50, true, Holds},
		{"Versions", 200, 20, false, func(t *testing.T, h Harness, seed uint64, n int) { Versions(t, h, false, seed, n) }},
		{"VersionsOfAlgorithms", 200, 20, false, func(t *testing.T, h Harness, seed uint64, n int) { Versions(t, h, true, seed, n) }},
	} {
		t.Run(random.name, func(t *testing.T) {
			with(t, func(t *testing.T, h Harness) {
				n := random.n
				if testing.Short() || race.Enabled {
					n = random.few
				}
				if h.Spreads {
					n /= 4 // a decision is several calls
				}
				if random.holders && core.HolderOf(h.Store) == nil {
					t.Skip("the store holds nothing")
				}
				random.run(t, h, uint64(environment(t, "LIMIT_SEED", 1)), environment(t, "LIMIT_SCHEDULES", n))
			})
		})
	}
}

type namedTest struct {
	name string
	run  func(*testing.T, Harness)
}

// environment returns the number in an environment variable.
func environment(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.True(t, err == nil && n >= 0, "%s=%q: write a number", name, text)
	return n
}

// take takes charges, which must be decided.
func take(t *testing.T, h Harness, policy string, charges ...core.Charge) core.Decision {
	t.Helper()
	d, err := Take(t.Context(), h.Store, policy, charges)
	require.NoError(t, err, "policy %q, charges %+v", policy, charges)
	require.Len(t, d.Outcomes(), len(charges))
	return d
}

func first(d core.Decision) core.Outcome { return d.Outcomes()[0] }

// remaining returns what remains of the quota of a charge.
func remaining(t *testing.T, h Harness, c core.Charge) int64 {
	t.Helper()
	c.Cost, c.ID = 0, 0
	return first(take(t, h, "policy", c)).Remaining
}

// The functions below are for tests whose charges are of one policy.

// Of returns the charges as those of a policy.
func Of(policy string, charges ...core.Charge) []core.Charge {
	list := slices.Clone(charges)
	for i := range list {
		list[i].Policy = policy
	}
	return list
}

// Take makes one decision on charges of a policy.
func Take(ctx context.Context, store core.Store, policy string, charges []core.Charge) (core.Decision, error) {
	return core.Take(ctx, store, Of(policy, charges...))
}

// MustTake is Take of policy "p", or of the policies that the charges name, by a store
// that does not fail.
func MustTake(t testing.TB, store core.Store, charges ...core.Charge) core.Decision {
	t.Helper()
	list := slices.Clone(charges)
	for i := range list {
		list[i].Policy = cmp.Or(list[i].Policy, "p")
	}
	d, err := core.Take(t.Context(), store, list)
	require.NoError(t, err)
	return d
}

// Renew renews leases of a policy.
func Renew(ctx context.Context, store core.Store, policy string, charges []core.Charge) ([]bool, error) {
	return store.Renew(ctx, Of(policy, charges...))
}

// Release releases leases of a policy.
func Release(ctx context.Context, store core.Store, policy string, charges []core.Charge) error {
	return store.Release(ctx, Of(policy, charges...))
}

// Return gives units of a policy back, and returns how many of each return.
func Return(ctx context.Context, store core.Store, policy string, returns []core.Return) ([]int64, error) {
	list := slices.Clone(returns)
	for i := range list {
		list[i].Policy = policy
	}
	results, err := store.Return(ctx, list)
	if err != nil {
		return nil, err
	}
	units := make([]int64, len(results))
	for i := range results {
		units[i] = results[i].Units
	}
	return units, nil
}

// Reset resets a key of a rule of a policy.
func Reset(ctx context.Context, store core.Store, policy, rule, key string) error {
	return store.Reset(ctx, []core.Charge{{Policy: policy, Rule: rule, Key: key}})
}
