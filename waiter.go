package limit

import (
	"context"
	"fmt"
	"time"
)

// Wait takes as [Limiter.Take] does, but waits until the rules admit. Who waits
// holds nothing: each try takes of every rule or of none, and a wait that ends
// without being admitted has taken nothing. Behind a [Queue] it waits for the
// turn as well; what it took for one that it does not wait for stays taken, as
// in [Decision.Wait].
//
// The waits of a Limiter for a key are served in the order in which they came,
// so that a large cost is not overtaken by small ones; who waits for another key
// is in nobody's way. Those for whom there is room ask the store side by side: should
// others take it from between them, a later one may pass an earlier one of them,
// which is then the first for the next room. Take, handlers and other processes do not stand in line,
// and may come first.
//
// A decision without an error is admitted. The error is that of ctx if it ends
// before. It is a [*RefusedError] at once when it is certain that the rules will
// not admit before the deadline of ctx; its RetryAfter does not count those who
// stand in line. It says what is wrong with the rules or the keys, or wraps
// [ErrUndecided] if the store fails. A ctx that ends while the store decides
// does not end that: Wait then returns what was decided, since an admission has
// been paid for.
//
// It starts no goroutine, and a limiter remembers only who waits.
func (l *Limiter) Wait(ctx context.Context, rules RuleSet, keys Keys) (Decision, error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, err
	}
	if err := p.costless(); err != nil {
		return Decision{}, err
	}
	return l.wait(ctx, p, keys, 1)
}

// WaitN is [Limiter.Wait] for a request that costs n units of each rule. An n of
// 0 does not wait. One that is negative, or above what a rule can ever hold, is
// an error at once.
func (l *Limiter) WaitN(ctx context.Context, rules RuleSet, keys Keys, n int64) (Decision, error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, err
	}
	if n, err = validCost(n); err != nil {
		return Decision{}, &RuleError{Problem: err.Error()}
	}
	for i, most := range p.most {
		if n > most {
			return Decision{}, &RuleError{Rule: p.set.rules[i].String(), Problem: fmt.Sprintf(
				"cost %d: it never has room for more than %d: write less", n, most)}
		}
	}
	return l.wait(ctx, p, keys, n)
}

// A waiter is one call of Wait. What the store is called with is in it too, and
// needs no allocation of its own.
type waiter struct {
	place

	ctx     context.Context
	source  keysSource
	calling detached
	timer   *time.Timer // of one who has been first in a line
}

// detached has the values of a context, but does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

func (l *Limiter) wait(ctx context.Context, p *Policy, keys Keys, n int64) (Decision, error) {
	w := &waiter{
		place:   place{ticket: l.lines.came.Add(1), cost: n},
		ctx:     ctx,
		source:  keysSource{keys, l.options.Proxies.IPv6Prefix, n},
		calling: detached{ctx},
	}
	defer l.lines.leave(w, nil) // deferred: a recovered panic of the store must not hold up a line
	for {
		if err := l.await(p, w); err != nil {
			return Decision{}, err
		}
		d, err := p.take(&w.calling, p.named, &w.source)
		if err != nil {
			return Decision{}, err
		}
		if d.Allowed {
			l.lines.leave(w, &d.core)
			if err := d.Wait(ctx); err != nil {
				d.Release()
				return Decision{}, err
			}
			return d, nil
		}
		due := time.Now().Add(d.RetryAfter)
		if d.RetryAfter == 0 || w.late(due) {
			l.lines.leave(w, &d.core)
			return Decision{}, &RefusedError{Decision: d}
		}
		w.name(p)
		l.lines.stand(w, &d.core, due)
	}
}

// await returns nil when it is for w to try.
func (l *Limiter) await(p *Policy, w *waiter) error {
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if w.line == nil && (w.cost == 0 || l.lines.waiting.Load() == 0) {
			return nil
		}
		w.name(p)
		due, mayAsk := l.lines.next(w)
		if mayAsk && !due.After(time.Now()) {
			return nil
		}
		if w.late(due) {
			return l.tooLate(p, w, due)
		}
		w.sleep(due, mayAsk)
	}
}

// name gives w what it needs to stand in lines.
func (w *waiter) name(p *Policy) {
	if w.ids != nil {
		return
	}
	w.wake = make(chan struct{}, 1)
	w.ids = make([]lineID, len(p.keyOf))
	for i, k := range p.keyOf {
		w.ids[i] = lineID{p.named.policy, p.names[i], p.keys[k].resolve(&w.source)}
	}
}

// late reports whether the context will have ended at a time.
func (w *waiter) late(due time.Time) bool {
	deadline, ok := w.ctx.Deadline()
	return ok && !due.Before(deadline)
}

// sleep sleeps until w is woken, its context ends or, if timed, its time has
// come.
func (w *waiter) sleep(due time.Time, timed bool) {
	var rings <-chan time.Time
	if timed {
		if w.timer == nil {
			w.timer = time.NewTimer(time.Until(due))
		} else {
			w.timer.Reset(time.Until(due))
		}
		defer w.timer.Stop()
		rings = w.timer.C
	}
	select {
	case <-rings:
	case <-w.wake:
	case <-w.ctx.Done():
	}
}

// tooLate returns the refusal of w, which stands in a line and cannot be
// admitted before due. The store has not been asked for it, and so is asked now
// what is left, with a cost of 0.
func (l *Limiter) tooLate(p *Policy, w *waiter, due time.Time) error {
	rule := w.line.rule
	l.lines.leave(w, nil)
	looking := w.source
	looking.n = 0
	d, err := p.take(&w.calling, p.named, looking)
	if err != nil {
		return err
	}
	for i := range d.core.Outcomes() {
		o := &d.core.Outcomes()[i]
		if o.Remaining < w.cost {
			o.RetryAfter, o.MoreAfter = max(1, o.MoreAfter), 0
		}
		if i == rule {
			until := time.Until(due) + time.Microsecond - 1
			o.RetryAfter, o.MoreAfter = max(1, o.RetryAfter, until.Microseconds()), 0
		}
	}
	d.core.Allowed = false
	return &RefusedError{Decision: newDecision(p, p.named, d.core)}
}
