package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// leftOf returns what remains of each rule of a policy for a user.
func leftOf(t *testing.T, policy *Policy, user string) (left []int64) {
	t.Helper()
	d := must.Get(policy.Peek(t.Context(), Request{Keys: map[string]string{"user": user}}))(t)
	for r := range d.Rules() {
		left = append(left, r.Remaining)
	}
	return left
}

func userRule(name string, a rules.Algorithm) Rule {
	return Rule{Name: name, Key: ByUser, Limit: 1_000, Window: 8_000 * time.Hour, Algorithm: a} // for which no unit comes back
}

// TestUse follows one request from its reservation to its settlement, and how often it asks the
// store.
func TestUse(t *testing.T) {
	for name, store := range map[string]core.Store{
		"memory": memstore.New(nil),
		"Redis":  redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute}),
		"spread": redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute, Spread: 3}),
	} {
		t.Run(name, func(t *testing.T) {
			calls := &counting{Store: store}
			policy := mustPolicy(New(calls, nil), Named("model", userRule("requests", nil),
				userRule("input", TokenBucket{Burst: 1_000}), userRule("output", SlidingCells{})))
			d := must.Get(policy.Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Settle: true,
				Costs: map[string]int64{"input": 100, "output": 200}}))(t)
			require.True(t, d.Allowed)
			for i, step := range []struct {
				input, output int64
				asks          int
				left          []int64
			}{
				{input: 100, left: []int64{999, 900, 800}},
				{output: 200, left: []int64{999, 900, 800}},
				{101, 200, 1, []int64{999, 850, 800}}, // half as much again
				{150, 150, 0, []int64{999, 850, 800}},
				{120, 0, 0, []int64{999, 850, 800}}, // less than before
				{400, 201, 1, []int64{999, 600, 700}},
				{401, 700, 1, []int64{999, 400, 300}},
				{600, 701, 2, []int64{999, 400, 150}}, // half as much again is more than there is: half of that
				{900, 0, 1, []int64{999, 100, 150}},
				{900, 1_000, 2, []int64{999, 100, 0}},
			} {
				calls.takes = 0
				require.NoError(t, d.Use(t.Context(), map[string]int64{"input": step.input, "output": step.output}), i)
				assert.Equal(t, step.asks, calls.takes, i)
				assert.Equal(t, step.left, leftOf(t, policy, "a"), i)
			}
			assert.Zero(t, calls.returns)
			copied := d
			require.NoError(t, copied.SettleCosts(t.Context(), map[string]int64{"input": 130, "output": 20}))
			assert.Equal(t, []int64{999, 870, 980}, leftOf(t, policy, "a"))
			assert.Equal(t, 1, calls.returns)
			assert.ErrorIs(t, d.Use(t.Context(), map[string]int64{"input": 1}), ErrSettled)
		})
	}
}

// TestUseWithoutRoom ends a request that uses more than its rules have, and tells when they
// have it. What it has used stays taken; what is above the debts is forgiven once.
func TestUseWithoutRoom(t *testing.T) {
	for name, row := range map[string]struct {
		debt, used, left int64
		others           int64 // what they have taken
		retry            time.Duration
		forgiven         int64
	}{
		"room":               {used: 1_000},
		"one too many":       {used: 1_001, retry: time.Second},
		"others":             {others: 500, used: 600, retry: 100 * time.Second},
		"more than a burst":  {used: 2_500, retry: Never},
		"debt":               {debt: 200, used: 1_200},
		"debt, one too many": {debt: 200, used: 1_201, retry: 201 * time.Second, forgiven: 1},
		"debt and others":    {debt: 200, others: 900, used: 400, retry: 300 * time.Second, forgiven: 100},
		"far above the debt": {debt: 200, used: 1 << 62, retry: Never, forgiven: core.MaxCost - 1_200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := New(nil, nil)
				policy := mustPolicy(limiter, Named("model", Rule{Name: "tokens", Key: ByUser, Limit: 1_000, Window: 1_000 * time.Second,
					Algorithm: TokenBucket{Burst: 1_000}, Debt: row.debt}))
				request := Request{Keys: map[string]string{"user": "a"}, Cost: 100, Settle: true}
				d, err := policy.Take(t.Context(), request)
				require.NoError(t, err)
				if row.others > 0 {
					other := must.Get(policy.Take(t.Context(), Request{Keys: request.Keys, Cost: row.others}))(t)
					require.True(t, other.Allowed)
				}
				for range 2 { // it may ask again
					err = d.Use(t.Context(), map[string]int64{"tokens": row.used})
					if row.retry == 0 {
						require.NoError(t, err)
						continue
					}
					var refused *RefusedError
					require.ErrorAs(t, err, &refused)
					assert.False(t, refused.Decision.Allowed)
					assert.Equal(t, row.retry, refused.Decision.RetryAfter)
					assert.Equal(t, []string{"tokens"}, refused.Decision.refusing())
				}
				assert.True(t, d.Allowed, "the request was admitted")
				assert.Zero(t, limiter.engine.Forgiven.Load(), "until it is settled")
				require.NoError(t, d.Settle(t.Context(), row.used))
				assert.Equal(t, []int64{0}, leftOf(t, policy, "a"))
				assert.Equal(t, row.forgiven, limiter.engine.Forgiven.Load())
			})
		})
	}
}

