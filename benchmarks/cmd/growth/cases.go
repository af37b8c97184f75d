package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// A shape is what a decision is made of: rules. The first is by key and has
// the limit, and the others are shared by all keys.
type shape struct {
	rules       int
	limit, keys int64
}

// common is the shape in which one number grows.
var common = shape{rules: 2, limit: 100, keys: 1000}

// sharedLimit is the limit of the shared rules.
const sharedLimit = 100

func growths(onRedis *redisCases, lasts time.Duration) []growth {
	cases := func(grow func(*shape, int64)) []*measured {
		by := func(f func(context.Context, shape) (float64, error)) func(context.Context, int64) (float64, error) {
			return func(ctx context.Context, value int64) (float64, error) {
				s := common
				grow(&s, value)
				return f(ctx, s)
			}
		}
		inMemory := func(callers int) func(context.Context, shape) (float64, error) {
			return func(ctx context.Context, s shape) (float64, error) { return memoryTime(ctx, s, callers, lasts) }
		}
		return []*measured{
			{name: "in memory, 1 caller, GOMAXPROCS 1", unit: "ns per decision", run: by(inMemory(1))},
			{name: "in memory, 2 callers, GOMAXPROCS 2", unit: "ns per decision", run: by(inMemory(2))},
			{name: "the script on Redis", unit: "µs per decision", run: by(onRedis.time)},
			{name: "in memory", unit: "bytes of a key that is half full", run: by(memoryBytes)},
			{name: "on Redis", unit: "bytes of a key that is half full", run: by(onRedis.bytes)},
		}
	}
	rules := cases(func(s *shape, v int64) { s.rules = int(v) })
	keys := cases(func(s *shape, v int64) { s.keys = v })
	return []growth{
		{"Rules", "rules", []int64{1, 2, 4, 8, 16}, rules[:3]},
		{"Limit", "limit", []int64{5, 100, 1000, 10_000, 100_000}, cases(func(s *shape, v int64) { s.limit = v })},
		{"Keys", "keys", []int64{1, 1000, 100_000, 1_000_000, 10_000_000}, keys[:2]},
		{"Keys on Redis", "keys", []int64{100, 10_000, 1_000_000}, keys[2:3]},
		{"Processes on one Redis", "processes of 64 callers", []int64{1, 2, 4, 8}, []*measured{
			{name: "all processes together", unit: "decisions a second", run: onRedis.processes}}},
	}
}

// tick is the time between two decisions, in microseconds, by the clock of the cases in
// memory. It makes windows a whole number of ticks, in which each log is half full.
const tick = 100

// charges returns what a request takes. Its logs are half full when each decision takes
// a tick, and the keys take turns.
func (s shape) charges() []core.Charge {
	charges := make([]core.Charge, s.rules)
	for i := range charges {
		charges[i] = core.Charge{Policy: "growth", Rule: "rule-" + strconv.Itoa(i), Cost: 1, Quota: core.Quota{Limit: sharedLimit, Window: sharedLimit * tick / 2}}
	}
	charges[0].Quota = core.Quota{Limit: s.limit, Window: max(1, s.limit/2) * s.keys * tick}
	return charges
}

func (s shape) names() []string {
	names := make([]string, s.keys)
	for i := range names {
		names[i] = fmt.Sprintf("10.%d.%d.%d", i>>16&0xff, i>>8&0xff, i&0xff) + strconv.Itoa(i>>24)
	}
	return names
}

// A simulation is a memory store whose clock ticks with each decision.
type simulation struct {
	shape
	names []string
	store *memstore.Store
	ticks atomic.Int64
}

func newSimulation(ctx context.Context, s shape) (*simulation, error) {
	m := &simulation{shape: s, names: s.names()}
	m.store = memstore.New(&memstore.Options{MaxKeys: 2*int(s.keys) + memstore.DefaultMaxKeys, // no key overflows
		Now: func() int64 { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + m.ticks.Load()*tick }})
	// Half a window of traffic, with the units of a key at once.
	charge := s.charges()[:1]
	charge[0].Cost = max(1, s.limit/2)
	for _, name := range m.names {
		charge[0].Key = name
		if d, err := core.Take(ctx, m.store, charge); err != nil || !d.Allowed {
			return nil, fmt.Errorf("admitted %v: %w", d.Allowed, err)
		}
		m.ticks.Add(max(1, s.limit/2))
	}
	return m, nil
}

// decide decides for the keys in turn, as long as it is to go on, and returns how often.
func (m *simulation) decide(ctx context.Context, caller, callers int, goOn func(decided int) bool) (decided int, err error) {
	charges := m.charges()
	asks := []core.Ask{{Charges: charges}}
	next := len(m.names) / callers * caller
	for goOn(decided) {
		for range 256 {
			charges[0].Key = m.names[next]
			if next++; next == len(m.names) {
				next = 0
			}
			m.ticks.Add(1)
			if err := m.store.Take(ctx, asks); err != nil {
				return 0, err
			}
			decided++
		}
	}
	return decided, nil
}

// memoryTime returns the time of a decision in memory, in ns. Some decisions of several
// callers are refused, since their clock is not exactly regular.
func memoryTime(ctx context.Context, s shape, callers int, lasts time.Duration) (float64, error) {
	m, err := newSimulation(ctx, s)
	if err != nil {
		return 0, err
	}
	if s.keys <= 100_000 { // the first decision of a key may lay its log anew
		if _, err := m.decide(ctx, 0, 1, func(decided int) bool { return int64(decided) < s.keys }); err != nil {
			return 0, err
		}
	}
	runtime.GC() // of the simulation before
	before := runtime.GOMAXPROCS(callers)
	defer runtime.GOMAXPROCS(before)
	counts, errs := make([]int, callers), make([]error, callers)
	began := time.Now()
	var done sync.WaitGroup
	for c := range callers {
		done.Go(func() {
			counts[c], errs[c] = m.decide(ctx, c, callers, func(int) bool { return time.Since(began) < lasts })
		})
	}
	done.Wait()
	took := time.Since(began)
	total := 0
	for c := range callers {
		if errs[c] != nil {
			return 0, errs[c]
		}
		total += counts[c]
	}
	return float64(took.Nanoseconds()) / float64(total), nil
}

// memoryBytes returns what a key takes in memory.
func memoryBytes(ctx context.Context, s shape) (float64, error) {
	var before, after runtime.MemStats
	names := s.names()
	runtime.GC()
	runtime.ReadMemStats(&before)
	m, err := newSimulation(ctx, s)
	if err != nil {
		return 0, err
	}
	m.names = nil // as many strings as before
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(m)
	runtime.KeepAlive(names)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(s.keys), nil
}
