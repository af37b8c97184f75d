package core

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestAloneIsAReplay decides random requests on an enforced rule and one that
// decides alone. Each of the two has exactly the outcomes that it has without the
// other.
func TestAloneIsAReplay(t *testing.T) {
	took, refused := 0, 0
	for i := range stories(2_000) {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		all := Algorithms()
		a := Charge{Rule: "a", Quota: someQuota(t, random, all[random.IntN(len(all))])}
		b := Charge{Rule: "b", Quota: someQuota(t, random, algorithmsBut()[random.IntN(len(algorithmsBut()))]), Alone: true}
		if a.Quota.Algorithm == SlidingLog {
			a.Quota.Limit = min(a.Quota.Limit, 100)
		}
		if b.Quota.Algorithm == SlidingLog {
			b.Quota.Limit = min(b.Quota.Limit, 100)
		}
		both := []State{NewState(a.Quota.Algorithm), NewState(b.Quota.Algorithm)}
		onlyA, onlyB := []State{NewState(a.Quota.Algorithm)}, []State{NewState(b.Quota.Algorithm)}
		now := int64(1_800_000_000_000_000)
		for range 60 {
			now += random.Int64N(1 + []*Quota{&a.Quota, &b.Quota}[random.IntN(2)].Window/2)
			if random.IntN(20) == 0 {
				now = max(0, now-random.Int64N(1+b.Quota.Window))
			}
			for _, c := range []*Charge{&a, &b} {
				c.Cost, c.Reserve, c.Lease = random.Int64N(3), max(0, random.Int64N(8)-5), random.Uint64()|1
			}
			charges, first := []Charge{a, b}, random.IntN(2)
			if first == 1 {
				charges = []Charge{b, a}
				both[0], both[1] = both[1], both[0]
			}
			got := Decide(now, charges, both)
			if first == 1 {
				both[0], both[1] = both[1], both[0]
			}
			wantA, wantB := Decide(now, []Charge{a}, onlyA), Decide(now, []Charge{b}, onlyB)
			switch {
			case got.Allowed != wantA.Allowed || got.Delay != wantA.Delay || got.RetryAfter() != wantA.RetryAfter():
				t.Fatalf("%+v, %+v at %d: %+v, and by itself %+v", a, b, now, got, wantA)
			case got.Outcomes()[first] != wantA.Outcomes()[0] || got.Outcomes()[1-first] != wantB.Outcomes()[0]:
				t.Fatalf("%+v, %+v at %d:\n%+v, and by themselves\n%+v\n%+v", a, b, now, got.Outcomes(), wantA.Outcomes(), wantB.Outcomes())
			case !wantB.Allowed || got.Took(1-first) != wantB.Outcomes()[0].Fits() || got.Took(first) != wantA.Allowed:
				t.Fatalf("%+v, %+v at %d: took %v and %v", a, b, now, got.Took(first), got.Took(1-first))
			}
			if !got.Allowed {
				refused++
				if got.Took(1 - first) {
					took++
				}
			}
		}
	}
	t.Logf("%d requests refused, %d of which took the charge that decides alone", refused, took)
	if took == 0 {
		t.Error("none was refused that took it")
	}
}

func TestAloneDecision(t *testing.T) {
	d := NewDecision(7, MaxCharges)
	d.SetAlone(0)
	d.SetAlone(MaxCharges - 1)
	d.Outcomes()[0].RetryAfter, d.Outcomes()[1].RetryAfter = Never, 3
	if got := d.RetryAfter(); got != 3 {
		t.Errorf("retry after %d, want 3", got)
	}
	for i, want := range []bool{false, false, false, MaxCharges - 1: true} {
		if got := d.Took(i); got != want {
			t.Errorf("charge %d of a refusal: took is %v", i, got)
		}
	}
	d.Allowed = true
	if d.Took(0) || !d.Took(1) {
		t.Error("an admission takes all but what did not fit alone")
	}
	var none Decision
	if none.Took(0) || none.Took(MaxCharges-1) {
		t.Error("the zero Decision took something")
	}
}

func TestValidateAloneAndReserve(t *testing.T) {
	slots := Charge{Rule: "r", Quota: Quota{Algorithm: Concurrency, Limit: 1, Window: MinWindow}, Alone: true}
	units := Charge{Rule: "r", Quota: Quota{Limit: 1, Window: MinWindow}, Cost: MaxCost, Reserve: MaxCost, Alone: true}
	if err := ValidateCharges([]Charge{units}); err != nil {
		t.Error(err)
	}
	low, high := units, units
	low.Reserve, high.Reserve = -1, MaxCost+1
	for words, c := range map[string]Charge{
		"leave out Alone": slots, "reserve -1: write 0 to": low, "reserve 281474976710656: write 0 to": high,
	} {
		if err := ValidateCharges([]Charge{c}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error is %v, want %q", err, words)
		}
	}
}