// TestUseBalances has random requests use more and more of one key. No rule ever has less than
// they took or more than its limit and debt, and what is charged in the end is what they used.
func TestUseBalances(t *testing.T) {
	for name, algorithm := range map[string]rules.Algorithm{
		"log": nil, "cells": SlidingCells{}, "counter": SlidingCounter{}, "window": FixedWindow{},
		"bucket": TokenBucket{Burst: 1_000}, "leaky bucket": LeakyBucket{Burst: 1_000},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				synctest.Test(t, func(t *testing.T) { useAtRandom(t, algorithm, rand.New(rand.NewPCG(seed, 5))) })
			}
		})
	}
}

func useAtRandom(t *testing.T, algorithm rules.Algorithm, random *rand.Rand) {
	rule := userRule("units", algorithm)
	if q := rule.Quota(); q.Algorithm.Owes() {
		rule.Debt = random.Int64N(300)
	}
	policy := mustPolicy(New(nil, nil), Named("p", rule))
	type work struct {
		Decision
		used int64
	}
	var running []work
	charged, refused := int64(0), false // of those that were settled; whether a rule had too little
	settle := func(i int) {
		w := running[i]
		n := w.used
		if random.IntN(2) == 0 && rule.Debt == 0 { // debts are not given back
			n = random.Int64N(w.used + 1) // less than it said
		}
		require.NoError(t, w.Settle(t.Context(), n))
		charged += n
		running = append(running[:i], running[i+1:]...)
	}
	for range 100 {
		switch {
		case len(running) == 0 || random.IntN(4) == 0 && !refused:
			d := must.Get(policy.Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 1 + random.Int64N(60), Settle: true}))(t)
			if d.Allowed {
				running = append(running, work{d, 0})
			}
		case random.IntN(8) == 0:
			settle(random.IntN(len(running)))
		default:
			w := &running[random.IntN(len(running))]
			used := w.used + random.Int64N(40)
			if err := w.Use(t.Context(), map[string]int64{"units": used}); err != nil {
				require.ErrorAs(t, err, new(*RefusedError))
				refused = true // it has taken what there was
				continue
			}
			w.used = used
		}
		used := charged
		for _, w := range running {
			used += w.used
		}
		require.LessOrEqual(t, used, 1_000+rule.Debt)
		require.LessOrEqual(t, leftOf(t, policy, "a")[0], max(0, 1_000-used))
	}
	for len(running) > 0 {
		settle(0)
	}
	left := leftOf(t, policy, "a")[0]
	if used := max(0, 1_000-charged); refused {
		require.LessOrEqual(t, left, used)
	} else {
		require.Equal(t, used, left)
	}
}

// TestUseAtOnce says from many goroutines what a request uses, while another one settles it.
func TestUseAtOnce(t *testing.T) {
	policy := mustPolicy(New(nil, nil), Named("p", userRule("units", nil)))
	d := must.Get(policy.Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 10, Settle: true}))(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range int64(40) {
				if err := d.Use(t.Context(), map[string]int64{"units": n * int64(i)}); err != nil {
					assert.ErrorIs(t, err, ErrSettled)
				}
			}
			if i == 7 {
				assert.NoError(t, d.Settle(t.Context(), 300))
			}
		})
	}
	all.Wait()
	assert.Equal(t, []int64{700}, leftOf(t, policy, "a"))
}

