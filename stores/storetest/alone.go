package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/routelimit/limit/core"
)

// byItself returns m with a charge that decides alone.
func byItself(m met) met { m.charge.Alone = true; return m }

// leaving returns m with a charge that leaves units to others.
func leaving(reserve int64, m met) met { m.charge.Reserve = reserve; return m }

// alone tests charges that decide alone.
func alone() []namedTest {
	a, b := on("a", 1, 30*ms), on("b", 2, 10*ms)
	queue := by("q", core.Quota{Algorithm: core.Queue, Limit: 1, Window: 10 * ms, Burst: 1})
	empty := by("e", core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * ms, Burst: 1, Missing: 1})
	tests := scripts([]script{
		{"taken by a refused request", []row{
			at(0, a(1, fits(0, 30*ms, 30*ms)), byItself(b(1, fits(1, 10*ms, 10*ms)))),
			at(1*ms, a(1, short(0, 29*ms, 29*ms)), byItself(b(1, fits(0, 9*ms, 10*ms)))),
			at(2*ms, byItself(b(1, short(0, 8*ms, 9*ms))), a(1, short(0, 28*ms, 28*ms))),
			at(10*ms, byItself(b(1, fits(0, 1*ms, 10*ms))), a(1, short(0, 20*ms, 20*ms))),
		}},
		{"refuses nothing", []row{
			at(0, b(2, fits(0, 10*ms, 10*ms))),
			at(1*ms, a(1, fits(0, 30*ms, 30*ms)), byItself(b(1, short(0, 9*ms, 9*ms)))),
			at(2*ms, byItself(b(3, never(0, 8*ms)))),
		}},
		{"several units of a refused request", []row{
			at(0, a(2, never(1, 0)), byItself(b(2, fits(0, 10*ms, 10*ms)))),
			at(1*ms, a(2, never(1, 0)), byItself(b(2, short(0, 9*ms, 9*ms)))),
			at(1*ms, a(2, never(1, 0)), byItself(b(0, fits(0, 9*ms, 9*ms)))),
		}},
		{"a queue delays nothing", []row{
			at(0, a(1, fits(0, 30*ms, 30*ms)), byItself(queue(1, fits(1, 10*ms, 10*ms)))),
			at(0, byItself(queue(1, fits(0, 10*ms, 20*ms)))),
			at(0, byItself(queue(1, short(0, 10*ms, 20*ms)))),
			at(10*ms, queue(1, fits(0, 10*ms, 20*ms))).delayed(10 * ms),
		}},
		{"a bucket begins to fill", []row{
			at(0, a(2, never(1, 0)), byItself(empty(1, short(0, 10*ms, 10*ms)))),
			at(10*ms, a(2, never(1, 0)), byItself(empty(1, fits(0, 10*ms, 10*ms)))),
		}},
		{"with a reserve", []row{
			at(0, a(2, never(1, 0)), leaving(1, byItself(b(1, fits(1, 10*ms, 10*ms))))),
			at(1*ms, a(2, never(1, 0)), leaving(1, byItself(b(1, short(1, 9*ms, 9*ms))))),
			at(1*ms, a(2, never(1, 0)), leaving(2, byItself(b(1, never(1, 9*ms))))),
		}},
	})
	return append(tests, namedTest{"as if the rule were by itself", aloneIsAReplay})
}

// aloneIsAReplay decides random requests on an enforced rule and one that decides
// alone, and the second rule by itself under another policy. Its outcomes must be the
// same.
func aloneIsAReplay(t *testing.T, h Harness) {
	refused, taken := 0, 0
	for number := range 20 {
		random := rand.New(rand.NewPCG(9, uint64(number)))
		a := core.Charge{Rule: "a", Quota: someQuota(t, random)}
		b := core.Charge{Rule: "b", Quota: someQuota(t, random)}
		for _, c := range []*core.Charge{&a, &b} {
			for c.Quota.Identified() || c.Quota.Bars() {
				c.Quota = someQuota(t, random)
			}
		}
		now := starts[number%len(starts)]
		for range 60 {
			now += random.Int64N(1 + pick(random, []core.Quota{a.Quota, b.Quota}).Window/4)
			for _, c := range []*core.Charge{&a, &b} {
				c.Key, c.ID = fmt.Sprint(random.IntN(2)), random.Uint64()|1
				c.Cost, c.Reserve = pick(random, []int64{0, 1, 1, 1, 1 + c.Quota.Capacity()/2}), max(0, random.Int64N(8)-5)
			}
			h.SetTime(now)
			want := take(t, h, fmt.Sprint("only ", number), b)
			b.Alone = true
			charges, at := []core.Charge{a, b}, 1
			if random.IntN(2) == 0 {
				charges, at = []core.Charge{b, a}, 0
			}
			b.Alone = false
			got := take(t, h, fmt.Sprint("both ", number), charges...)
			if o := got.Outcomes()[at]; o != want.Outcomes()[0] || got.Took(at) != want.Allowed {
				t.Fatalf("%s at %d:\ngot  %s\nwant %s", describe(b), now, outcome(o), outcome(want.Outcomes()[0]))
			}
			if got.Allowed != got.Took(1-at) || got.Allowed != got.Outcomes()[1-at].Fits() {
				t.Fatalf("allowed is %v, and the outcome of %s is %s", got.Allowed, describe(a), outcome(got.Outcomes()[1-at]))
			}
			if !got.Allowed {
				refused++
				if b.Cost > 0 && got.Took(at) {
					taken++
				}
			}
		}
	}
	if taken == 0 || taken == refused {
		t.Errorf("%d of %d refused requests took the charge that decides alone", taken, refused)
	}
}

// reserves tests charges that leave units to others.
func reserves() []script {
	five, other := on("a", 5, 10*ms), on("b", 1, 30*ms)
	bucket := by("t", core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * ms, Burst: 3})
	return []script{
		{"the last units are left", []row{
			at(0, leaving(2, five(3, fits(2, 10*ms, 10*ms)))),
			at(1*ms, leaving(2, five(1, short(2, 9*ms, 9*ms)))),
			at(1*ms, leaving(1, five(1, fits(1, 9*ms, 10*ms)))),
			at(2*ms, five(1, fits(0, 8*ms, 10*ms))),
			at(2*ms, leaving(5, five(0, fits(0, 8*ms, 10*ms)))),
			at(10*ms-1, leaving(2, five(1, short(0, 1, 2*ms+1)))),
			at(10*ms, leaving(2, five(1, fits(2, 1*ms, 10*ms)))),
		}},
		{"more than there can be", []row{
			at(0, leaving(5, five(1, never(5, 0)))),
			at(0, leaving(core.MaxCost, five(1, never(5, 0)))),
			at(0, leaving(core.MaxCost, five(core.MaxCost, never(5, 0)))),
			at(0, leaving(4, five(1, fits(4, 10*ms, 10*ms)))),
		}},
		{"all or nothing", []row{
			at(0, leaving(4, five(1, fits(4, 10*ms, 10*ms))), other(1, fits(0, 30*ms, 30*ms))),
			at(1*ms, leaving(4, five(1, short(4, 9*ms, 9*ms))), other(0, fits(0, 29*ms, 29*ms))),
			at(30*ms, leaving(5, five(1, never(5, 0))), other(1, fits(1, 0, 0))),
		}},
		{"a bucket", []row{
			at(0, leaving(1, bucket(2, fits(1, 10*ms, 20*ms)))),
			at(5*ms, leaving(1, bucket(1, short(1, 5*ms, 15*ms)))),
			at(10*ms, leaving(1, bucket(1, fits(1, 10*ms, 20*ms)))),
		}},
	}
}
