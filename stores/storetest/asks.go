package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/routelimit/limit/core"
)

// asks tests several asks in one call.
func asks() []namedTest {
	a, b := on("a", 1, 30*ms), on("b", 2, 10*ms)
	queue := by("q", core.Quota{Algorithm: core.Queue, Limit: 1, Window: 10 * ms, Burst: 1})
	empty := by("e", core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * ms, Burst: 1, Missing: 1})
	tests := scripts([]script{
		{"a refusal concerns no other", []row{
			at(0, a(1, fits(0, 30*ms, 30*ms))).then(b(1, fits(1, 10*ms, 10*ms))),
			at(1*ms, a(1, short(0, 29*ms, 29*ms))).then(b(1, fits(0, 9*ms, 10*ms))),
			at(2*ms, b(1, short(0, 8*ms, 9*ms))).then(a(1, short(0, 28*ms, 28*ms))),
			at(10*ms, b(1, fits(0, 1*ms, 10*ms))).then(a(1, short(0, 20*ms, 20*ms))),
			at(30*ms, b(3, never(2, 0))).then(a(1, fits(0, 30*ms, 30*ms))).then(b(2, fits(0, 10*ms, 10*ms))),
		}},
		{"all or nothing of a later ask", []row{
			at(0, a(1, fits(0, 30*ms, 30*ms))),
			at(1*ms, b(1, fits(1, 10*ms, 10*ms))).then(b(1, fits(1, 10*ms, 10*ms)), a(1, short(0, 29*ms, 29*ms))),
			at(1*ms, b(0, fits(1, 10*ms, 10*ms))).then(b(2, short(1, 10*ms, 10*ms)), a(0, fits(0, 29*ms, 29*ms))),
			at(1*ms, b(1, fits(0, 10*ms, 10*ms))),
		}},
		{"a later ask sees what an earlier one took", []row{
			at(0, b(1, fits(1, 10*ms, 10*ms))).then(b(1, fits(0, 10*ms, 10*ms))).then(b(1, short(0, 10*ms, 10*ms))),
			at(10*ms, b(1, fits(2, 0, 0)), a(2, never(1, 0))).then(b(2, fits(0, 10*ms, 10*ms))),
		}},
		{"a queue beside a rule delays its own ask", []row{
			at(0, a(1, fits(0, 30*ms, 30*ms))).then(queue(1, fits(1, 10*ms, 10*ms))),
			at(0, queue(1, fits(0, 10*ms, 20*ms))).then(queue(1, short(0, 10*ms, 20*ms))).delayed(10 * ms),
			at(0, b(1, fits(1, 10*ms, 10*ms))).then(queue(1, short(0, 10*ms, 20*ms))),
			at(10*ms, b(1, fits(1, 10*ms, 10*ms))).then(queue(1, fits(0, 10*ms, 20*ms))),
		}},
		{"a bucket begins to fill", []row{
			at(0, a(2, never(1, 0))).then(empty(1, short(0, 10*ms, 10*ms))),
			at(10*ms, a(2, never(1, 0))).then(empty(1, fits(0, 10*ms, 10*ms))),
		}},
	})
	return append(tests,
		namedTest{"with reserves of their own", reservesOfAsks},
		namedTest{"several policies", severalPolicies},
		namedTest{"ids of their own", idsOfAsks},
		namedTest{"invalid", invalidAsks},
		namedTest{"many rules", manyAsks},
		namedTest{"as if the rule were by itself", watchedAlone},
		namedTest{"at once", asksAtOnce},
	)
}

func takeAll(t *testing.T, h Harness, asks ...core.Ask) []core.Ask {
	t.Helper()
	if err := h.Store.Take(t.Context(), asks); err != nil {
		t.Fatalf("asks %+v: %v", asks, err)
	}
	return asks
}

func askFor(charges ...core.Charge) core.Ask { return core.Ask{Charges: charges} }

// reservesOfAsks has asks on one key that leave different numbers of units to others.
func reservesOfAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	with := func(reserve int64) core.Ask {
		return askFor(core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1, Reserve: reserve})
	}
	for i, ask := range takeAll(t, h, with(2), with(2), with(1), with(1), with(0), with(0)) {
		if ask.Decision.Allowed != (i%2 == 0) {
			t.Errorf("ask %d: allowed is %v", i, ask.Decision.Allowed)
		}
	}
}

