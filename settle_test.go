package limit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
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

// tokens counts those of a language model: a bucket, an exact window and a
// calendar, all of 100.
var tokens = Named("tokens",
	Rule{Key: ByUser, Limit: 100, Window: time.Minute, Algorithm: TokenBucket{Burst: 100}},
	PerUser(time.Hour, 100),
	Rule{Key: Everyone, Limit: 100, Window: 24 * time.Hour, Algorithm: FixedWindow{Aligned: true}})

func remaining(t *testing.T, l *Limiter) (list [3]int64) {
	t.Helper()
	d := look(t, l, tokens, map[string]string{"user": "a"})
	for i, r := range slices.Collect(d.Rules()) {
		list[i] = r.Remaining
	}
	return list
}

func TestSettle(t *testing.T) {
	for name, row := range map[string]struct {
		reserved, cost, left int64
	}{
		"less":               {40, 10, 90},
		"all of it":          {40, 40, 60},
		"nothing":            {40, 0, 100},
		"more":               {40, 70, 30},
		"more than there is": {40, 170, 0},
		"of one":             {1, 10, 90},
		"the most":           {100, 1<<63 - 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := New(nil, nil)
				d := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: row.reserved, Settle: true}))(t)
				require.True(t, d.Allowed)
				assert.Equal(t, [3]int64{100 - row.reserved, 100 - row.reserved, 100 - row.reserved}, remaining(t, limiter))
				again := d // a copy
				require.NoError(t, d.Settle(t.Context(), row.cost))
				assert.Equal(t, [3]int64{row.left, row.left, row.left}, remaining(t, limiter))
				for _, d := range []Decision{d, again} {
					assert.ErrorIs(t, d.Settle(t.Context(), 0), ErrSettled)
				}
				d.Release() // does nothing
				assert.Equal(t, [3]int64{row.left, row.left, row.left}, remaining(t, limiter))
			})
		})
	}
}

// TestSettleNothing holds that only what was reserved can be settled.
func TestSettleNothing(t *testing.T) {
	limiter := New(nil, nil)
	assert.ErrorIs(t, Decision{}.Settle(t.Context(), 0), ErrSettled)
	taken := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 60}))(t)
	assert.ErrorIs(t, taken.Settle(t.Context(), 0), ErrSettled)
	waited := must.Get(mustPolicy(limiter, tokens).Wait(t.Context(), Request{Keys: map[string]string{"user": "b"}, Cost: 1}))(t)
	assert.ErrorIs(t, waited.Settle(t.Context(), 0), ErrSettled)
	refused := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 60, Settle: true}))(t)
	assert.False(t, refused.Allowed)
	assert.ErrorIs(t, refused.Settle(t.Context(), 0), ErrSettled)
	assert.ErrorContains(t, refused.Settle(t.Context(), 0), "refused, or says neither Settle nor Hold")
	_, err := mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: -1, Settle: true})
	assert.Error(t, err)
	d := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 30, Settle: true}))(t)
	assert.ErrorAs(t, d.Settle(t.Context(), -1), new(*rules.Error))
	assert.InDelta(t, 10, remaining(t, limiter)[0], 1)
	assert.NoError(t, d.Settle(t.Context(), 0), "the mistake has settled nothing")
	assert.EqualValues(t, 40, remaining(t, limiter)[1])
	assert.ErrorContains(t, d.Settle(t.Context(), 0), "has been settled")
}

// TestSettleOnce settles from many goroutines. One of them does.
func TestSettleOnce(t *testing.T) {
	limiter := New(nil, nil)
	d := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 60, Settle: true}))(t)
	var settled atomic.Int32
	var done sync.WaitGroup
	for range 16 {
		done.Go(func() {
			if d.Settle(t.Context(), 50) == nil {
				settled.Add(1)
			}
		})
	}
	done.Wait()
	assert.EqualValues(t, 1, settled.Load())
	assert.EqualValues(t, 50, remaining(t, limiter)[1])
}

// TestSettleLate holds that what has passed does not come back.
func TestSettleLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := New(nil, nil)
		d := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 60, Settle: true}))(t)
		time.Sleep(25 * time.Hour)
		other := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 100}))(t)
		require.True(t, other.Allowed)
		require.NoError(t, d.Settle(t.Context(), 0))
		assert.Equal(t, [3]int64{}, remaining(t, limiter))
	})
}

// TestSettleLeases holds that leases are not settled, and need a Release.
func TestSettleLeases(t *testing.T) {
	limiter, rules := New(nil, nil), Named("p", Rule{Key: Everyone, Limit: 1, Algorithm: Concurrency{}}, Global(time.Hour, 10))
	d := must.Get(mustPolicy(limiter, rules).Take(t.Context(), Request{Cost: 1, Settle: true}))(t)
	require.NoError(t, d.Settle(t.Context(), 0))
	left := func() []RuleDecision {
		looked := look(t, limiter, rules, nil)
		return slices.Collect(looked.Rules())
	}
	assert.EqualValues(t, 0, left()[0].Remaining)
	assert.EqualValues(t, 10, left()[1].Remaining)
	d.Release()
	assert.EqualValues(t, 1, left()[0].Remaining)
}

