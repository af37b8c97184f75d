package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// withoutLock reports whether the next decision on charges is a refusal that needs no
// lock.
func (s *Store) withoutLock(charges []core.Charge) bool {
	keys := make([]target, len(charges))
	for i := range charges {
		c := &charges[i]
		hash := s.hash(s.hashPolicy("policy"), c)
		keys[i] = target{hash: hash, shard: shardOf(hash, c.Key)}
		keys[i].entry = s.shards[keys[i].shard].keys.find(hash, "policy", c)
	}
	var d core.Decision
	return s.refuse(&d, s.now(), "policy", charges, keys)
}

// A refused is a schedule in which most decisions are refusals. Each is compared with
// the one that package core makes on states of its own.
type refused struct {
	t       *testing.T
	random  *rand.Rand
	s       *Store
	set     func(int64)
	now     int64
	charges []core.Charge
	states  []core.State
	last    core.Decision // an admission, and what it took
	took    []core.Charge
	quick   map[core.Algorithm]int // refusals without a lock
	lease   uint64
}

var refusedQuotas = append([]core.Quota{
	{Limit: 100, Window: 20 * sec},
	{Algorithm: core.FixedWindow, Limit: 2, Window: sec},
	{Algorithm: core.TokenBucket, Limit: 7, Window: 3 * sec, Burst: 3, Missing: 2},
	{Algorithm: core.LeakyBucket, Limit: 7, Window: 3 * sec, Burst: 1},
	{Algorithm: core.Queue, Limit: 7, Window: 3 * sec, Burst: 5, MaxWait: sec / 2},
	{Algorithm: core.SlidingCounter, Limit: 3, Window: 7_001},
	{Algorithm: core.Concurrency, Limit: 2, Window: sec},
}, floodQuotas...)

// TestRefusalsWithoutLock changes the keys of refusals in every way that there is,
// and lets time pass up to the edges of what was published.
func TestRefusalsWithoutLock(t *testing.T) {
	quick := make(map[core.Algorithm]int)
	for i := range 600 {
		random := rand.New(rand.NewPCG(71, uint64(i)))
		s, now := at(1_000 * sec)
		r := &refused{t: t, random: random, s: s, set: now.Store, now: 1_000 * sec, quick: quick}
		for j := range 1 + random.IntN(3) {
			q := refusedQuotas[random.IntN(len(refusedQuotas))]
			r.charges = append(r.charges, core.Charge{Rule: fmt.Sprint(j), Key: fmt.Sprint(random.IntN(2)), Quota: q, Cost: 1})
			r.states = append(r.states, core.NewState(q.Algorithm))
		}
		for range 80 {
			r.step()
		}
	}
	t.Logf("refusals without a lock: %v", quick)
	for _, a := range core.Algorithms() {
		assert.Greater(t, quick[a], 200, "%v", a)
	}
}

func (r *refused) step() {
	d := r.take(r.charges, r.states)
	o := d.Outcomes()[r.random.IntN(len(r.charges))]
	edge := o.RetryAfter + o.MoreAfter
	switch r.random.IntN(12) {
	case 0:
		r.now += max(0, edge-1)
	case 1:
		r.now += edge
	case 2:
		r.now += r.random.Int64N(edge + 1)
	case 3:
		r.now += r.random.Int64N(3 * sec)
	case 4:
		r.now -= r.random.Int64N(sec)
	case 5: // one of the rules alone
		i := r.random.IntN(len(r.charges))
		r.take(r.charges[i:i+1], r.states[i:i+1])
	case 6:
		r.change()
	case 7:
		r.reset()
	case 8:
		r.giveBack()
	}
	r.set(r.now)
}

// change takes with another quota or cost.
func (r *refused) change() {
	charges := slices.Clone(r.charges)
	c := &charges[r.random.IntN(len(charges))]
	switch r.random.IntN(4) {
	case 0:
		c.Quota.Limit++
	case 1:
		c.Quota.Window += sec
	default:
		c.Cost = r.random.Int64N(4)
	}
	r.take(charges, r.states)
}

func (r *refused) reset() {
	i := r.random.IntN(len(r.charges))
	require.NoError(r.t, r.s.Reset(context.Background(), "policy", r.charges[i].Rule, r.charges[i].Key))
	r.states[i] = core.NewState(r.charges[i].Quota.Algorithm)
}