// severalPolicies has charges of several policies in one ask, and in several.
func severalPolicies(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	of := func(policy string, limit, cost int64) core.Charge {
		return core.Charge{Policy: policy, Rule: "r", Key: "k", Quota: core.Quota{Limit: limit, Window: sec}, Cost: cost}
	}
	remain := func(p, q int64) {
		t.Helper()
		d := takeAll(t, h, askFor(of("q", 3, 0), of("p", 2, 0)))[0].Decision
		if o := d.Outcomes(); o[0].Remaining != q || o[1].Remaining != p {
			t.Errorf("%d of p and %d of q remain, want %d and %d", o[1].Remaining, o[0].Remaining, p, q)
		}
	}
	got := takeAll(t, h, askFor(of("p", 2, 1), of("q", 3, 1)), askFor(of("q", 3, 1)), askFor(of("p", 2, 1), of("q", 3, 2)))
	if !got[0].Decision.Allowed || !got[1].Decision.Allowed || got[2].Decision.Allowed {
		t.Errorf("%+v", got)
	}
	remain(1, 1)
	r := got[0].Decision.Return(1, got[0].Charges[1])
	results, err := h.Store.Return(t.Context(), []core.Return{r, got[0].Decision.Return(0, got[0].Charges[0]), r})
	if err != nil || results[0].Units != 1 || results[1].Units != 1 || results[1].Outcome.Remaining != 2 || results[0].Outcome != results[2].Outcome {
		t.Errorf("%+v, %v", results, err)
	}
	remain(2, 2+results[2].Units) // the other unit of q was taken at the same time
	lease := func(policy string) core.Charge {
		return core.Charge{Policy: policy, Rule: "l", Cost: 1, ID: 7, Quota: core.Quota{Algorithm: core.Concurrency, Limit: 1, Window: sec}}
	}
	takeAll(t, h, askFor(lease("p")))
	held, err := h.Store.Renew(t.Context(), []core.Charge{lease("q"), lease("p")})
	if err != nil || held[0] || !held[1] {
		t.Errorf("held %v, %v", held, err)
	}
	if err := h.Store.Release(t.Context(), []core.Charge{lease("q"), lease("p")}); err != nil {
		t.Error(err)
	}
	if got := takeAll(t, h, askFor(lease("p"), of("p", 2, 2), of("q", 3, 2)))[0].Decision; !got.Allowed {
		t.Errorf("%+v", got)
	}
	if err := h.Store.Reset(t.Context(), []core.Charge{of("p", 2, 0), of("q", 3, 0)}); err != nil {
		t.Error(err)
	}
	remain(2, 3)
}

// idsOfAsks has asks whose charges on one state have different ids.
func idsOfAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	slots, values := core.Quota{Algorithm: core.Concurrency, Limit: 2, Window: sec}, core.Quota{Algorithm: core.Distinct, Limit: 1, Window: sec}
	slot := func(id uint64) core.Charge { return core.Charge{Rule: "s", Quota: slots, Cost: 1, ID: id} }
	value := func(id uint64) core.Charge { return core.Charge{Rule: "v", Quota: values, Cost: 1, ID: id} }
	got := takeAll(t, h, askFor(slot(1), value(4)), askFor(value(4)), askFor(value(5)), askFor(value(4), slot(2)), askFor(slot(3)))
	for i, want := range []bool{true, true, false, true, false} {
		if got[i].Decision.Allowed != want {
			t.Errorf("ask %d: allowed is %v", i, got[i].Decision.Allowed)
		}
	}
	held, err := h.Store.Renew(t.Context(), []core.Charge{slot(1), slot(2), slot(3)})
	if err != nil || !held[0] || !held[1] || held[2] {
		t.Errorf("held %v, %v", held, err)
	}
}

// invalidAsks makes calls that a store must refuse, and checks that nothing was taken.
func invalidAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	good := core.Charge{Rule: "r", Key: "k", Quota: core.Quota{Limit: 3, Window: sec}, Cost: 1}
	other, bad := good, good
	other.Quota.Limit, bad.Cost = 4, -1
	many := make([]core.Ask, core.MaxCharges+1)
	for i := range many {
		many[i] = askFor(good)
	}
	for name, asks := range map[string][]core.Ask{
		"none": nil, "no charges": {askFor(good), askFor()}, "too many": many, "a negative cost": {askFor(good), askFor(bad)},
		"two quotas": {askFor(good), askFor(other)}, "a rule twice": {askFor(good), askFor(good, good)},
	} {
		if err := h.Store.Take(t.Context(), asks); !errors.Is(err, core.ErrCharges) {
			t.Errorf("%s: error is %v, want core.ErrCharges", name, err)
		}
	}
	if got := takeAll(t, h, askFor(good))[0].Decision.Outcomes()[0].Remaining; got != 2 {
		t.Errorf("%d remain after invalid calls, want 2", got)
	}
}