// unreturning is a store that can be made to give nothing back.
type unreturning struct {
	core.Store
	err error
}

func (s *unreturning) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.Return(ctx, returns)
}

// TestSettleFails holds that what cannot be settled stays taken, and that
// somebody hears of it.
func TestSettleFails(t *testing.T) {
	store := &unreturning{Store: memstore.New(nil)}
	limiter := New(store, nil)
	d := must.Get(mustPolicy(limiter, tokens).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 60, Settle: true}))(t)
	store.err = errors.New("down")
	assert.ErrorIs(t, d.Settle(t.Context(), 0), ErrUndecided)
	assert.ErrorIs(t, d.Settle(t.Context(), 0), ErrSettled)
	store.err = nil
	assert.EqualValues(t, 40, remaining(t, limiter)[1])
}

func TestSettleIsDeclared(t *testing.T) {
	limiter := New(nil, nil)
	for _, statuses := range [][]int{nil, {41}, {401, 1000}, {100}} {
		assert.Panics(t, func() { rules.OnStatus(statuses...) }, statuses)
	}
	settle := rules.OnStatus(http.StatusUnauthorized)
	rule := Rule{Name: "login", Key: ByIP, Limit: 5, Window: time.Minute, Settle: settle}
	_, err := mustPolicy(limiter, Named("login", rule)).Take(t.Context(), Request{Keys: map[string]string{"ip": "192.0.2.1"}})
	assert.ErrorContains(t, err, "limit.Request.Settle")
	text, err := Rules(rule).MarshalText()
	assert.NoError(t, err)
	assert.Equal(t, "login: 5/1m per ip settle 401", string(text))
	again, err := Parse(string(text))
	assert.NoError(t, err)
	assert.Equal(t, settle, again.Declared()[0].Settle)
	rule.Algorithm = Concurrency{}
	_, err = limiter.Policy(Rules(rule))
	assert.ErrorContains(t, err, "released")
}

// TestOnStatusKeepsTheCost checks that a request that counts keeps all its units, and
// that one that does not count gets all of them back.
func TestOnStatusKeepsTheCost(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("login", Rule{Key: Everyone, Limit: 20, Window: time.Hour,
		Cost: rules.CostBy("units", func(*http.Request) int64 { return 7 }), Settle: rules.OnStatus(http.StatusUnauthorized)})
	answer := http.StatusUnauthorized
	h := mustPolicy(limiter, rules).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	for _, step := range []struct {
		answer int
		left   int64
	}{{http.StatusUnauthorized, 13}, {http.StatusOK, 13}, {http.StatusUnauthorized, 6}} {
		answer = step.answer
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
		looked := look(t, limiter, rules, nil)
		assert.Equal(t, step.left, slices.Collect(looked.Rules())[0].Remaining)
	}
}

