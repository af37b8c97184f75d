package proof

import (
	"math/rand/v2"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

// soakOther are other versions of the rules of a soak.
var soakOther = []limit.RuleSet{
	limit.Named("exact", limit.Rule{Name: "log", Key: limit.ByUser, Limit: soakLimit / 3, Window: soakWindow * 3 / 10},
		limit.Rule{Name: "all", Key: limit.Everyone, Limit: 90_000, Window: soakWindow, Algorithm: limit.FixedWindow{}}),
	limit.Named("bucket", limit.Rule{Name: "bucket", Key: limit.ByUser, Limit: soakLimit, Window: soakWindow,
		Algorithm: limit.TokenBucket{Burst: 1}}),
	limit.Named("slots", limit.Rule{Name: "slots", Key: limit.Everyone, Limit: soakSlots / 2, Window: 2 * soakWindow,
		Algorithm: limit.Concurrency{}}),
	limit.Named("line", limit.Rule{Name: "line", Key: limit.Everyone, Limit: 50, Window: soakWindow,
		Algorithm: limit.Queue{Burst: 1}}),
}

// change lets the rules rest for some seconds, and change for some seconds: each instance
// then has the one or the other version of each rule. So there are windows without changes
// too, in which the limits themselves must hold.
func (s *soak) change(limiters []*limit.Limiter) {
	for {
		s.calm(time.Duration(3+rand.IntN(8)) * soakWindow)
		now := time.Now()
		done := s.changes.begin(now)
		for end := now.Add(time.Duration(2+rand.IntN(8)) * soakWindow); time.Now().Before(end); {
			s.calm(time.Duration(rand.Int64N(int64(soakWindow / 4))))
			var sets []limit.RuleSet
			for _, set := range soakOther {
				if rand.IntN(2) == 0 {
					sets = append(sets, set)
				}
			}
			s.must(operate.Change(limiters[rand.IntN(len(limiters))], sets...))
			s.changed++
			select {
			case <-s.stop:
				return
			default:
			}
		}
		for _, l := range limiters {
			s.must(operate.Change(l))
		}
		done(time.Now())
	}
}
