package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/race"
)

// A line is what happens in a queue whose turns last a whole number of microseconds.
type line struct {
	*testing.T
	q     Quota
	state State
	now   int64
	held  []turn
}

type turn struct {
	starts, n int64
	Return
}

func (l *line) each() int64 { return l.q.Window / l.q.Limit }

// take takes n units, and checks that their turn is free.
func (l *line) take(n int64) (delay int64, ok bool) {
	before := l.state.Clone().Advance(&l.q, l.now)
	c := Charge{Quota: l.q, Cost: n}
	d := Decide(l.now, []Charge{c}, []State{l.state})
	require.Equal(l, n <= before, d.Allowed)
	if !d.Allowed {
		o := d.Outcomes()[0]
		if o.RetryAfter > 0 {
			require.False(l, Decide(l.now+o.RetryAfter-1, []Charge{c}, []State{l.state.Clone()}).Allowed, "it could come sooner")
			require.True(l, Decide(l.now+o.RetryAfter, []Charge{c}, []State{l.state.Clone()}).Allowed, "it was told to come")
		}
		return 0, false
	}
	t := turn{l.now + d.Delay, n, d.Return(0, c)}
	for _, other := range l.held {
		require.True(l, t.starts >= other.starts+other.n*l.each() || other.starts >= t.starts+n*l.each(),
			"a turn of %d at %d, and one of %d at %d", n, t.starts, other.n, other.starts)
	}
	require.True(l, l.q.MaxWait == 0 || d.Delay <= l.q.MaxWait)
	l.held = append(l.held, t)
	return d.Delay, true
}

// leave gives the turn of a held request back.
func (l *line) leave(i int) int64 {
	given := l.state.Return(&l.held[i].Return, l.now)
	l.held = slices.Delete(l.held, i, i+1)
	return given
}

// TestNewcomerAfterLeavers has 300 clients queue and leave, all or half of them, in
// any order. A newcomer waits no longer than for those that are still there.
func TestNewcomerAfterLeavers(t *testing.T) {
	race.Skip(t)
	for order := range 5 {
		for _, stay := range []int{0, 1, 150} {
			random := rand.New(rand.NewPCG(1, uint64(order)))
			l := &line{T: t, q: Quota{Algorithm: Queue, Limit: 10, Window: 1_000_000, Burst: 300}, state: NewState(Queue), now: 1_000_000_000}
			for range 300 {
				_, ok := l.take(1)
				require.True(t, ok)
			}
			l.now += 2_450_000
			for len(l.held) > stay+25 { // 25 turns have begun
				i := len(l.held) - 1
				switch order {
				case 0:
					i = 25
				case 1:
				default:
					i = 25 + random.IntN(len(l.held)-25)
				}
				require.EqualValues(t, 1, l.leave(i), "%d are left", len(l.held))
			}
			for range 300 - stay {
				delay, ok := l.take(1)
				require.True(t, ok)
				require.Less(t, delay, int64(len(l.held)-25)*l.each(), "%d wait", len(l.held)-26)
			}
		}
	}
}

// TestTurnsApart takes and leaves at random: no two turns overlap, and a refused client
// that comes when it was told to is admitted, and not sooner.
func TestTurnsApart(t *testing.T) {
	for i := range stories(350) {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		l := &line{T: t, q: Quota{Algorithm: Queue, Limit: 1 + random.Int64N(5), Burst: random.Int64N(30)}, state: NewState(Queue), now: 1_000_000_000}
		l.q.Window = l.q.Limit * (1_000 + random.Int64N(1_000))
		if random.IntN(2) == 0 {
			l.q.MaxWait = 1 + random.Int64N(20*l.each())
		}
		require.NoError(t, l.q.Validate())
		for range 300 {
			l.now += random.Int64N(1 + []int64{1, l.each(), 3 * l.each()}[random.IntN(3)])
			if len(l.held) > 0 && random.IntN(3) > 0 {
				i := random.IntN(len(l.held))
				left := l.held[i]
				given := l.leave(i)
				require.True(t, given == left.n || l.now+l.each() >= left.starts, "%d of %d, at %d", given, left.n, left.starts-l.now)
			} else {
				l.take(1 + random.Int64N(1+random.Int64N(4)))
			}
		}
	}
}

// TestManyGaps has more clients leave than a queue remembers. It keeps what it has.
func TestManyGaps(t *testing.T) {
	race.Skip(t)
	l := &line{T: t, q: Quota{Algorithm: Queue, Limit: 10, Window: 1_000_000, Burst: 4 * MaxGaps}, state: NewState(Queue), now: 1_000_000_000}
	for range 3 * MaxGaps {
		l.take(1)
	}
	given := int64(0)
	for i := range MaxGaps + 100 {
		given += l.leave(i + 1)
	}
	require.EqualValues(t, MaxGaps, given)
	for range MaxGaps {
		delay, _ := l.take(1)
		require.Less(t, delay, 2*MaxGaps*l.each()+l.each())
	}
}
