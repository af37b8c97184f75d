package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/race"
)

// A borrower is the definition of a fixed window with debts. It keeps what each of its windows
// has taken above the limit, which counts in the next one.
type borrower struct {
	q           *Quota
	end         int64 // of the last window with units
	count, owed int64 // its units, and those of the window before that count in it
}

// used returns how many units count at a time, how many of them are owed from before, and
// whether the last window goes on.
func (b *borrower) used(now int64) (units, owed int64, open bool) {
	from, _ := b.q.period(now)
	if windowMark(b.q.WindowMark()).kind() == ownWindows {
		from = now - b.q.Window + 1
	}
	switch excess := min(max(0, b.owed+b.count-b.q.Limit), b.q.Limit); {
	case now < b.end:
		return b.owed + b.count, b.owed, true
	case b.end >= from:
		return excess, excess, false
	}
	return 0, 0, false
}

func (b *borrower) take(now, n int64) {
	_, owed, open := b.used(now)
	if !open {
		_, b.end = b.q.period(now)
		b.owed, b.count = owed, 0
	}
	b.count += n
}

// giveBack gives units of the window that a time is in back. A window that has none begins anew.
func (b *borrower) giveBack(at, n int64) (given int64) {
	from, _ := b.q.period(at)
	kind := windowMark(b.q.WindowMark()).kind()
	if kind == ownWindows {
		from = b.end - b.q.Window
	}
	if given = min(n, b.count); given == 0 {
		return 0
	}
	if b.count -= given; b.count == 0 {
		b.end, b.count, b.owed = from, b.q.Limit+b.owed, 0
	}
	return given
}

// TestDebtsOfWindows compares fixed windows with their definition, where debts are above the
// limit and the next window repays them.
func TestDebtsOfWindows(t *testing.T) {
	race.Skip(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	quotas := []Quota{
		{Algorithm: FixedWindow, Window: 60_000_000},
		{Algorithm: FixedWindow, Window: 60_000_000, Aligned: true},
		{Algorithm: FixedWindow, Window: Hour.Usual(), Calendar: Calendar{Hour, time.UTC}},
		{Algorithm: FixedWindow, Window: Day.Usual(), Calendar: Calendar{Day, berlin}},
		{Algorithm: FixedWindow, Window: Month.Usual(), Calendar: Calendar{Month, berlin}},
	}
	owing := 0
	for seed := range uint64(2_000) {
		random := rand.New(rand.NewPCG(seed, 11))
		q := quotas[random.IntN(len(quotas))]
		q.Limit = 1 + random.Int64N(20)
		c := Charge{Quota: q}
		state, plain := NewState(FixedWindow), &borrower{q: &q}
		now := time.Date(2025, 3, 29, 22, 0, 0, 0, time.UTC).UnixMicro() + random.Int64N(Day.Usual())
		var returns []Return // of the window that goes on
		for range 40 {
			steps := []int64{0, 1, random.Int64N(q.Window), q.Window / 4, q.Window - 1, q.Window, q.Window + 1, random.Int64N(4 * q.Window)}
			now += steps[random.IntN(len(steps))]
			if random.IntN(4) == 0 {
				_, now = q.period(now)
			}
			c.Debt, c.MaxDebt = random.IntN(3) == 0, 0
			if c.Cost = 1 + random.Int64N(q.Limit); c.Debt {
				c.MaxDebt = 1 + random.Int64N(3*q.Limit)
				c.Cost = 1 + random.Int64N(4*q.Limit)
			}
			used, owed, open := plain.used(now)
			if !open {
				returns = nil
			}
			if len(returns) > 0 && random.IntN(2) == 0 {
				r := returns[0]
				returns = returns[1:]
				require.Equal(t, plain.giveBack(now, r.Cost), state.Return(&r, now), seed)
				used, _, _ = plain.used(now)
				state.Advance(&q, now)
				require.Equal(t, max(0, q.Limit-used), max(0, state.Advance(&q, now)), seed)
				continue
			}
			d := Decide(now, []Charge{c}, []State{state})
			o := d.Outcomes()[0]
			taken := int64(0)
			switch {
			case c.Debt:
				taken = min(c.Cost, max(0, q.Limit-used+c.MaxDebt))
			case c.Cost <= q.Limit-used:
				taken = c.Cost
			}
			if c.Debt {
				require.Equal(t, c.Cost-taken, d.Forgiven, seed)
			} else {
				require.Equal(t, taken > 0, d.Allowed, seed)
			}
			if taken > 0 {
				plain.take(now, taken)
			}
			if taken > 0 && !c.Debt {
				returns = append(returns, d.Return(0, c))
			}
			if owed > 0 {
				owing++
			}
			used, _, _ = plain.used(now)
			require.Equal(t, max(0, q.Limit-used), o.Remaining, seed)
			if wait := o.RetryAfter; wait > 0 {
				left, _, _ := plain.used(now + wait)
				require.LessOrEqual(t, c.Cost, q.Limit-left, seed)
				left, _, _ = plain.used(now + wait - 1)
				require.Greater(t, c.Cost, q.Limit-left, seed)
			}
			if wait := o.ResetAfter; wait > 0 {
				left, _, _ := plain.used(now + wait)
				require.Zero(t, left, seed)
				left, _, _ = plain.used(now + wait - 1)
				require.Positive(t, left, seed)
			}
			require.GreaterOrEqual(t, state.Expires(), now+o.ResetAfter, seed)
		}
	}
	require.Greater(t, owing, 1_000, "debts that the next window repays")
}
