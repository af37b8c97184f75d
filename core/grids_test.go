package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// periodQuota returns a random quota that counts in periods.
func periodQuota(random *rand.Rand, a Algorithm) Quota {
	pick := func(n ...int64) int64 { return n[random.IntN(len(n))] }
	q := Quota{Algorithm: a, Limit: 1 + random.Int64N(20), Window: pick(1, 2, 3, 5, 10, 60) * 1_000_000 * pick(1, 1, 7) / pick(1, 1, 3)}
	switch a {
	case SlidingCells:
		q.Cells = pick(2, 3, 10, MaxCells)
	case FixedWindow:
		switch random.IntN(4) {
		case 0, 1:
			q.Aligned = true
		case 2:
			q.Window = 3600 * 1_000_000
			q.Calendar = Calendar{Hour, []*time.Location{time.UTC, time.FixedZone("+0545", 20700)}[random.IntN(2)]}
		}
	}
	return q
}

var periodAlgorithms = []Algorithm{FixedWindow, SlidingCells, SlidingCounter}

// alone returns a copy of a state that has its own grid only.
func alone(state State) State {
	copied := state.Clone()
	*copied.(grid).others() = nil
	return copied
}

// TestGridsAgainstPlain has two to four versions charge a key. Once a version has come, it
// decides as a state of its own that is charged for all that any version admits.
func TestGridsAgainstPlain(t *testing.T) {
	for i := range stories(2_000) {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		a := periodAlgorithms[i%3]
		var quotas []Quota
		for range 2 + random.IntN(3) {
			quotas = append(quotas, periodQuota(random, a))
		}
		state, plain := NewState(a), make(map[int]State) // by the first quota of each grid
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + random.Int64N(3600_000_000)
		began := now
		for range 80 {
			if q := quotas[random.IntN(len(quotas))]; random.IntN(3) > 0 {
				now += random.Int64N(1+q.Window/2) * random.Int64N(2)
			}
			if now > began+idleGrid {
				break
			}
			which := random.IntN(len(quotas))
			q := quotas[which]
			for j := range which { // the grid of an earlier one
				if alone := NewState(a).(grid); true {
					if alone.lay(&quotas[j]); alone.cuts(&q) {
						which = j
						break
					}
				}
			}
			fresh := true
			for _, s := range plain {
				fresh = fresh && s.Expires() <= now
			}
			if fresh {
				clear(plain)
			}
			cost := random.Int64N(3)
			before := ""
			if s := plain[which]; s != nil {
				want, exact := s.Advance(&q, now), a != FixedWindow
				if room := state.Advance(&q, now); room != want && exact || room > want {
					t.Fatalf("story %d at %d: room for %d under %+v, want %d%s", i, now, room, q, want, before)
				}
			}
			c := Charge{Quota: q, Cost: cost}
			if random.IntN(10) == 0 && cost > 0 {
				c.Debt = true
			}
			d := Decide(now, []Charge{c}, []State{state})
			if !d.Allowed || cost == 0 {
				continue
			}
			for other, s := range plain {
				if other != which {
					s.Advance(&quotas[other], now)
					s.Owe(&quotas[other], cost, now, 0, false)
				}
			}
			if s := plain[which]; s != nil {
				s.Advance(&q, now)
				s.Owe(&q, cost, now, 0, false)
			} else {
				plain[which] = alone(state)
			}
		}
	}
}

// greedy returns how many units a client gets that asks at every step, of versions that a
// balancer chooses, and of each version alone.
func greedy(quotas []Quota, began, step int64, steps int, balance func(i int) int) (together int64, each []int64) {
	state, own := NewState(quotas[0].Algorithm), make([]State, len(quotas))
	each = make([]int64, len(quotas))
	for j := range own {
		own[j] = NewState(quotas[j].Algorithm)
	}
	take := func(s State, q *Quota, now int64) int64 {
		if s.Advance(q, now) < 1 {
			s.Refuse(false)
			return 0
		}
		s.Take(1, 0)
		return 1
	}
	for i := range steps {
		now := began + int64(i)*step
		together += take(state, &quotas[balance(i)], now)
		for j := range own {
			each[j] += take(own[j], &quotas[j], now)
		}
	}
	return together, each
}

// TestGridsCome has a version come to a key of another with a longer window that is always in
// use, by a client that neither version alone would refuse. The version is refused no longer
// than two of its windows: units that the other takes do not go on to keep it out.
func TestGridsCome(t *testing.T) {
	const minute = 60 * 1_000_000
	for _, a := range periodAlgorithms {
		long, short := Quota{Algorithm: a, Limit: 1000, Window: 60 * minute}, Quota{Algorithm: a, Limit: 20, Window: minute}
		if a == SlidingCells {
			long.Cells, short.Cells = 10, 10
		}
		state, now, refused := NewState(a), int64(1_750_000_000_000_000)/(60*minute)*(60*minute), 0
		for i := range 300 {
			q := &long
			if i > 100 && i%2 == 0 {
				q = &short
			}
			if !Decide(now, []Charge{{Quota: *q, Cost: 1}}, []State{state}).Allowed {
				refused++
			}
			now += minute / 10
		}
		if refused > 10 { // of 20 requests in two windows, every other one
			t.Errorf("%v: %d refused", a, refused)
		}
	}
}

// TestGridsBounds has random balancers and versions that come and go.
func TestGridsBounds(t *testing.T) {
	race.Skip(t)
	for i := range stories(200) {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		var quotas []Quota
		for range 2 + random.IntN(3) {
			quotas = append(quotas, periodQuota(random, periodAlgorithms[i%3]))
		}
		each := 1 + random.IntN(500)
		balance := []func(int) int{
			func(i int) int { return i % len(quotas) },
			func(int) int { return random.IntN(len(quotas)) },
			func(i int) int { return i / each % len(quotas) },
			func(i int) int { return min(random.IntN(20), len(quotas)-1) },
		}[random.IntN(4)]
		together, alone := greedy(quotas, 1_750_000_000_000_000+random.Int64N(3600_000_000), 20_000, 10_000, balance)
		// The loosest version admits its rate. There are no quiet times: for those, see
		// TestWindowsComeAndGo.
		const steps, step = 20_000, 10_000
		var limit, least, most int64 = 0, huge, 0
		for j, q := range quotas {
			limit, least = max(limit, q.Limit), min(least, alone[j])
			rate, _ := MulDiv(q.Limit, steps*step, q.Window)
			most = max(most, rate)
		}
		if together > most+2*limit || together < least-2*limit {
			t.Errorf("story %d: %d together, alone %d: %+v", i, together, alone, quotas)
		}
	}
}
