package guard

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
)

const (
	logEvery = 60_000_000 // µs, while an outage lasts
	logQuiet = 5_000_000  // µs without a decision made alone, after which it is over
)

// An outage is a time in which decisions are made without the store. None begins
// unlogged. A decision without the store would fill the log, and says in its Mode what
// it is: so a line when an outage begins, one a minute, and one when it is over.
type outage struct {
	log    *slog.Logger // nil means the default one
	last   atomic.Int64 // when something was last decided without the store; 0 if that is over
	began  atomic.Int64
	logged atomic.Int64    // when a line was last written
	modes  [3]atomic.Int64 // the decisions in each mode from core.ModeLocal on
}

// add counts a decision that was made without the store.
func (o *outage) add(now int64, mode core.Mode, reason error) {
	o.modes[mode-core.ModeLocal].Add(1)
	if o.last.Swap(now) == 0 {
		o.began.Store(now)
		o.logged.Store(now)
		o.logger().Warn("limit: rules are decided without the store", "error", reason)
		return
	}
	if at := o.logged.Load(); now-at >= logEvery && o.logged.CompareAndSwap(at, now) {
		o.logger().Warn("limit: rules are still decided without the store", o.story(now)...)
	}
}

// answered hears that the store has decided.
func (o *outage) answered(now func() int64) {
	last := o.last.Load()
	if last == 0 || now()-last < logQuiet || !o.last.CompareAndSwap(last, 0) {
		return
	}
	story := o.story(last)
	for i := range o.modes {
		o.modes[i].Store(0)
	}
	o.logger().Info("limit: the store decides again", story...)
}

func (o *outage) story(until int64) []any {
	story := []any{"for", time.Duration(until-o.began.Load()) * time.Microsecond}
	for i := range o.modes {
		if n := o.modes[i].Load(); n > 0 {
			story = append(story, (core.ModeLocal + core.Mode(i)).String(), n)
		}
	}
	return story
}

func (o *outage) logger() *slog.Logger {
	if o.log != nil {
		return o.log
	}
	return slog.Default() // as it is now
}
