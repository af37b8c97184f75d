package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/storetest"
)

// binding is a Store that binds the charges of each ask, where it can.
type binding struct{ *Store }

func (s binding) Take(ctx context.Context, asks []core.Ask) error {
	if len(asks) == 1 {
		if b := s.Bind(asks[0].Charges); b != nil {
			return b(ctx, &asks[0])
		}
	}
	return s.Store.Take(ctx, asks)
}

func TestBoundIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		s, now := at(0)
		test(t, storetest.Harness{Store: binding{s}, SetTime: now.Store, Elapse: s.elapse})
	})
}

// A schedule is random asks on two stores that must decide alike.
type schedule struct {
	*rand.Rand
	general, fast *Store
	rules         []core.Charge
	bound         []func(context.Context, *core.Ask) error // by some of the rules
	of            [][]core.Charge
	now           int64
}

func newSchedule(seed uint64) *schedule {
	s := &schedule{Rand: rand.New(rand.NewPCG(seed, 1)), now: 1_700_000_000_000_000}
	o := &Options{MaxKeys: keyShards * (1 + int(seed%3)), Now: func() int64 { return s.now }}
	s.general, s.fast = New(o), New(o)
	s.fast.seed = s.general.seed // so that their shards are full at once
	for i := range 7 {
		s.rules = append(s.rules, core.Charge{Policy: "p", Rule: fmt.Sprint("rule ", i)})
	}
	s.rules[4].Policy = "another"
	s.change(seed)
	return s
}

// change gives the rules other quotas, and binds them again. Of some seeds, all are logs.
func (s *schedule) change(seed uint64) {
	s.bound, s.of = nil, nil
	for i := range s.rules {
		q := core.Quota{Limit: 1 + s.Int64N(20), Window: 1_000 + s.Int64N(20_000)}
		if seed%2 == 1 && s.IntN(3) == 0 {
			q.Algorithm = []core.Algorithm{core.FixedWindow, core.SlidingCounter, core.TokenBucket, core.Ban}[s.IntN(4)]
			if q.Algorithm == core.TokenBucket {
				q.Burst = q.Limit
			}
			if q.Algorithm == core.Ban {
				q.Bar = q.Window
			}
		}
		s.rules[i].Quota, s.rules[i].Reserve = q, 0
		if s.IntN(10) == 0 && q.Algorithm != core.Ban {
			s.rules[i].Reserve = 1
		}
	}
	for range 4 {
		var some []core.Charge
		for _, i := range s.Perm(len(s.rules))[:1+s.IntN(few+2)] {
			some = append(some, s.rules[i])
		}
		s.of, s.bound = append(s.of, some), append(s.bound, s.fast.Bind(some))
	}
}

func (s *schedule) step(t *testing.T, keys int) (fast bool) {
	ctx := context.Background()
	s.now += s.Int64N(400)
	switch s.IntN(400) {
	case 0:
		s.now += 50_000
	case 1:
		s.now -= 700
	case 2:
		s.change(s.Uint64())
	}
	i := s.IntN(len(s.of))
	charges := append([]core.Charge(nil), s.of[i]...)
	key, cost := fmt.Sprint(s.IntN(keys)), s.Int64N(4)
	for j := range charges {
		if charges[j].Cost = cost; j > 0 && s.IntN(8) == 0 {
			charges[j].Cost = s.Int64N(30)
		}
		if charges[j].Rule != "rule 1" {
			charges[j].Key = key
		}
	}
	if s.IntN(50) == 0 {
		require.NoError(t, s.general.Reset(ctx, charges))
		require.NoError(t, s.fast.Reset(ctx, charges))
	}
	want, got := []core.Ask{{Charges: charges}}, core.Ask{Charges: charges}
	require.NoError(t, s.general.Take(ctx, want))
	if b := s.bound[i]; b == nil || s.IntN(20) == 0 { // both ways on one store
		asks := []core.Ask{got}
		require.NoError(t, s.fast.Take(ctx, asks))
		got = asks[0]
	} else {
		require.NoError(t, b(ctx, &got))
		fast = true
	}
	require.Equal(t, want[0].Decision, got.Decision)
	if want[0].Decision.Allowed && s.IntN(10) == 0 { // as an outer layer does
		var returns []core.Return
		for j := range charges {
			returns = append(returns, want[0].Decision.Return(j, charges[j]))
		}
		a := must.Get(s.general.Return(ctx, returns))(t)
		b := must.Get(s.fast.Return(ctx, returns))(t)
		require.Equal(t, a, b)
	}
	return fast
}

// TestBoundDecidesAlike compares the decisions by rules that are bound with those of Take:
// with floods, resets, clocks that step, returns, and versions of rules.
func TestBoundDecidesAlike(t *testing.T) {
	seeds, steps, fast := 20, 20_000, 0
	if testing.Short() || race.Enabled {
		steps = 2_000
	}
	if n, err := strconv.Atoi(os.Getenv("LIMIT_SCHEDULES")); err == nil {
		seeds = max(seeds, n/100)
	}
	for seed := range uint64(seeds) {
		s := newSchedule(seed)
		keys := []int{1, 10, 1_000, 10_000}[s.IntN(4)]
		for range steps {
			if s.step(t, keys) {
				fast++
			}
		}
		require.Equal(t, s.general.entries(), s.fast.entries())
	}
	require.Greater(t, fast, seeds*steps/2)
}

// TestBind checks which charges are not bound, and that a request of an invalid cost is an
// error that takes nothing.
func TestBind(t *testing.T) {
	s, ctx := New(nil), context.Background()
	log := core.Charge{Policy: "p", Rule: "r", Quota: core.Quota{Limit: 5, Window: 1_000_000}}
	lease, invalid, debt := log, log, log
	lease.Quota.Algorithm, invalid.Quota.Limit, debt.Debt = core.Concurrency, 0, true
	for _, charges := range [][]core.Charge{nil, {lease}, {invalid}, {debt}, {log, log}} {
		require.Nil(t, s.Bind(charges), charges)
	}
	b := s.Bind([]core.Charge{log})
	for _, cost := range []int64{-1, core.MaxCost + 1} {
		log.Cost = cost
		require.ErrorIs(t, b(ctx, &core.Ask{Charges: []core.Charge{log}}), core.ErrCharges)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	log.Cost = 1
	require.ErrorIs(t, b(canceled, &core.Ask{Charges: []core.Charge{log}}), context.Canceled)
	require.Zero(t, s.entries())
	ask := core.Ask{Charges: []core.Charge{log}}
	require.NoError(t, b(ctx, &ask))
	if race.Enabled {
		return
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = b(ctx, &ask) }))
}
