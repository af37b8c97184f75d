package prefetch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/refusals"
	"github.com/routelimit/limit/stores/storetest"
)

// A simulation is a fleet of instances with one hot rule, in time that passes as fast
// as the machine can. Redis is a memory store whose calls take a round trip.
type simulation struct {
	instances int
	demand    float64 // requests a second, of all instances; the n-th of them gets a share of 1/n
	limit     float64 // units a second
	hold      time.Duration
	chunk     int64
	seconds   int // measured, after a time that is not
}

// A simulated is what came of a simulation, a second.
type simulated struct {
	offered, admitted float64
	calls             float64 // of Redis
	taken, returned   float64 // units
}

// early is the part of the requests that an exact store would admit and that were refused.
func (r simulated) early(s simulation) float64 {
	return max(0, 1-r.admitted/min(r.offered, s.limit))
}

// unused is the part of the units taken that was given back.
func (r simulated) unused() float64 { return r.returned / max(1, r.taken) }

// A remote store takes a round trip, and counts.
type remote struct {
	core.Store
	on                     *atomic.Bool
	calls, taken, returned *atomic.Int64
}

const (
	roundTrip = 500 * time.Microsecond
	warm      = 500 * time.Millisecond
)

func (r remote) Take(ctx context.Context, asks []core.Ask) error {
	cost := asks[0].Charges[0].Cost
	time.Sleep(roundTrip / 2)
	err := r.Store.Take(ctx, asks)
	time.Sleep(roundTrip / 2)
	if r.on.Load() {
		r.calls.Add(1)
		if asks[0].Decision.Allowed {
			r.taken.Add(cost)
		}
	}
	return err
}

func (r remote) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	time.Sleep(roundTrip)
	given, err := r.Store.Return(ctx, returns)
	if err == nil && r.on.Load() {
		r.calls.Add(1)
		for i := range given {
			r.returned.Add(given[i].Units)
		}
	}
	return given, err
}

func (s simulation) run(t *testing.T) (result simulated) {
	synctest.Test(t, func(t *testing.T) {
		var on, over atomic.Bool
		var calls, taken, returned, offered, admitted atomic.Int64
		shared := remote{memstore.New(nil), &on, &calls, &taken, &returned}
		quota := core.Quota{Algorithm: core.TokenBucket, Limit: int64(s.limit), Window: 1_000_000, Burst: int64(s.limit / 4)}
		_, err := storetest.Take(t.Context(), shared, "p", []core.Charge{{Rule: "all", Quota: quota, Cost: quota.Burst}})
		require.NoError(t, err) // the bucket begins empty, as it is under lasting load
		var sum float64
		for n := range s.instances {
			sum += 1 / float64(n+1)
		}
		var instances []*Store
		var wait sync.WaitGroup
		for n := range s.instances {
			store := New(refusals.New(shared), &Options{Rules: []Rule{{"p", "all"}}, Hold: s.hold, Chunk: s.chunk})
			instances = append(instances, store)
			rate := s.demand / sum / float64(n+1)
			random := rand.New(rand.NewPCG(uint64(n), 1))
			wait.Go(func() { // requests come every ms, one after the other
				charges := []core.Charge{{Rule: "all", Quota: quota, Cost: 1}}
				time.Sleep(time.Duration(random.Int64N(int64(time.Millisecond))))
				for due, next := 0.0, time.Now(); !over.Load(); {
					next = next.Add(time.Millisecond)
					time.Sleep(time.Until(next))
					due += rate / 1000 * random.ExpFloat64()
					var sent, ok int64
					for ; due >= 1; due-- {
						d, err := storetest.Take(t.Context(), store, "p", charges)
						if err != nil {
							t.Error(err)
						}
						if sent++; d.Allowed {
							ok++
						}
					}
					if on.Load() {
						offered.Add(sent)
						admitted.Add(ok)
					}
				}
			})
		}
		time.Sleep(warm)
		on.Store(true)
		time.Sleep(time.Duration(s.seconds) * time.Second)
		on.Store(false)
		over.Store(true)
		wait.Wait()
		for _, store := range instances {
			require.NoError(t, store.Close(t.Context()))
		}
		each := func(n *atomic.Int64) float64 { return float64(n.Load()) / float64(s.seconds) }
		result = simulated{each(&offered), each(&admitted), each(&calls), each(&taken), each(&returned)}
	})
	return result
}

// TestSimulationSmall holds what the simulation of a large fleet shows for a small one.
func TestSimulationSmall(t *testing.T) {
	s := simulation{instances: 8, demand: 100_000, hold: 20 * time.Millisecond, seconds: 1}
	for _, limit := range []float64{150_000, 50_000} {
		s.limit = limit
		r := s.run(t)
		t.Logf("%+v: early %.4f, unused %.4f", r, r.early(s), r.unused())
		require.LessOrEqual(t, r.admitted, 1.01*limit)
		require.Less(t, r.early(s), 0.02)
		require.Less(t, r.unused(), 0.3)
		require.Less(t, r.calls, r.offered/20)
	}
}

// TestSimulation has 1,000 instances and 10 million requests a second, and appends the
// results to a file:
//
//	LIMIT_SIMULATION=testdata/simulation.csv go test -timeout 1h -v -run 'TestSimulation$' ./stores/prefetch
//
// One of its limits takes two minutes: -run 'TestSimulation$/1.2'.
func TestSimulation(t *testing.T) {
	name := os.Getenv("LIMIT_SIMULATION")
	if name == "" {
		t.Skip("LIMIT_SIMULATION names no file")
	}
	file := must.Get(os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))(t)
	defer file.Close()
	run := func(t *testing.T, s simulation) {
		r := s.run(t)
		row := fmt.Sprintf("%d,%.0f,%.2f,%g,%d,%.0f,%.5f,%.4f", s.instances, s.demand, s.limit/s.demand, s.hold.Seconds()*1000, s.chunk,
			r.calls, r.early(s), r.unused())
		t.Log(row)
		must.Get(fmt.Fprintln(file, row))(t)
	}
	const ms = time.Millisecond
	for _, limit := range []float64{1.2, 1.02, 0.7} { // of the demand
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			for _, hold := range []time.Duration{5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms} {
				run(t, simulation{instances: 1000, demand: 10e6, limit: limit * 10e6, hold: hold, chunk: defaultChunk, seconds: 1})
			}
		})
	}
	t.Run("chunks", func(t *testing.T) {
		for _, chunk := range []int64{10, 100, 10_000} {
			run(t, simulation{instances: 1000, demand: 10e6, limit: 12e6, hold: 20 * ms, chunk: chunk, seconds: 1})
		}
	})
}
