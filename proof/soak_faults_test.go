package proof

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/routelimit/limit/internal/faultproxy"
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
