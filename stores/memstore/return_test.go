package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

func giveBack(t *testing.T, s *Store, r core.Return) int64 {
	t.Helper()
	given, err := storetest.Return(context.Background(), s, "policy", []core.Return{r})
	if err != nil {
		t.Fatal(err)
	}
	return given[0]
}

// TestRemembersReturns checks that a bucket that is full again is kept as long as the units
// that were returned to it matter.
func TestRemembersReturns(t *testing.T) {
	for _, a := range []core.Algorithm{core.TokenBucket, core.LeakyBucket} {
		s, now := at(1_000_000)
		c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Algorithm: a, Limit: 1, Window: 5_000, Burst: 10}, Cost: 5}
		admit := func() core.Return {
			d := take(t, s, c)
			return core.Return{Charge: c, At: d.At, Remaining: d.Outcomes()[0].Remaining}
		}
		first, second := admit(), admit()
		if given := giveBack(t, s, first); given != 5 {
			t.Fatalf("%d given back", given)
		}
		now.Add(30_000) // full after 25 ms
		for i := range 10_000 {
			take(t, s, core.Charge{Rule: "other", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 1, Window: 1_000}, Cost: 1})
		}
		admit()
		if given := giveBack(t, s, second); given != 0 {
			t.Errorf("%v: %d given back of what has come back by itself", a, given)
		}
		now.Add(1_000_000)
		for i := range 10_000 {
			take(t, s, core.Charge{Rule: "yet another", Key: fmt.Sprint(i), Quota: core.Quota{Limit: 1, Window: 1_000}, Cost: 1})
		}
		if s.entryOf("policy", c) != nil {
			t.Errorf("%v: remembered forever", a)
		}
	}
}

func TestReturnWithDoneContext(t *testing.T) {
	s, _ := at(1_000_000)
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: 1_000}, Cost: 3}
	take(t, s, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := storetest.Return(ctx, s, "policy", []core.Return{{Charge: c, At: 1_000_000}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := storetest.Reset(ctx, s, "policy", "r", "k"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if take(t, s, c).Allowed {
		t.Error("a call with a context that was done has given something back")
	}
}