// TestUseOverHTTP checks what is charged to a request whose handler says what it used, and does
// not settle.
func TestUseOverHTTP(t *testing.T) {
	use := func(n int64) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, DecisionFrom(r.Context()).Use(r.Context(), map[string]int64{"units": n}))
		}
	}
	for name, row := range map[string]struct {
		settle  rules.Settlement
		handler func(http.ResponseWriter, *http.Request)
		left    int64
	}{
		"less":         {rules.AsUsed, use(3), 997},
		"more":         {rules.AsUsed, use(30), 970},
		"nothing said": {rules.AsUsed, func(http.ResponseWriter, *http.Request) {}, 990},
		"used nothing": {rules.AsUsed, use(0), 1_000},
		"a panic":      {rules.AsUsed, func(w http.ResponseWriter, r *http.Request) { use(3)(w, r); panic(http.ErrAbortHandler) }, 997},
		"a panic afterward": {rules.AsUsed, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			use(30)(w, r)
			panic(http.ErrAbortHandler)
		}, 970},
		"a status": {rules.OnStatus(401), use(3), 997},
		"settled": {rules.AsUsed, func(w http.ResponseWriter, r *http.Request) {
			use(30)(w, r)
			assert.NoError(t, DecisionFrom(r.Context()).Settle(r.Context(), 7))
		}, 993},
	} {
		rule := userRule("units", nil)
		rule.Cost, rule.Settle = rules.CostBy("ten", func(*http.Request) int64 { return 10 }), row.settle
		given := userRule("units", nil)
		for kind, set := range map[string]RuleSet{"middleware": Named("p", rule), "Serve": Named("p", given)} {
			t.Run(name+", "+kind, func(t *testing.T) {
				limiter := New(nil, &Options{Caller: Caller[*http.Request]{User: func(*http.Request) string { return "a" }}})
				policy := mustPolicy(limiter, set)
				served := func() {
					defer func() { recover() }()
					w, r, h := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), http.HandlerFunc(row.handler)
					if kind == "Serve" {
						assert.NoError(t, policy.Serve(w, r, Request{Cost: 10, Settle: true}, h))
					} else {
						policy.Handler(h).ServeHTTP(w, r)
					}
				}
				served()
				assert.Equal(t, []int64{row.left}, leftOf(t, policy, "a"))
			})
		}
	}
}

// TestUseOfGivenBack has an inner set refuse a request after the handler around it has said what
// it uses: everything comes back, also what was taken later, and is taken again if another set
// serves the request.
func TestUseOfGivenBack(t *testing.T) {
	limiter := New(nil, &Options{Caller: Caller[*http.Request]{User: func(*http.Request) string { return "a" }}})
	outer := mustPolicy(limiter, Named("outer", userRule("units", nil), userRule("others", SlidingCells{})))
	none := mustPolicy(limiter, Named("none", Rule{Key: Everyone, Limit: 1, Window: time.Hour}))
	some := mustPolicy(limiter, Named("some", Rule{Key: Everyone, Limit: 100, Window: time.Hour}))
	must.Get(none.Take(t.Context(), Request{}))(t)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, again := range []bool{false, true} {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, DecisionFrom(r.Context()).Use(r.Context(), map[string]int64{"units": 25}))
			assert.Equal(t, []int64{975, 990}, leftOf(t, outer, "a"))
			none.Handler(ok).ServeHTTP(w, r)
			assert.Equal(t, []int64{1_000, 1_000}, leftOf(t, outer, "a"))
			if again {
				some.Handler(ok).ServeHTTP(w, r)
			}
		})
		require.NoError(t, outer.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), Request{Cost: 10, Settle: true}, handler))
	}
	assert.Equal(t, []int64{975, 990}, leftOf(t, outer, "a"))
}

// TestUseIsWrong says what is wrong with what a request is said to use.
func TestUseIsWrong(t *testing.T) {
	store := &failing{Store: memstore.New(nil)}
	policy := mustPolicy(New(store, nil), Named("p", userRule("units", nil), Rule{Name: "streams", Key: ByUser, Limit: 5, Algorithm: Concurrency{}},
		Rule{Name: "ban", Key: ByUser, Limit: 5, Window: time.Hour, Algorithm: Ban{Bar: time.Hour}}))
	request := Request{Keys: map[string]string{"user": "a"}, Cost: 10, Costs: map[string]int64{"ban": 0, "streams": 1}, Settle: true}
	d := must.Get(policy.Take(t.Context(), request))(t)
	defer d.Release()
	for problem, soFar := range map[string]map[string]int64{
		`Costs["tokens"]: no rule has that name: write one of units, streams, ban`: {"tokens": 1},
		`Costs["units"]: cost -1: write 0 or more`:                                 {"units": -1},
		"leases are released, not settled":                                         {"streams": 1},
	} {
		err := d.Use(t.Context(), soFar)
		assert.ErrorContains(t, err, problem)
		assert.ErrorAs(t, err, new(*rules.Error))
	}
	require.NoError(t, d.Use(t.Context(), nil))
	require.NoError(t, d.Use(t.Context(), map[string]int64{"ban": 100}), "a strike is not used")
	store.err = errors.New("down")
	assert.ErrorIs(t, d.Use(t.Context(), map[string]int64{"units": 11}), ErrUndecided)
	store.err = nil
	assert.NoError(t, d.Use(t.Context(), map[string]int64{"units": 11}))
	assert.NoError(t, d.Settle(t.Context(), 11))
	assert.EqualValues(t, 989, leftOf(t, policy, "a")[0])
	request.Settle = false
	d = must.Get(policy.Take(t.Context(), request))(t)
	defer d.Release()
	for name, d := range map[string]Decision{"not to be settled": d, "none": {}} {
		assert.ErrorIs(t, d.Use(t.Context(), nil), ErrSettled, name)
	}
}

// failing is a store that can be made to fail.
type failing struct {
	core.Store
	err error
}

func (s *failing) Take(ctx context.Context, asks []core.Ask) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Take(ctx, asks)
}
