package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/histogram"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// A Run is what a number of callers measured. Each decides again as soon as it has
// decided.
type Run struct {
	Callers     int     `json:"callers"`
	Hot         bool    `json:"one_client,omitempty"` // all requests are of one client
	Decisions   int64   `json:"decisions"`
	PerSecond   float64 `json:"decisions_per_second"`
	Latency     Latency `json:"latency_us"`
	Refused     int64   `json:"refused"`
	Unanswered  int64   `json:"unanswered"`            // that Redis did not decide, which the other fields leave out
	ClientCores float64 `json:"client_cores"`          // that this process kept busy
	ServerBusy  float64 `json:"server_busy,omitempty"` // part of the time that the busiest server's thread was, 0 if it does not say
	PerCall     float64 `json:"decisions_per_call,omitempty"`
	Script      Micros  `json:"script_us,omitempty"` // time in Redis of each call
}

// Latency is of decisions.
type Latency struct {
	P50  Micros `json:"p50"`
	P90  Micros `json:"p90"`
	P99  Micros `json:"p99"`
	P999 Micros `json:"p99.9"`
	Max  Micros `json:"max"`
}

// Micros is a duration that JSON shows in microseconds.
type Micros time.Duration

// MarshalJSON implements [json.Marshaler].
func (m Micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.1f", float64(m)/1e3), nil
}

// A load is a program that decides.
type load struct {
	store    *redisstore.Store
	key      string // with the hash tag of the first policy
	policies []*limit.Policy
	requests [][]limit.Request // of each policy and client
}

// newLoad returns a program that has decided once, with the policies of o and a number of clients.
func newLoad(ctx context.Context, client redis.UniversalClient, prefix string, o *Options, clients int) (*load, error) {
	l := &load{
		store: redisstore.New(client, &redisstore.Options{Prefix: prefix, Timeout: o.Timeout, Spread: o.Spread}),
		key:   "{" + o.Policies[0].Name + "}",
	}
	rules := 0
	for _, p := range o.Policies {
		rules += len(p.rules)
	}
	limiter := limit.New(l.store, &limit.Options{
		MaxKeys: max(memstore.DefaultMaxKeys, clients*rules),
		Log:     slog.New(slog.DiscardHandler), // what fails is counted
	})
	for _, p := range o.Policies {
		policy, err := limiter.Policy(limit.Named(p.Name, p.admitting(clients, slices.Max(append(ladder, o.Callers...)))...))
		if err != nil {
			return nil, err
		}
		l.policies = append(l.policies, policy)
		requests := make([]limit.Request, clients)
		for client := range requests {
			requests[client] = p.request(client)
		}
		l.requests = append(l.requests, requests)
	}
	if err := l.try(ctx); err != nil {
		return nil, fmt.Errorf("no decision by Redis: %w", err)
	}
	return l, nil
}

// probe names the policy and the rule of a first decision.
const probe = "probe"

// try decides once, without the guard, to learn why Redis does not. Then it decides by each
// policy, since the first decision loads a script.
func (l *load) try(ctx context.Context) error {
	err := l.store.Take(ctx, []core.Ask{{Charges: []core.Charge{{Policy: probe, Rule: probe, Cost: 1, Quota: core.Quota{Limit: 1, Window: 1e6}}}}})
	for i := 0; i < len(l.policies) && err == nil; i++ {
		var d limit.Decision
		d, err = l.policies[i].Take(ctx, l.requests[i][0])
		d.Release()
	}
	return err
}

// Phases of a run.
const (
	warming int32 = iota
	measuring
	over
)

// A caller decides in a closed loop.
type caller struct {
	times               histogram.Histogram
	longest             time.Duration
	refused, unanswered int64
	err                 error
}

func (c *caller) run(ctx context.Context, l *load, phase *atomic.Int32) {
	for i := rand.IntN(len(l.policies)); ; i = (i + 1) % len(l.policies) {
		before := phase.Load()
		if before == over {
			return
		}
		request := l.requests[i][rand.IntN(len(l.requests[i]))]
		start := time.Now()
		d, err := l.policies[i].Take(ctx, request)
		took := time.Since(start)
		d.Release()
		if err != nil && !errors.Is(err, limit.ErrUndecided) {
			c.err = err
			return
		}
		if before != measuring || phase.Load() != measuring {
			continue
		}
		if err != nil || d.Mode > core.ModeRemembered {
			c.unanswered++
			continue
		}
		c.times.Add(int64(took), 1)
		c.longest = max(c.longest, took)
		if !d.Allowed {
			c.refused++
		}
	}
}

// run measures a number of callers for a time, a tenth of which warms up.
func (l *load) run(ctx context.Context, s *server, callers int, lasts time.Duration) (Run, error) {
	all := make([]caller, callers)
	var phase atomic.Int32
	var done sync.WaitGroup
	calls := context.WithoutCancel(ctx) // so that Redis runs no script after its keys are deleted
	for i := range all {
		done.Go(func() { all[i].run(calls, l, &phase) })
	}
	pause(ctx, lasts/10)
	before, cpu, start := s.usage(ctx), processorTime(), time.Now()
	phase.Store(measuring)
	pause(ctx, lasts-lasts/10)
	phase.Store(over)
	cpu, took, after := processorTime()-cpu, time.Since(start), s.usage(ctx)
	done.Wait()
	if err := ctx.Err(); err != nil {
		return Run{}, err
	}

	run := Run{Callers: callers, ClientCores: cpu.Seconds() / took.Seconds()}
	var times histogram.Histogram
	for i := range all {
		if err := all[i].err; err != nil {
			return Run{}, err
		}
		times.Merge(&all[i].times)
		run.Refused += all[i].refused
		run.Unanswered += all[i].unanswered
		run.Latency.Max = max(run.Latency.Max, Micros(all[i].longest))
	}
	run.Decisions = int64(times.Count())
	run.PerSecond = float64(run.Decisions) / took.Seconds()
	if run.Decisions == 0 {
		return run, fmt.Errorf("%d callers: Redis decided nothing within %v: write a longer --time, or the --timeout of your programs", callers, lasts)
	}
	for at, q := range map[*Micros]float64{&run.Latency.P50: 0.5, &run.Latency.P90: 0.9, &run.Latency.P99: 0.99, &run.Latency.P999: 0.999} {
		*at = Micros(times.Quantile(q))
	}
	run.server(before, after)
	return run, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// cores is how many cores this process may use.
func cores() int { return runtime.GOMAXPROCS(0) }