// giveBack gives back, releases or renews what the last admission took.
func (r *refused) giveBack() {
	for i, c := range r.took {
		var state core.State
		for j := range r.charges {
			if r.charges[j].Rule == c.Rule {
				state = r.states[j]
			}
		}
		ctx := context.Background()
		switch one := []core.Charge{c}; {
		case c.Cost == 0:
		case c.Quota.Leases() && r.random.IntN(2) == 0:
			require.NoError(r.t, r.s.Release(ctx, "policy", one))
			state.Release(&c.Quota, r.now, c.Lease)
		case c.Quota.Leases():
			held, err := r.s.Renew(ctx, "policy", one)
			require.NoError(r.t, err)
			require.Equal(r.t, state.Renew(&c.Quota, r.now, c.Lease), held[0])
		default:
			back := r.last.Return(i, c)
			given, err := r.s.Return(ctx, "policy", []core.Return{back})
			require.NoError(r.t, err)
			require.Equal(r.t, state.Return(&back, r.now), given[0])
		}
	}
	r.took = nil
}

func (r *refused) take(charges []core.Charge, states []core.State) core.Decision {
	r.lease++
	for i := range charges {
		charges[i].Lease = r.lease
	}
	quick := r.s.withoutLock(charges)
	d := take(r.t, r.s, charges...)
	want := core.Decide(r.now, charges, states)
	if d.Allowed != want.Allowed || d.At != want.At || !slices.Equal(d.Outcomes(), want.Outcomes()) {
		r.t.Fatalf("at %d, without a lock %v: %+v\nis      %+v\nand not %+v", r.now, quick, charges, d, want)
	}
	if d.Allowed {
		r.last, r.took = d, slices.Clone(charges)
	}
	for i := range charges {
		if quick {
			r.quick[charges[i].Quota.Algorithm]++
		}
	}
	return d
}

// TestInvalidBesideRefusals checks that charges are validated that look like refused ones.
func TestInvalidBesideRefusals(t *testing.T) {
	s, _ := at(1_000 * sec)
	a := core.Charge{Rule: "a", Key: "k", Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}
	lease := core.Charge{Rule: "l", Key: "k", Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: sec}, Cost: 1, Lease: 1}
	for range 4 {
		take(t, s, a)
		take(t, s, lease)
	}
	require.True(t, s.withoutLock([]core.Charge{a}))
	require.True(t, s.withoutLock([]core.Charge{lease}))
	anonymous := lease
	anonymous.Lease = 0
	for _, charges := range [][]core.Charge{{a, a}, {anonymous}} {
		_, err := s.Take(context.Background(), "policy", charges)
		assert.ErrorIs(t, err, core.ErrCharges)
	}
}

// TestRefusalsBesideChanges refuses on many goroutines while one resets the key. After
// each reset, and before the next, exactly one unit is admitted.
func TestRefusalsBesideChanges(t *testing.T) {
	s := New(nil)
	charges := []core.Charge{
		{Rule: "ip", Key: "k", Quota: core.Quota{Limit: 1, Window: 3_600 * sec}, Cost: 1},
		{Rule: "global", Quota: core.Quota{Limit: 50_000, Window: 3_600 * sec}, Cost: 1},
	}
	for range 300 {
		require.NoError(t, s.Reset(context.Background(), "policy", "ip", "k"))
		var all sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		for range 4 {
			all.Go(func() {
				for range 50 {
					if take(t, s, charges...).Allowed {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, admitted)
		require.True(t, s.withoutLock(charges))
	}
}

// TestNewAgainBesideRefusals has a full bucket that is new again while another rule refuses.
func TestNewAgainBesideRefusals(t *testing.T) {
	s, now := at(1_000 * sec)
	charges := []core.Charge{
		{Rule: "bucket", Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: sec, Burst: 2, Missing: 1}, Cost: 1},
		{Rule: "log", Quota: core.Quota{Limit: 1, Window: 86_400 * sec}, Cost: 1},
	}
	require.True(t, take(t, s, charges...).Allowed)
	now.Add(10 * sec)
	for range 4 {
		d := take(t, s, charges...)
		require.EqualValues(t, 2, d.Outcomes()[0].Remaining)
	}
	now.Add(7_200 * sec)
	d := take(t, s, charges...)
	require.EqualValues(t, 1, d.Outcomes()[0].Remaining)
}

// TestDroppedIsWithdrawn checks an entry that a search has found just before it is
// dropped.
func TestDroppedIsWithdrawn(t *testing.T) {
	s, _ := at(1_000 * sec)
	c := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}
	for range 4 {
		take(t, s, c)
	}
	hash := s.hash(s.hashPolicy("policy"), &c)
	e := s.shards[shardOf(hash, c.Key)].keys.find(hash, "policy", &c)
	require.NotNil(t, e.published())
	require.NoError(t, s.Reset(context.Background(), "policy", c.Rule, c.Key))
	require.Nil(t, e.published())
}
