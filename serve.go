package limit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/door"
	"github.com/routelimit/limit/internal/engine"
	"github.com/routelimit/limit/internal/response"
	"github.com/routelimit/limit/rules"
)

// serve decides a request, and answers it or calls what is behind the rules. L is new.
func (l *layer) serve(w http.ResponseWriter, r *http.Request, from door.Framework, given *Request) error {
	l.enter(r, from, given)
	l.w, l.header = w, w.Header()
	err := l.decide(true)
	if err != nil {
		err = l.fail(w, err)
	} else {
		err = l.carryOut(w)
	}
	l.leave()
	return err
}

// carryOut calls the handler of a request that was decided, or answers it.
func (l *layer) carryOut(w http.ResponseWriter) error {
	defer func() { // also if the handler panics, or Observe before it: what is held then ends by itself
		l.Decision.of.Abandon()
		if l.outer != nil && l.held.Keep() { // served, but a part beside it may have been refused meanwhile
			l.takeAgain()
		}
		l.keep()
	}()
	if !l.Decision.Allowed {
		return l.refuse(w)
	}
	return l.admit(w)
}

// fail answers a request that could not be decided, or whose client has left.
func (l *layer) fail(w http.ResponseWriter, err error) error {
	l.giveBack()
	if !errors.Is(err, ErrUndecided) {
		w.WriteHeader(statusClientClosed)
		return err
	}
	l.version.limiter.failed(undecidedRequest, l.request, Decision{}, err)
	l.header["Cache-Control"], l.header["Retry-After"] = response.NoStore, []string{"1"}
	return l.answer(w, err)
}

// refuse answers a refused request as its rules say.
func (l *layer) refuse(w http.ResponseWriter) error {
	d := &l.Decision
	refusal := d.refusal()
	if refusal != nil {
		d.outcome = outcomeOf(refusal)
	}
	l.noticeTwice() // a limit of 1 admits no request that is charged twice
	if served := d.outcome == degraded; served {
		l.takeAgain()
	} else if l.outer != nil {
		l.giveBack()
	}
	l.version.limiter.notify(l.request, d, nil)
	refused, room := l.refused()
	l.setHeaders(w.Header(), room.values[:0], room.text[:0])
	switch {
	case d.outcome == answered:
		return l.answer(w, refused)
	case d.outcome == redirected:
		w.Header()["Location"] = []string{refusal.Redirect}
		w.WriteHeader(cmp.Or(refusal.Status, http.StatusSeeOther))
		return refused
	}
	r := l.pass()
	if refusal.Fallback == nil {
		_, err := l.next(w, r)
		return err
	}
	response.WithDefault(w, http.StatusOK, func(w http.ResponseWriter) { refusal.Fallback.ServeHTTP(w, r) })
	return refused
}

// A refusedRoom has room for the values of the headers of a refusal.
type refusedRoom struct {
	values [2]string
	text   [64]byte
}

// refused returns what a refusal leaves to the program: its error, and room for its headers, in
// one allocation. Nothing keeps the error of net/http, which has no log of errors.
func (l *layer) refused() (*RefusedError, *refusedRoom) {
	if _, unlogged := l.framework.(*exchange); unlogged {
		return &l.RefusedError, new(refusedRoom)
	}
	left := &struct {
		RefusedError
		refusedRoom
	}{RefusedError: RefusedError{Decision: l.Decision}}
	return &left.RefusedError, &left.refusedRoom
}

// admit sets the headers of an admitted request and calls its handler, once its slot has come.
// It settles the request when the handler has returned or panicked.
func (l *layer) admit(w http.ResponseWriter) error {
	d, status := &l.Decision, 0 // until the handler returns
	l.version.limiter.notify(l.request, d, nil)
	if d.Mode != core.ModeExempt {
		values, text := l.open()
		l.setHeaders(w.Header(), values, text)
		if d.of.Watched != 0 {
			d.setMarks(w.Header())
		}
	}
	if d.Delay > 0 || d.of.Settles() || d.of.Holds() {
		defer func() { l.done(status) }()
		if err := d.Wait(l.request.Context()); err != nil {
			status = statusClientClosed
			l.giveBack()
			l.held.End() // it is not served
			w.WriteHeader(status)
			return err
		}
	}
	l.noticeTwice()
	l.takeAgain()
	r := l.pass()
	if l.userless {
		defer l.noticeLateUser()
	}
	var err error
	status, err = l.next(w, r)
	return err
}

// What a request is answered with is known when its response begins, and that may be
// after Next: frameworks answer the errors of handlers outside the rules. One Recorder
// watches the response of a request for all sets that settle by its status.

