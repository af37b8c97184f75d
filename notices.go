package limit

import (
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Notices are the lines that a limiter writes to its log, apart from those of its
// guard, about what requests can cause as often as they like.
type notices struct {
	undecided, unsettled, lost, overflow, doubled notice

	quotas sync.Map // the policy that charges it, of each quota of an unnamed one
}

// noticeEvery bounds what clients can have written: a line of each kind.
const noticeEvery = time.Minute

// A notice is a line that is written at most once every noticeEvery. The zero notice
// is ready to use.
type notice struct {
	last    atomic.Pointer[time.Time]
	skipped atomic.Int64 // since then
}

// due reports whether the line is to be written now, by this caller alone. Only then
// does it, and what the caller makes for the line, allocate: others are on the way of
// a request.
func (n *notice) due() bool {
	now, last := time.Now(), n.last.Load()
	if last != nil && now.Sub(*last) < noticeEvery || !n.claim(last, now) {
		n.skipped.Add(1)
		return false
	}
	return true
}

func (n *notice) claim(last *time.Time, now time.Time) bool { return n.last.CompareAndSwap(last, &now) }

// warn writes the line, which is due.
func (n *notice) warn(log *slog.Logger, text string, args ...any) {
	if skipped := n.skipped.Swap(0); skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	log.Warn(text, args...)
}

func (l *Limiter) log() *slog.Logger {
	if l.options.Log != nil {
		return l.options.Log
	}
	return slog.Default() // as it is now
}

// failed logs an error of a request, and has Observe told.
func (l *Limiter) failed(n *notice, text string, r *http.Request, d Decision, err error) {
	if n.due() {
		n.warn(l.log(), text, "error", err)
	}
	if l.options.Observe != nil {
		l.options.Observe(r, d, err)
	}
}

// noticeDoubled warns where another unnamed policy charges a quota of this one: one
// on the engine and one on the route, say, which both charge each request.
func (p *Policy) noticeDoubled(r *route) {
	l := p.limiter
	for _, c := range r.charges {
		other, found := l.notices.quotas.LoadOrStore([2]string{r.policy, c.Rule}, p)
		if found && other != p && l.notices.doubled.due() {
			l.notices.doubled.warn(l.log(), "limit: two rule sets charge one quota: give one of the rules another Name, or remove one",
				"route", r.policy, "rule", c.Rule)
		}
	}
}

// noticeHandler warns if it is called while a request is served.
func (l *Limiter) noticeHandler() {
	var callers [256]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); frame.Function == "net/http.serverHandler.ServeHTTP" {
			l.log().Warn("limit: New is called while a request is served: what a limiter of its own knows is forgotten with it: make one for the program")
			return
		}
	}
}
