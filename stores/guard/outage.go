package guard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// Times of outages, in µs.
const (
	logQuiet   = 5_000_000 // without a decision made without the store, after which an outage is over
	justNow    = 500_000   // after such a decision, for which the store counts as unavailable
	watchEvery = 1_000_000
)

// An outage is a time in which decisions are made without the store, or the last such time. A line
// is written when it begins, once a minute while it lasts, and when it ends.
type outage struct {
	log   notice.Log
	lasts atomic.Bool

	mu          sync.Mutex
	began, last int64       // the first and the last decision without the store
	due         int64       // when the next line is
	count       int64       // outages until now
	modes       [3]int64    // its decisions, in each mode from core.ModeLocal on
	settled     [2]int64    // the units that had been paid when it began, and those of them that were paid again
	look        core.Charge // of its first decision

	blocked      atomic.Int64 // decisions made without a store that works
	blockedLines notice.Throttle
}

// decidedAlone counts a decision that was made without the store.
func (c *call) decidedAlone(mode core.Mode, reason error) {
	s, o := c.guard, &c.guard.outage
	if errors.Is(reason, core.ErrBlocked) {
		o.block(c.now, reason)
		return
	}
	o.mu.Lock()
	begins := !o.lasts.Load()
	if begins {
		o.began, o.due, o.modes = c.now, c.now, [3]int64{}
		o.settled = [2]int64{s.debts.paid.Load(), s.debts.repeated.Load()}
		o.count++
		o.look = c.charges[0]
		o.lasts.Store(true)
	}
	o.last = c.now
	o.modes[mode-core.ModeLocal]++
	due := c.now >= o.due
	if due {
		o.due = c.now + notice.Every.Microseconds()
	}
	report := s.report(due)
	o.mu.Unlock()
	switch {
	case begins:
		o.logger().Warn("limit: the store is unavailable; until it answers, each rule decides as its on-error says",
			"code", notice.Outage, "error", reason)
		s.debts.after(watchEvery*time.Microsecond, s.watch)
	case due:
		o.logger().Warn("limit: the store is still unavailable", report...)
	}
}

// block counts a decision that was made without a store that works.
func (o *outage) block(now int64, reason error) {
	o.blocked.Add(1)
	skipped, due := o.blockedLines.Due(time.UnixMicro(now), notice.Every)
	if !due {
		return
	}
	code := notice.Outage
	if d := (*core.Diagnosis)(nil); errors.As(reason, &d) {
		code, reason = d.Code, d.Err
	}
	notice.Write(&o.log, code, "limit: the store works, but requests are decided without it", skipped, "error", reason)
}

// answered notes that the store has decided a request.
func (s *Store) answered(now int64) {
	o := &s.outage
	if !o.lasts.Load() {
		return
	}
	o.mu.Lock()
	ends := o.lasts.Load() && now-o.last >= logQuiet
	if ends {
		o.lasts.Store(false)
	}
	report := s.report(ends)
	o.mu.Unlock()
	if ends {
		o.logger().Info("limit: the store is available again", report...)
	}
}

// watch asks the store now and then while an outage lasts, so that its end is noticed and
// logged without requests too.
func (s *Store) watch() {
	defer func() {
		_ = recover() // the store: a panic in this goroutine would end the program
		if s.outage.lasts.Load() {
			s.debts.after(watchEvery*time.Microsecond, s.watch)
		}
	}()
	a := attempt{guard: s, ctx: context.Background()}
	if a.enter() {
		defer a.leave()
		s.outage.mu.Lock()
		list := []payment{{charge: s.outage.look}}
		s.outage.mu.Unlock()
		_ = a.look(list)
	}
}

// report returns how long the outage has lasted, how its decisions were made, and what they
// owe, if a line is due. The caller has locked the outage.
func (s *Store) report(due bool) (report []any) {
	if !due {
		return nil
	}
	o, b := &s.outage, &s.debts
	report = []any{"code", notice.Outage, "since", time.UnixMicro(o.began).UTC(), "for", time.Duration(o.last-o.began) * time.Microsecond}
	add := func(name string, n int64) {
		if n > 0 {
			report = append(report, name, n)
		}
	}
	for i, n := range o.modes {
		add((core.ModeLocal + core.Mode(i)).String(), n)
	}
	add("owed", b.units.Load())
	add("paid", b.paid.Load()-o.settled[0])
	add("repeated", b.repeated.Load()-o.settled[1])
	for i, m := range [...]*moment{&s.raises.lost, &s.doubts.all} {
		if m.time() >= o.began {
			report = append(report, [...]string{"lost", "doubted"}[i], m.wall())
		}
	}
	return report
}

func (o *outage) logger() *slog.Logger { return cmp.Or(o.log.To, slog.Default()) }
