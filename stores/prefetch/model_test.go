package prefetch

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/storetest"
)

// The quotas that have permits. In each, limits and windows are such that requests
// are refused at times.
var quotas = []core.Quota{
	{Limit: 300, Window: 1_000_000},
	{Algorithm: core.FixedWindow, Limit: 300, Window: 500_000, Aligned: true},
	{Algorithm: core.FixedWindow, Limit: 300, Window: 500_000},
	{Algorithm: core.SlidingCells, Limit: 300, Window: 600_000, Cells: 6},
	{Algorithm: core.SlidingCounter, Limit: 300, Window: 500_000},
	{Algorithm: core.TokenBucket, Limit: 600, Window: 1_000_000, Burst: 200},
	{Algorithm: core.LeakyBucket, Limit: 600, Window: 1_000_000, Burst: 200},
}

const hold = 40 * time.Millisecond

type request struct{}

// A slow store takes time for the calls of chunks, and none for those of requests, so
// that a request is decided when it returns.
type slow struct {
	core.Store
	mu     sync.Mutex
	random *rand.Rand
	calls  int // for requests
	chunks int
	ends   []int64 // of windows, by the store
	fails  func() error
}

// note notes the windows of a fixed window.
func (s *slow) note(asks []core.Ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j := range asks {
		d := &asks[j].Decision
		for i, o := range d.Outcomes() {
			if end := d.At + o.ResetAfter; asks[j].Charges[i].Rule == "all" && d.Allowed && !slices.Contains(s.ends, end) {
				s.ends = append(s.ends, end)
			}
		}
	}
}

func (s *slow) sleep(ctx context.Context, chunk bool) {
	s.mu.Lock()
	d := time.Duration(s.random.Int64N(int64(hold / 8)))
	if s.random.IntN(20) == 0 {
		d *= 10 // beyond the time that permits last
	}
	if chunk {
		s.chunks++
	}
	s.mu.Unlock()
	if ctx.Value(request{}) == nil {
		time.Sleep(d)
	}
}

func (s *slow) Take(ctx context.Context, asks []core.Ask) error {
	if ctx.Value(request{}) != nil {
		s.mu.Lock()
		s.calls++
		s.mu.Unlock()
		err := s.Store.Take(ctx, asks)
		s.note(asks)
		return err
	}
	s.sleep(ctx, true)
	defer s.sleep(ctx, false)
	if s.fails != nil {
		if err := s.fails(); err != nil {
			return err
		}
	}
	err := s.Store.Take(ctx, asks)
	s.note(asks)
	return err
}

func (s *slow) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	s.sleep(ctx, false)
	return s.Store.Return(ctx, returns)
}

// A unit of a history: what was admitted, less what was returned.
type admitted struct {
	at, taken int64 // when it was handed out, and when the store took it
	cost      int64
}

// A fleet is several instances on one store, and what they have admitted.
type fleet struct {
	t         *testing.T
	own       *memstore.Store
	inner     *slow
	instances []*Store
	quota     core.Quota
	other     core.Quota

	mu      sync.Mutex
	history []*admitted
	local   atomic.Int64
}

func newFleet(t *testing.T, q core.Quota, seed uint64, instances int) *fleet {
	f := &fleet{t: t, own: memstore.New(nil), quota: q, other: core.Quota{Limit: 50, Window: 300_000}}
	f.inner = &slow{Store: f.own, random: rand.New(rand.NewPCG(seed, 1))}
	for range instances {
		f.instances = append(f.instances, New(f.inner, &Options{Rules: []Rule{{"p", "all"}}, Hold: hold, Chunk: 32}))
	}
	return f
}

func (f *fleet) charge(cost int64) core.Charge {
	return core.Charge{Rule: "all", Quota: f.quota, Cost: cost}
}

// client sends requests through an instance for a time.
func (f *fleet) client(store *Store, random *rand.Rand, lasts time.Duration) {
	ctx := context.WithValue(context.Background(), request{}, true)
	var mine []*admitted
	var returns []core.Return
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		pause := time.Duration(random.Int64N(int64(2 * time.Millisecond)))
		if random.IntN(300) == 0 {
			pause += time.Duration(random.Int64N(int64(4 * hold)))
		}
		time.Sleep(pause)
		charges := []core.Charge{f.charge(1)}
		if random.IntN(10) == 0 {
			charges[0].Cost = random.Int64N(12)
		}
		if random.IntN(2) == 0 {
			charges = append(charges, core.Charge{Rule: "key", Key: fmt.Sprint(random.IntN(3)), Quota: f.other, Cost: 1})
		}
		i := 0
		if len(charges) > 1 && random.IntN(2) == 0 {
			charges[0], charges[1], i = charges[1], charges[0], 1
		}
		calls := f.inner.count()
		d, err := storetest.Take(ctx, store, "p", charges)
		if err != nil {
			f.t.Error(err)
			return
		}
		if len(d.Outcomes()) != len(charges) || d.Allowed != (d.RetryAfter() == 0) {
			f.t.Errorf("%+v: %+v", charges, d)
		}
		if len(charges) == 1 && calls == f.inner.count() {
			f.local.Add(1)
		}
		cost := charges[i].Cost
		if !d.Allowed || cost == 0 {
			continue
		}
		a := &admitted{at: time.Now().UnixMicro(), taken: d.TimeOf(i), cost: cost}
		f.mu.Lock()
		f.history = append(f.history, a)
		f.mu.Unlock()
		if random.IntN(10) == 0 { // to be settled at some time
			mine, returns = append(mine, a), append(returns, d.Return(i, charges[i]))
		}
		if len(mine) > 0 && random.IntN(10) == 0 {
			j := random.IntN(len(mine))
			r := returns[j]
			r.Cost = 1 + random.Int64N(r.Cost)
			given, err := storetest.Return(ctx, store, "p", []core.Return{r})
			if err != nil {
				f.t.Error(err)
			}
			f.mu.Lock()
			mine[j].cost -= given[0]
			f.mu.Unlock()
			mine, returns = slices.Delete(mine, j, j+1), slices.Delete(returns, j, j+1)
		}
	}
}

