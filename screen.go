package limit

import (
	"net/http"
	"strconv"
	"time"
)

// screen decides a request that no rule is asked about: it admits one that
// [Options].Exempt exempts, and refuses one that [Options].Bar bars. It reports
// whether it has decided.
func (l *Limiter) screen(d *Decision, r *http.Request, route *route) bool {
	o := &l.options
	switch {
	case o.Exempt != nil && o.Exempt(r):
		d.Allowed, d.Mode = true, ModeExempt
	case o.Bar != nil:
		if d.RetryAfter = max(0, o.Bar(r)); d.RetryAfter == 0 {
			return false
		}
		d.Mode = ModeBarred
	default:
		return false
	}
	d.At = time.Now()
	d.route = route // and no policy, since the decision has no rules
	return true
}

// screened reports whether the decision is one of screen.
func (d *Decision) screened() bool { return d.Mode == ModeExempt || d.Mode == ModeBarred }

// serveScreened is the end of [Adapter.Serve] for a screened request.
func serveScreened(w http.ResponseWriter, r *http.Request, from framework, d *Decision) error {
	if d.Allowed {
		_, err := from.next(r)
		return err
	}
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	if d.RetryAfter != Never {
		h["Retry-After"] = []string{strconv.FormatInt(d.retrySeconds(), 10)}
	}
	return from.answer(w, r, &RefusedError{Decision: *d})
}
