package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// A spell is some time in which one version of a rule meets all requests.
type spell struct {
	version     int // or -1 if there are no requests
	lasts, step int64
	greedy      bool // whether each request is repeated until it is refused
}

// repeated has versions of a fixed window meet the same spells again and again. So if the
// versions gain anything in a round, it adds up. It returns how many units were admitted, and
// the sum of arrivals: the limit of a version each time that it comes to a key that does not
// know it. A window that begins with its first unit is left out if the others have ended.
func repeated(quotas []Quota, spells []spell, began int64, rounds int) (admitted, arrivals, lasted int64) {
	state := &windowState{}
	now := began
	for range rounds {
		for _, s := range spells {
			for at := now; s.version >= 0 && at < now+s.lasts; at += s.step {
				q := &quotas[s.version]
				known := state.grids != nil || state.cuts(q)
				if !known && (state.ends() > at || windowMark(q.WindowMark()).kind() != ownWindows) {
					arrivals += q.Limit
				}
				for state.Advance(q, at) > 0 {
					state.Take(1, 0)
					if admitted++; !s.greedy {
						break
					}
				}
				if state.room < 1 {
					state.Refuse(false)
				}
			}
			now += s.lasts
		}
	}
	return admitted, arrivals, now - began
}

// TestWindowsComeAndGo has versions of a fixed window come and go, with quiet times between
// them. They admit at most Limit a Window of the loosest, two limits of each version, and the
// arrivals.
func TestWindowsComeAndGo(t *testing.T) {
	race.Skip(t)
	const second, rounds = 1_000_000, 20
	gained := 0
	for i := range stories(1_000) {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		pick := func(n ...int64) int64 { return n[random.IntN(len(n))] }
		var quotas []Quota
		for range 2 + random.IntN(3) {
			window := pick(1, 2, 3, 5, 7, 10, 30, 60)
			q := Quota{Algorithm: FixedWindow, Limit: max(1, window*pick(2, 3, 4, 4, 4, 4, 5)/4), Window: window * second}
			switch {
			case i%2 == 0:
			case random.IntN(2) == 0:
				q.Aligned = true
			case random.IntN(8) == 0:
				q.Limit, q.Window, q.Calendar = 3600, 3600*second, Calendar{Hour, time.FixedZone("+0545", 20700)}
			}
			quotas = append(quotas, q)
		}
		var spells []spell
		for range 2 + random.IntN(5) {
			s := spell{version: random.IntN(len(quotas)+1) - 1, greedy: random.IntN(3) > 0}
			w := min(60*second, quotas[random.IntN(len(quotas))].Window)
			s.lasts, s.step = w*pick(1, 2, 3, 4, 6, 8, 16)/pick(1, 2, 4, 8), w*pick(1, 2, 5, 10)/40
			spells = append(spells, s)
		}
		if random.IntN(2) == 0 { // rounds begin with a window
			longest, all := int64(0), int64(0)
			for _, q := range quotas {
				longest = max(longest, q.Window)
			}
			for _, s := range spells {
				all += s.lasts
			}
			spells = append(spells, spell{version: -1, lasts: longest - all%longest})
		}
		admitted, arrivals, lasted := repeated(quotas, spells, 1_750_000_000*second, rounds)
		var loosest, constant int64
		for _, q := range quotas {
			rate, _ := MulDiv(q.Limit, lasted, q.Window)
			loosest, constant = max(loosest, rate), constant+2*q.Limit
		}
		if admitted > loosest+constant {
			gained++
		}
		if admitted > loosest+constant+arrivals {
			t.Errorf("story %d: %d admitted; the loosest alone %d, and up to %d as versions came: %+v, %+v", i, admitted, loosest, arrivals, quotas, spells)
		}
	}
	t.Logf("%d stories gained as versions came", gained)
}