func (s *slow) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// run has all clients send requests, and closes the instances.
func (f *fleet) run(seed uint64, lasts time.Duration) {
	var clients sync.WaitGroup
	for i, store := range f.instances {
		for j := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(10+10*i+j)))
			clients.Go(func() { f.client(store, random, lasts) })
		}
	}
	clients.Wait()
	for _, store := range f.instances {
		require.NoError(f.t, store.Close(f.t.Context()))
	}
}

// replay returns a state that has admitted the history, each unit at a time of it.
// It reports whether the quota had room for all.
func (f *fleet) replay(q core.Quota, at func(*admitted) int64) (core.State, bool) {
	slices.SortStableFunc(f.history, func(a, b *admitted) int { return cmp.Compare(at(a), at(b)) })
	state := core.NewState(q.Algorithm)
	for _, a := range f.history {
		if a.cost == 0 {
			continue
		}
		if room := state.Advance(&q, at(a)); room < a.cost {
			return state, false
		}
		state.Take(a.cost, 0)
	}
	return state, true
}

// within reports whether a quota had room for all that was handed out.
func (f *fleet) within(q core.Quota) bool {
	if q.Algorithm != core.FixedWindow || q.Aligned {
		_, ok := f.replay(q, func(a *admitted) int64 { return a.at })
		return ok
	}
	// The store says when windows begin: with the first unit that is taken.
	slices.Sort(f.inner.ends)
	used := make(map[int64]int64)
	for _, a := range f.history {
		i, exact := slices.BinarySearch(f.inner.ends, a.at)
		if exact {
			i++
		}
		if i == len(f.inner.ends) || a.at < f.inner.ends[i]-q.Window {
			return a.cost == 0
		}
		if used[f.inner.ends[i]] += a.cost; used[f.inner.ends[i]] > q.Limit {
			return false
		}
	}
	return true
}

// TestNeverAboveTheLimit has instances hand out permits, with calls that take time,
// costs, second rules that refuse, and units that are returned. What was admitted
// would have been admitted by one exact store at the times at which it was handed
// out. When all instances are closed, the store counts that and nothing else.
func TestNeverAboveTheLimit(t *testing.T) {
	seeds := uint64(9)
	if race.Enabled {
		seeds = 3
	}
	for _, q := range quotas {
		t.Run(q.Algorithm.String(), func(t *testing.T) {
			admissions, local, calls, chunks := 0, 0, 0, 0
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					q := q
					more := []int64{1, 4, 12}[seed/3%3] // from most requests refused to most admitted
					q.Limit, q.Burst = more*q.Limit, more*q.Burst
					f := newFleet(t, q, seed, 1+int(seed%3))
					f.run(seed, 3*time.Second)
					admissions, local = admissions+len(f.history), local+int(f.local.Load())
					calls, chunks = calls+f.inner.calls, chunks+f.inner.chunks
					require.True(t, f.within(q), "seed %d: above the limit", seed)
					if q.Algorithm == core.FixedWindow && !q.Aligned {
						return // a window may begin with a unit that is given back
					}
					charged := planOf(q, hold.Microseconds()).charged
					state, ok := f.replay(charged, func(a *admitted) int64 { return a.taken })
					require.True(t, ok, "seed %d", seed)
					c := f.charge(0)
					c.Quota = charged
					d := must.Get(storetest.Take(t.Context(), f.own, "p", []core.Charge{c}))(t)
					want := state.Advance(&charged, d.At)
					if q.Refills() {
						require.LessOrEqual(t, d.Outcomes()[0].Remaining, want, "seed %d", seed)
						return // a bucket may get back less than was taken
					}
					require.Equal(t, want, d.Outcomes()[0].Remaining, "seed %d: what is not handed out is handed back", seed)
				})
			}
			t.Logf("%d admissions, %d requests without a call, %d calls for requests, %d for chunks", admissions, local, calls, chunks)
			require.Greater(t, local, admissions/4)
		})
	}
}