// next runs the handler, and finds the Recorder of the response: the one of a set around
// this one, or a new one.
func (l *layer) next(w http.ResponseWriter, r *http.Request) (status int, err error) {
	from := l.framework
	if !l.version.settles || from.RPC() {
		return from.Next(r)
	}
	if l.recorder = response.RecorderOf(r.Context(), w); l.recorder != nil {
		return from.Next(r)
	}
	if l.recorder = from.Record(); l.recorder == nil {
		return from.Next(r)
	}
	status, err = from.Next(response.WithRecorder(r, l.recorder))
	if status != 0 && l.recorder.Status() == 0 {
		l.recorder.AnsweredAtEnd(r.Context(), max(status, http.StatusOK)) // which net/http sends after informational ones
	}
	return status, err
}

// statusClientClosed is what logs show for a client that disconnected while it
// waited. It is nginx's "client closed request"; no client reads it.
const statusClientClosed = 499

// pass returns the request for what is behind the rules.
func (l *layer) pass() *http.Request {
	d := &l.Decision
	if d.Waited > 0 && l.arrived == nil {
		arrived := time.Now().Add(-d.Waited)
		l.arrived = &arrived
	}
	if d.of.Holds() {
		if d.loss == nil {
			d.loss = &engine.Loss{Lost: make(chan struct{})}
		}
		d.of.OnLoss(d.loss.Close, l.reportLoss)
		l.shared = true
	}
	if l.passage == nil {
		l.open()
	}
	l.passage.request = *l.request.WithContext(l.passage)
	return &l.passage.request
}

// reportLoss reports a lost lease to Observe once the request is done: until then the
// handler may use it, and it is not safe to read beside that.
func (l *layer) reportLoss(err error) {
	l.version.limiter.failed(lostLease, l.request, l.Decision, err)
}

// done ends an admitted request when its handler has returned a status, or has panicked
// with the status 0: it releases the leases, and settles by the answer, now or once there
// is one. Without an answer the request stays charged, apart from rules of which the handler has
// said what it used.
func (l *layer) done(status int) {
	d := &l.Decision
	defer d.of.Release() // also what a settlement has not released
	_, uses := d.of.Used()
	if !l.version.settles && !uses && !l.holds() || !d.of.Settles() {
		return
	}
	if l.recorder != nil {
		status = l.recorder.Status()
	}
	switch {
	case status != 0 || uses || l.holds(): // an answer may never come
		l.settle(status)
	case l.recorder != nil:
		l.shared = true
		l.recorder.Then(l.settle)
	}
}

// settle settles the rules of which the handler has said what it used, and, by the status of
// the response if there is one, those that have a [Rule].Settle. It may wait up to a second for
// the store.
func (l *layer) settle(status int) {
	p := l.version
	used, _ := l.Decision.of.Used()
	var invalid error
	err := l.Decision.correct(l.request.Context(), true, func(i int, charged int64) int64 {
		settle := &p.list[i].Settle
		switch {
		case used[i] != engine.Unsaid:
			return used[i]
		case status == 0 || *settle == (rules.Settlement{}):
			return charged
		}
		n := settle.Units(l.request, status)
		switch {
		case n == rules.AsCharged && p.rules[i].Charge.Quota.Bars():
			return max(1, charged) // a strike
		case n == rules.AsCharged:
			return charged
		}
		n, err := validCost(n)
		if err != nil {
			invalid = errors.Join(invalid, fmt.Errorf("%w: rule %q: settled: %w", ErrUndecided, p.names[i], err))
			return charged
		}
		return n
	})
	if err := errors.Join(err, invalid); err != nil && !errors.Is(err, ErrSettled) {
		l.version.limiter.failed(unsettledRequest, l.request, l.Decision, err)
	}
}

// screen decides a request that no rule is asked about: it admits one that
// [Options].Exempt exempts, and refuses one that [Options].Bar bars. It reports whether
// it has decided.
func (l *layer) screen() bool {
	o, d := &l.version.limiter.options, &l.Decision
	*d = Decision{loss: d.loss} // without a version, since the decision has no rules
	c := Client{l.request, l.version.limiter, l}
	switch {
	case o.Exempt != nil && o.Exempt(c):
		d.Allowed, d.Mode = true, core.ModeExempt
	case o.Bar != nil:
		if d.RetryAfter = max(0, o.Bar(c)); d.RetryAfter == 0 {
			return false
		}
		d.Mode = core.ModeBarred
	default:
		return false
	}
	d.Policy, d.At = l.route.name, time.Now()
	return true
}