// manyAsks has as many asks as there can be.
func manyAsks(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	var list []core.Ask
	for i := range core.MaxCharges {
		list = append(list, askFor(core.Charge{Rule: fmt.Sprint("r", i/2), Key: fmt.Sprint(i / 4), Quota: core.Quota{Limit: 1, Window: sec}, Cost: 1}))
	}
	for i, ask := range takeAll(t, h, list...) {
		if ask.Decision.Allowed != (i%2 == 0) || len(ask.Decision.Outcomes()) != 1 {
			t.Errorf("ask %d: %+v", i, ask.Decision)
		}
	}
}

// watchedAlone decides random requests on an enforced rule and one that is watched, and
// each of them by itself under another policy. Their decisions must be the same.
func watchedAlone(t *testing.T, h Harness) {
	refused, taken := 0, 0
	for number := range 20 {
		random := rand.New(rand.NewPCG(9, uint64(number)))
		a := core.Charge{Rule: "a", Quota: someQuota(t, random, someAlgorithm(random))}
		b := core.Charge{Rule: "b", Quota: someQuota(t, random, someAlgorithm(random))}
		now := starts[number%len(starts)]
		for range 60 {
			now += random.Int64N(1 + pick(random, []core.Quota{a.Quota, b.Quota}).Window/4)
			for _, c := range []*core.Charge{&a, &b} {
				c.Key, c.ID = fmt.Sprint(random.IntN(2)), random.Uint64N(8)+1
				c.Cost, c.Reserve = pick(random, []int64{0, 1, 1, 1, 1 + c.Quota.Capacity()/2}), max(0, random.Int64N(8)-5)
				if c.Quota.Leases() {
					c.ID = random.Uint64() | 1
				}
				if c.Quota.Bars() || c.Quota.Algorithm == core.Distinct {
					c.Reserve = 0
				}
			}
			h.SetTime(now)
			wantA, wantB := take(t, h, fmt.Sprint("only a, ", number), a), take(t, h, fmt.Sprint("only b, ", number), b)
			policy := fmt.Sprint("both ", number)
			list := []core.Ask{askFor(Of(policy, a)...), askFor(Of(policy, b)...)}
			first := random.IntN(2)
			list[0], list[first] = list[first], list[0]
			got := takeAll(t, h, list...)
			for i, want := range []core.Decision{wantA, wantB} {
				d := &got[(i+first)%2].Decision
				if d.Allowed != want.Allowed || d.Delay != want.Delay || d.Outcomes()[0] != want.Outcomes()[0] {
					t.Fatalf("%s at %d:\ngot  %s\nwant %s", describe([]core.Charge{a, b}[i]), now, outcome(d.Outcomes()[0]), outcome(want.Outcomes()[0]))
				}
			}
			if !wantA.Allowed {
				refused++
				if b.Cost > 0 && wantB.Allowed {
					taken++
				}
			}
		}
	}
	if taken == 0 || taken == refused {
		t.Errorf("%d of %d refused requests took the charge that is watched", taken, refused)
	}
}

// asksAtOnce makes calls of two asks from many goroutines, which name the same keys in
// different orders.
func asksAtOnce(t *testing.T, h Harness) {
	h.SetTime(starts[0])
	of := func(rule string, limit int64) core.Charge {
		return core.Charge{Rule: rule, Quota: core.Quota{Limit: limit, Window: sec}, Cost: 1}
	}
	var small, large atomic.Int64
	together(t, func(caller int) {
		for range 8 {
			list := []core.Ask{askFor(of("small", 100)), askFor(of("large", 300), of("each", 300))}
			at := caller % 2
			list[0], list[at] = list[at], list[0]
			if err := h.Store.Take(t.Context(), list); err != nil {
				t.Error(err)
				return
			}
			for i, count := range [2]*atomic.Int64{&small, &large} {
				if list[(i+at)%2].Decision.Allowed {
					count.Add(1)
				}
			}
		}
	})
	if small.Load() != 100 || large.Load() != 300 && !h.Spreads {
		t.Errorf("%d and %d admitted, want 100 and 300", small.Load(), large.Load())
	}
	for rule, want := range map[string]int64{"large": 300 - large.Load(), "each": 300 - large.Load()} {
		c := of(rule, 300)
		c.Cost = 0
		if got := takeAll(t, h, askFor(c))[0].Decision.Outcomes()[0].Remaining; got != want {
			t.Errorf("%d remain of %s, want %d", got, rule, want)
		}
	}
}
