package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDecideTakesAllOrNothing(t *testing.T) {
	once := Charge{Rule: "once", Quota: Quota{Limit: 1, Window: 10_000}, Cost: 1}
	often := Charge{Rule: "often", Quota: Quota{Limit: 9, Window: 5_000}, Cost: 1}
	for _, order := range [][]Charge{{once, often}, {often, once}} {
		states := []State{NewState(SlidingLog), NewState(SlidingLog)}
		first := Decide(1_000, order, states)
		second := Decide(3_000, order, states)
		if !first.Allowed || second.Allowed {
			t.Fatalf("allowed: %v, then %v; want true, then false", first.Allowed, second.Allowed)
		}
		for i, o := range second.Outcomes() {
			switch order[i].Rule {
			case "once":
				if want := (Outcome{RetryAfter: 8_000, ResetAfter: 8_000}); o != want {
					t.Errorf("once: got %+v, want %+v", o, want)
				}
			case "often":
				if want := (Outcome{Remaining: 8, MoreAfter: 3_000, ResetAfter: 3_000}); o != want {
					t.Errorf("often: got %+v, want %+v", o, want)
				}
			}
		}
		if got := second.RetryAfter(); got != 8_000 {
			t.Errorf("retry after %d, want 8000", got)
		}
	}
}

func TestDecisionRetryAfter(t *testing.T) {
	for _, test := range []struct {
		retries []int64
		want    int64
	}{
		{[]int64{0}, 0},
		{[]int64{0, 3, 2}, 3},
		{[]int64{3, Never, 2}, Never},
		{[]int64{1, 2, 3, 4, 9, 4}, 9},
		{[]int64{1, 2, 3, 4, 9, Never}, Never},
	} {
		d := NewDecision(7, len(test.retries))
		for i, retry := range test.retries {
			d.Outcomes()[i].RetryAfter = retry
		}
		if got := d.RetryAfter(); got != test.want {
			t.Errorf("%v: retry after %d, want %d", test.retries, got, test.want)
		}
	}
}

func TestDecisionHoldsOutcomes(t *testing.T) {
	for n := range MaxCharges + 1 {
		d := NewDecision(7, n)
		for i := range d.Outcomes() {
			d.Outcomes()[i].Remaining = int64(i)
		}
		copied := d
		if len(copied.Outcomes()) != n || copied.At != 7 {
			t.Fatalf("%d outcomes at %d, want %d at 7", len(copied.Outcomes()), copied.At, n)
		}
		for i, o := range copied.Outcomes() {
			if o.Remaining != int64(i) {
				t.Errorf("outcome %d of %d is %+v", i, n, o)
			}
		}
	}
}

func TestDecideAllocates(t *testing.T) {
	for n, want := range map[int]float64{1: 0, 4: 0, 5: 1, MaxCharges: 1} {
		charges, states := make([]Charge, n), make([]State, n)
		for i := range charges {
			charges[i] = Charge{Quota: Quota{Limit: 10, Window: 1_000}, Cost: 1}
			states[i] = NewState(SlidingLog)
		}
		var now int64
		decide := func() {
			now += 100
			d := Decide(now, charges, states)
			if !d.Allowed || len(d.Outcomes()) != n {
				t.Error(d)
			}
		}
		for range 100 { // until the logs have their size
			decide()
		}
		if got := testing.AllocsPerRun(100, decide); got != want {
			t.Errorf("%d charges: %v allocations, want %v", n, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Quota{Limit: 1, Window: MinWindow}
	for _, q := range []Quota{good, {Limit: MaxLog, Window: MaxWindow}} {
		if err := q.Validate(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, test := range []struct {
		quota Quota
		words []string
	}{
		{Quota{}, []string{"limit 0: write at least 1", "window of 0 µs: write between 1ms and 366 days"}},
		{Quota{Limit: -1, Window: MinWindow}, []string{"limit -1"}},
		{Quota{Limit: MaxLog + 1, Window: MinWindow}, []string{"limit 100001", "write at most 100000"}},
		{Quota{Limit: 1, Window: MinWindow - 1}, []string{"window of 999 µs"}},
		{Quota{Limit: 1, Window: MaxWindow + 1}, []string{"window of"}},
		{Quota{Algorithm: 255, Limit: 1, Window: MinWindow}, []string{"unknown algorithm 255"}},
		{Quota{Algorithm: 255, Limit: -1}, []string{"algorithm", "limit", "window"}},
	} {
		err := test.quota.Validate()
		if err == nil {
			t.Errorf("%+v is valid", test.quota)
			continue
		}
		for _, words := range test.words {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%+v: %q does not say %q", test.quota, err, words)
			}
		}
		charges := []Charge{{Rule: "good", Quota: good}, {Rule: "bad", Quota: test.quota}}
		if err := ValidateCharges(charges); !errors.Is(err, ErrCharges) || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("%+v: %v", test.quota, err)
		}
	}
}

func TestValidateCharges(t *testing.T) {
	charges := make([]Charge, MaxCharges+1)
	for i := range charges {
		charges[i] = Charge{Rule: fmt.Sprint(i), Quota: Quota{Limit: 1, Window: MinWindow}, Cost: MaxCost}
	}
	if err := ValidateCharges(charges[:MaxCharges]); err != nil {
		t.Error(err)
	}
	owe := func(charges []Charge) {
		for i := range charges {
			charges[i].Debt, charges[i].Age = true, MaxTime
		}
	}
	with := func(change func([]Charge)) []Charge {
		changed := slices.Clone(charges[:3])
		change(changed)
		return changed
	}
	for name, invalid := range map[string][]Charge{
		"none":            nil,
		"too many":        charges,
		"negative cost":   with(func(c []Charge) { c[1].Cost = -1 }),
		"enormous cost":   with(func(c []Charge) { c[2].Cost = MaxCost + 1 }),
		"a rule twice":    with(func(c []Charge) { c[2].Rule = c[0].Rule }),
		"an empty quota":  with(func(c []Charge) { c[1].Quota = Quota{} }),
		"an age":          with(func(c []Charge) { c[1].Age = 1 }),
		"one debt":        with(func(c []Charge) { c[1].Debt = true }),
		"unborn debts":    with(func(c []Charge) { owe(c); c[1].Age = -1 }),
		"ancient debts":   with(func(c []Charge) { owe(c); c[1].Age = MaxTime + 1 }),
		"modest debts":    with(func(c []Charge) { owe(c); c[1].Reserve = 1 }),
		"nameless, twice": with(func(c []Charge) { c[0].Rule, c[1].Rule = "", "" }),
	} {
		if err := ValidateCharges(invalid); !errors.Is(err, ErrCharges) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if err := ValidateCharges(with(owe)); err != nil {
		t.Error(err)
	}
	if got := testing.AllocsPerRun(100, func() { _ = ValidateCharges(charges[:4]) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func TestAlgorithmString(t *testing.T) {
	if got := SlidingLog.String(); got != "sliding-log" {
		t.Error(got)
	}
	if got := Algorithm(255).String(); got != "algorithm 255" {
		t.Error(got)
	}
}