// TestSettleByRule settles rules that count different things: each up or down, by name.
func TestSettleByRule(t *testing.T) {
	set := Named("model",
		Rule{Name: "requests", Key: ByUser, Limit: 100, Window: time.Hour},
		Rule{Name: "input", Key: ByUser, Limit: 1_000, Window: time.Hour, Algorithm: TokenBucket{Burst: 1_000}},
		Rule{Name: "output", Key: ByUser, Limit: 1_000, Window: time.Hour, Algorithm: SlidingCells{}},
		Rule{Name: "streams", Key: ByUser, Limit: 5, Algorithm: Concurrency{}})
	for name, row := range map[string]struct {
		costs map[string]int64
		left  [3]int64
	}{
		"nothing named":           {nil, [3]int64{99, 900, 500}},
		"up and down":             {map[string]int64{"input": 130, "output": 20}, [3]int64{99, 870, 980}},
		"up":                      {map[string]int64{"requests": 2, "input": 130, "output": 520}, [3]int64{98, 870, 480}},
		"more than there is":      {map[string]int64{"input": 1_200, "output": 3_000, "requests": 0}, [3]int64{100, 0, 0}},
		"what a rule cannot hold": {map[string]int64{"input": 1<<63 - 1}, [3]int64{99, 0, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := &counting{Store: memstore.New(nil)}
				limiter := New(calls, nil)
				d := must.Get(mustPolicy(limiter, set).Take(t.Context(), Request{Keys: map[string]string{"user": "a"},
					Costs: map[string]int64{"input": 100, "output": 500}, Settle: true}))(t)
				require.True(t, d.Allowed)
				defer d.Release()
				calls.takes = 0
				require.NoError(t, d.SettleCosts(t.Context(), row.costs))
				assert.LessOrEqual(t, calls.takes, 2, "all rules in one call, and once more for what there was no room for")
				assert.LessOrEqual(t, calls.returns, 1)
				var left [3]int64
				looked := look(t, limiter, set, map[string]string{"user": "a"})
				for i, r := range slices.Collect(looked.Rules())[:3] {
					left[i] = r.Remaining
				}
				assert.Equal(t, row.left, left)
				assert.ErrorIs(t, d.SettleCosts(t.Context(), row.costs), ErrSettled)
				assert.ErrorIs(t, d.Settle(t.Context(), 5), ErrSettled)
			})
		})
	}
	limiter := New(nil, nil)
	request := Request{Keys: map[string]string{"user": "a"}, Costs: map[string]int64{"input": 100, "output": 500}, Settle: true}
	d := must.Get(mustPolicy(limiter, set).Take(t.Context(), request))(t)
	defer d.Release()
	for problem, costs := range map[string]map[string]int64{
		`Costs["tokens"]: no rule has that name: write one of requests, input, output, streams`: {"tokens": 1},
		`Costs["input"]: cost -1: write 0 or more`:                                              {"input": -1, "output": 5},
		"leases are released, not settled":                                                      {"streams": 0},
	} {
		err := d.SettleCosts(t.Context(), costs)
		assert.ErrorContains(t, err, problem)
		assert.ErrorAs(t, err, new(*rules.Error))
	}
	err := d.Settle(t.Context(), 500)
	assert.ErrorContains(t, err, "write SettleCosts")
	assert.ErrorAs(t, err, new(*rules.Error))
	assert.NoError(t, d.Settle(t.Context(), 0), "the mistakes have settled nothing, and nothing of each rule is as clear")
	assert.ErrorIs(t, Decision{}.SettleCosts(t.Context(), nil), ErrSettled)
	request.Costs = map[string]int64{"requests": 7, "input": 7, "output": 7, "streams": 1}
	d = must.Get(mustPolicy(limiter, set).Take(t.Context(), request))(t)
	defer d.Release()
	assert.NoError(t, d.Settle(t.Context(), 5), "units that are alike, given by rule")
}

// TestSettleByRuleOnRedis settles up and down beside each other on Redis, also where each
// rule is decided apart.
func TestSettleByRuleOnRedis(t *testing.T) {
	long := 8_000 * time.Hour // for which no unit comes back
	set := Named("model",
		Rule{Name: "log", Key: ByUser, Limit: 1_000, Window: long},
		Rule{Name: "bucket", Key: ByUser, Limit: 1_000, Window: long, Algorithm: TokenBucket{Burst: 1_000}},
		Rule{Name: "cells", Key: Everyone, Limit: 1_000, Window: long, Algorithm: SlidingCells{}},
		Rule{Name: "counter", Key: Everyone, Limit: 1_000, Window: long, Algorithm: SlidingCounter{}})
	for name, store := range map[string]core.Store{
		"alone":  redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute}),
		"spread": redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute, Spread: 3}),
	} {
		t.Run(name, func(t *testing.T) {
			limiter := New(store, nil)
			d := must.Get(mustPolicy(limiter, set).Take(t.Context(), Request{Keys: map[string]string{"user": "a"}, Cost: 100, Settle: true}))(t)
			require.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"log": 130, "bucket": 20, "cells": 5_000}))
			var left []int64
			looked := look(t, limiter, set, map[string]string{"user": "a"})
			for r := range looked.Rules() {
				left = append(left, r.Remaining)
			}
			assert.Equal(t, []int64{870, 980, 0, 900}, left)
		})
	}
}

// counting counts the calls of a store.
type counting struct {
	core.Store
	takes, returns int
}

func (s *counting) Take(ctx context.Context, asks []core.Ask) error {
	s.takes++
	return s.Store.Take(ctx, asks)
}

func (s *counting) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	s.returns++
	return s.Store.Return(ctx, returns)
}

// TestSettleAfterHangUp has clients hang up before their handlers settle more than was reserved,
// with the context of the request: they are charged all the same.
func TestSettleAfterHangUp(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Minute} {
		for _, store := range []core.Store{nil, contextual{memstore.New(nil)}} {
			policy := mustPolicy(New(store, nil), Named("p", Rule{Key: Everyone, Limit: 1000, Window: time.Hour,
				Algorithm: FixedWindow{}, Debt: 1000}))
			for range 3 {
				ctx, hangUp := context.WithCancel(t.Context())
				r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
				require.NoError(t, policy.Serve(httptest.NewRecorder(), r, Request{Cost: 10, Settle: true, Hold: hold},
					http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						hangUp()
						assert.NoError(t, DecisionFrom(r.Context()).Settle(r.Context(), 300))
					})))
			}
			d := must.Get(policy.Peek(t.Context(), Request{}))(t)
			assert.EqualValues(t, 100, slices.Collect(d.Rules())[0].Remaining)
		}
	}
}

// contextual is a store that is not in this process as far as a limiter knows.
type contextual struct{ *memstore.Store }
