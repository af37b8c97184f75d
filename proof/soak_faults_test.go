package proof

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/operate"
)

// fault breaks something for a while, and repairs it.
func (s *soak) fault() {
	began := time.Now()
	done := s.trouble.begin(began)
	defer func() { done(time.Now()) }()
	lasts := 50*time.Millisecond + time.Duration(rand.Int64N(int64(2*soakWindow)))
	const killed = 7
	faults := []struct {
		name string
		run  func()
	}{
		{"lost replies", func() { s.commands(lasts, faultproxy.LoseReply, 3) }},
		{"cut requests", func() { s.commands(lasts, faultproxy.CutRequest, 3) }},
		{"cut replies", func() { s.commands(lasts, faultproxy.CutReply, 3) }},
		{"no replies", func() { s.commands(lasts, faultproxy.NoReply, 3) }},
		{"slow replies", func() { s.commands(lasts, faultproxy.None, 2) }},
		{"black hole", func() {
			s.proxy.Silence(true)
			s.calm(lasts)
			s.proxy.Silence(false)
			s.proxy.Cut() // requests on it get no answer
		}},
		{"refused", func() {
			s.must(s.proxy.Refuse(true))
			s.calm(lasts)
			s.must(s.proxy.Refuse(false))
		}},
		{"killed", func() {
			s.server.Kill()
			s.calm(lasts)
			s.server.Restart()
		}},
		{"paused", func() {
			s.server.Pause()
			s.calm(lasts)
			s.server.Resume()
		}},
		{"cut", s.proxy.Cut},
		{"scripts flushed", func() { s.must(s.direct.ScriptFlush(s.t.Context()).Err()) }},
	}
	f := faults[rand.IntN(len(faults))]
	if len(s.faults) == 0 {
		f = faults[killed]
	}
	s.faults[f.name]++
	f.run()
}

// commands breaks one of so many script calls.
func (s *soak) commands(lasts time.Duration, kind faultproxy.Kind, of int) {
	s.proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if !strings.HasPrefix(c.Name, "eval") || rand.IntN(of) > 0 {
			return faultproxy.Fault{}
		}
		f := faultproxy.Fault{Kind: kind, At: rand.IntN(c.Size)}
		if kind == faultproxy.None {
			f.Delay = time.Duration(rand.IntN(300)) * time.Millisecond
		}
		return f
	})
	s.calm(lasts)
	s.proxy.Break(nil)
}

func (s *soak) must(err error) {
	if err != nil {
		s.t.Error(err)
	}
}

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
