package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/routelimit/limit/core"
)

// Algorithms draws n random schedules in which two to four versions of a rule charge one key,
// with two algorithms or more: see [Versions], which has the balancers and the promises.
//
// Algorithms whose units are no units of the others are left out: leases, strikes, values.
func Algorithms(t *testing.T, h Harness, seed uint64, n int) {
	t.Helper()
	admitted, refused := 0, 0
	for i := range n {
		v := newAlgorithms(t, h, seed, i)
		v.run()
		admitted, refused = admitted+len(v.taken), refused+v.refused
	}
	t.Logf("seed %d: %d schedules, %d requests admitted and %d refused", seed, n, admitted, refused)
}

func newAlgorithms(t *testing.T, h Harness, seed uint64, number int) *versions {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	v := &versions{
		t: t, h: h, random: random,
		name:    fmt.Sprintf("algorithms %d of seed %d", number, seed),
		ctx:     t.Context(),
		mixed:   true,
		expires: h.Elapse != nil && random.IntN(8) == 0,
		now:     pick(random, starts) / sec * sec,
	}
	all := slices.DeleteFunc(core.Algorithms(), func(a core.Algorithm) bool { return !counts(a) })
	base := v.ofAlgorithm(all[number%len(all)], pick(random, []int64{1, 2, 5, 10, 30}), pick(random, []int64{sec, 10 * sec, 60 * sec}))
	v.quotas = append(v.quotas, base)
	other := pick(random, all)
	for other.Alike(base.Algorithm) {
		other = pick(random, all)
	}
	limit, window := base.Limit, base.Window
	if random.IntN(2) == 0 {
		factor := pick(random, []int64{1, 2, 3})
		limit, window = limit*factor, window*pick(random, []int64{1, factor})
	}
	v.quotas = append(v.quotas, v.ofAlgorithm(other, limit, window))
	for range random.IntN(3) {
		more := v.another(pick(random, v.quotas))
		if random.IntN(2) == 0 {
			more = v.ofAlgorithm(pick(random, all), base.Limit, base.Window)
		}
		v.quotas = append(v.quotas, more)
	}
	for i := range v.quotas {
		q := &v.quotas[i]
		if err := q.Validate(); err != nil {
			t.Fatalf("%s: %+v: %v", v.name, *q, err)
		}
		v.alone = append(v.alone, &lone{quota: *q, state: core.NewState(q.Algorithm)})
	}
	var queues []core.Quota
	for _, q := range v.quotas {
		if q.Refills() { // see slowest
			q.Algorithm, q.Burst = core.Queue, q.Capacity()-1
			queues = append(queues, q)
		}
	}
	if len(queues) > 0 {
		v.alone = append(v.alone, &lone{quota: slowest(queues), state: core.NewState(core.Queue)})
	}
	v.turn = v.balancer()
	v.meter = meter{last: v.now, rate: slices.MaxFunc(v.quotas, compareRates)}
	return v
}

// counts reports whether the units of an algorithm count for others.
func counts(a core.Algorithm) bool {
	q := core.Quota{Algorithm: a}
	return q.Spends() && !q.Leases()
}

// ofAlgorithm returns a quota of an algorithm.
func (v *versions) ofAlgorithm(a core.Algorithm, limit, window int64) core.Quota {
	q := plainQuota(a, limit, window)
	if a.Fields().Has(core.FieldBurst) {
		q.Burst = pick(v.random, []int64{1, limit, 2 * limit})
	}
	if a.Fields().Has(core.FieldAligned) {
		q.Aligned = v.random.IntN(2) == 0
	}
	return q
}

// come notes that a version meets a request. A version of an algorithm that the key does not
// know counts only what comes later. A key that one algorithm has charged may be new when
// another one comes, or else knows only that one from then on.
func (v *versions) come(version int) {
	l := v.alone[version]
	alike := func(other *lone) bool { return other.quota.Algorithm.Alike(l.quota.Algorithm) }
	if v.last == nil || !alike(v.last) {
		tallies, known := false, false // the key forgets them when one algorithm alone has charged it for long
		for _, other := range v.alone[:len(v.quotas)] {
			if other.known = other.known && v.now-other.came < hour && v.now-v.turned < hour; other.known {
				tallies, known = true, known || alike(other)
			}
		}
		comes := tallies || v.last != nil && v.counts(v.last) // for certain, to a key that knows another one
		for _, other := range v.alone[:len(v.quotas)] {
			if !tallies || alike(other) && !known {
				other.met = 0
			}
			other.known = other.known || comes && alike(other)
		}
		v.turned = v.now
	}
	for _, other := range v.alone[:len(v.quotas)] {
		if alike(other) {
			other.came = v.now
		}
	}
	v.last = l
}

// counts reports whether the last unit surely counts for an algorithm.
func (v *versions) counts(l *lone) bool {
	if len(v.taken) == 0 || l.quota.Algorithm == core.FixedWindow {
		return false
	}
	for _, other := range v.alone[:len(v.quotas)] {
		q, span := &other.quota, other.quota.Window
		if q.Refills() {
			span /= q.Limit
		}
		if q.Algorithm.Alike(l.quota.Algorithm) && v.now-v.taken[len(v.taken)-1].at >= span {
			return false
		}
	}
	return true
}
