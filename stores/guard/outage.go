package guard

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

const logQuiet = 5_000_000 // µs without a decision made without the store, after which an outage is over

// An outage is a time in which decisions are made without the store. The Mode of
// each decision says so; a log line for each would flood the log. So a line is
// written when an outage begins, once a minute while it lasts, and when it ends.
type outage struct {
	log   *slog.Logger // nil means the default one
	last  atomic.Int64 // when something was last decided without the store; 0 after the end
	began atomic.Int64
	count atomic.Int64 // outages until now
	lines notice.Throttle
	modes [3]atomic.Int64 // the decisions in each mode from core.ModeLocal on

	blocked      atomic.Int64 // decisions made without a store that works
	blockedLines notice.Throttle
}

// add counts a decision that was made without the store.
func (o *outage) add(now int64, mode core.Mode, reason error) {
	if errors.Is(reason, core.ErrBlocked) {
		o.block(now, reason)
		return
	}
	o.modes[mode-core.ModeLocal].Add(1)
	if o.last.Swap(now) == 0 {
		o.began.Store(now)
		o.count.Add(1)
		o.logger().Warn("limit: the store is unavailable; requests are decided without it",
			"code", notice.Outage, "error", reason)
		return
	}
	if began := o.began.Load(); began == 0 || now-began < notice.Every.Microseconds() {
		return
	}
	if _, due := o.lines.Due(time.UnixMicro(now), notice.Every); due {
		o.logger().Warn("limit: the store is still unavailable", append([]any{"code", notice.Outage}, o.report(now)...)...)
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
	notice.Write(&notice.Log{To: o.log}, code, "limit: the store works, but requests are decided without it", skipped, "error", reason)
}

// answered notes that the store has decided a request.
func (o *outage) answered(now int64) {
	last := o.last.Load()
	if last == 0 || now-last < logQuiet {
		return
	}
	began := o.began.Load()
	if !o.last.CompareAndSwap(last, 0) {
		return
	}
	report := o.report(last)
	o.began.CompareAndSwap(began, 0)
	for i := range o.modes {
		o.modes[i].Store(0)
	}
	o.logger().Info("limit: the store is available again", append([]any{"code", notice.Outage}, report...)...)
}

// report returns how long the outage has lasted, and how its decisions were made.
func (o *outage) report(until int64) []any {
	report := []any{"for", time.Duration(until-o.began.Load()) * time.Microsecond}
	for i := range o.modes {
		if n := o.modes[i].Load(); n > 0 {
			report = append(report, (core.ModeLocal + core.Mode(i)).String(), n)
		}
	}
	return report
}

func (o *outage) logger() *slog.Logger {
	if o.log != nil {
		return o.log
	}
	return slog.Default() // as it is now
}
