package memstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
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

// TestForgottenHolds settles long holds that nobody repeats, beside one that lives.
func TestForgottenHolds(t *testing.T) {
	s := New(nil)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}
	for i := range 1_000 {
		h := core.Hold{ID: core.HoldIDOf(fmt.Sprint(i)), Life: core.MaxHold}
		require.NoError(t, s.Hold(t.Context(), &core.Ask{Charges: []core.Charge{c}}, &h))
		if i == 0 {
			continue
		}
		done := must.Get(s.Settle(t.Context(), []core.Settlement{{Return: core.Return{Charge: c}, Hold: h.ID, Used: int64(min(1, 80/(i+1))), Forget: true}}))(t)
		require.Equal(t, core.HoldLives, done[0].Found)
	}
	for i := range s.shards {
		for _, h := range s.shards[i].held.keys {
			require.Len(t, h.byID, 1)
			require.LessOrEqual(t, len(h.ends), 18)
			require.Equal(t, core.HoldIDOf("0"), h.ends[0].id)
		}
	}
}
