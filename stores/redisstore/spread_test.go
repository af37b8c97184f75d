package redisstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// apart gives each rule a key of its own, so that stacked rules are in different
// parts.
type apart struct{ *Store }

func (s apart) name(c core.Charge) core.Charge {
	c.Key = c.Rule + "\x00" + c.Key
	return c
}

func (s apart) names(charges []core.Charge) []core.Charge {
	if charges == nil {
		return nil
	}
	named := make([]core.Charge, len(charges))
	for i, c := range charges {
		named[i] = s.name(c)
	}
	return named
}

func (s apart) Take(ctx context.Context, asks []core.Ask) error {
	named := slices.Clone(asks)
	for i := range named {
		named[i].Charges = s.names(asks[i].Charges)
	}
	err := s.Store.Take(ctx, named)
	for i := range asks {
		asks[i].Decision = named[i].Decision
	}
	return err
}

func (s apart) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	return s.Store.Renew(ctx, s.names(charges))
}

func (s apart) Release(ctx context.Context, charges []core.Charge) error {
	return s.Store.Release(ctx, s.names(charges))
}

func (s apart) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	named := slices.Clone(returns)
	for i := range named {
		named[i].Charge = s.name(named[i].Charge)
	}
	return s.Store.Return(ctx, named)
}

func (s apart) Reset(ctx context.Context, charges []core.Charge) error {
	return s.Store.Reset(ctx, s.names(charges))
}

// TestSpread runs the suite on a Cluster over a store that spreads, with every rule of a
// decision in a part of its own.
func TestSpread(t *testing.T) {
	client, tests := redistest.Cluster(t), 0
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		now := start
		tests++ // each with a prefix of its own, since to empty a Cluster takes longer
		store := at(client, &now)
		store.prefix = fmt.Sprint("test", tests)
		store.spread(16)
		test(t, storetest.Harness{Store: apart{store}, SetTime: func(micros int64) { now = micros }, Spreads: true})
		require.Zero(t, store.Unreturned())
	})
}

// TestSpreadStrikes counts refusals of another part as strikes, unless a ban refuses.
func TestSpreadStrikes(t *testing.T) {
	store := spreading(redistest.Client(t))
	ban := core.Charge{Rule: "ban", Key: "a", Quota: core.Quota{Algorithm: core.Ban, Limit: 3, Window: 3600_000_000, Bar: 3600_000_000}}
	charges := []core.Charge{ban, charge("narrow", "b", 1, time.Hour)}
	for i, left := range []int64{3, 2, 1, 0, 0} {
		d := storetest.MustTake(t, store, charges...)
		require.Equal(t, i == 0, d.Allowed)
		o := d.Outcomes()[0]
		require.Equal(t, left, o.Remaining, i)
		require.Equal(t, left == 0, o.RetryAfter > 0, "%+v", o)
	}
	d := storetest.MustTake(t, store, ban)
	require.False(t, d.Allowed)

	other := ban // which the barred key does not strike
	other.Rule, other.Key = "other", "b"
	for range 5 {
		d := storetest.MustTake(t, store, ban, other)
		require.EqualValues(t, 3, d.Outcomes()[1].Remaining)
	}
}
