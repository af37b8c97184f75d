package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/routelimit/limit/core"
)

// A meter lets the bytes of one body pass, by permits that it takes from the
// store ahead of them. It is not safe for concurrent use, as bodies are not.
type meter struct {
	throttler *Throttler
	request   *http.Request
	policy    string
	charges   []core.Charge

	free   int64 // bytes that still pass uncounted
	permit int64 // bytes that may pass
	passed int64 // bytes so far
	length int64 // of the whole body; 0 if that is not known
	chunk  int64 // the largest permit to take next
}

// meters returns a meter for each of n bodies of a request.
func (t *Throttler) meters(call *Call, n int) []meter {
	p := t.policy
	var keys [core.MaxCharges]string
	for i := range p.keys {
		keys[i] = p.keys[i].resolve(httpSource{call, &p.limiter.options})
	}
	route := p.route(call.Method, call.Pattern)
	meters := make([]meter, n)
	for i := range meters {
		charges := make([]core.Charge, len(route.charges))
		copy(charges, route.charges)
		for j := range charges {
			charges[j].Key = keys[p.keyOf[j]]
		}
		meters[i] = meter{throttler: t, request: call.Request, policy: route.policy, charges: charges,
			free: t.options.Free, chunk: t.chunk}
	}
	return meters
}

// next returns how many of so many bytes may pass now: at least one, unless
// want is 0. It waits for their turn, and returns the error of the request's
// context if that ends before.
func (m *meter) next(want int64) (int64, error) {
	switch {
	case want <= 0:
		return want, nil
	case m.free > 0:
		return min(want, m.free), nil
	case m.permit == 0:
		n, err := m.take(m.size(want))
		if err != nil {
			return 0, err
		}
		m.permit = n
	}
	return min(want, m.permit), nil
}

// pass counts bytes that next has let through.
func (m *meter) pass(n int64) {
	m.passed += n
	if m.free > 0 {
		m.free -= n
	} else {
		m.permit -= n
	}
}

// size returns how large a permit to take for so many bytes: as large as the
// rest of the body, if its length is known, and otherwise for a quarter of what
// has passed. What is left of the last permit is lost, and so is at most that.
func (m *meter) size(want int64) int64 {
	ahead := m.passed / 4
	if m.length > 0 {
		ahead = m.length - m.passed
	}
	return min(m.chunk, max(want, ahead))
}

// take takes n bytes of every rule, or fewer, waits for their turn, and returns
// how many they are.
func (m *meter) take(n int64) (int64, error) {
	ctx := m.request.Context()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for i := range m.charges {
			m.charges[i].Cost = n
		}
		d, err := m.ask(ctx)
		if err != nil {
			return 0, err
		}
		if !d.Allowed {
			// The line is full, for as long as lineTime: it does not run empty
			// meanwhile, and many who wait do not come again at once.
			again := max(0, micros(d.RetryAfter())) + rand.N(lineTime/2*time.Microsecond)
			if err := sleep(ctx, again); err != nil {
				return 0, err
			}
			if d.Mode == core.ModeLocal {
				n = max(1, n/2) // the share of one of many instances may be less than a permit
			}
			continue
		}
		return n, sleep(ctx, m.turn(&d))
	}
}

// turn returns how long a permit that has just been taken waits for its turn,
// and says how large the next one may be: while a burst lasts, half of what is
// left of it.
func (m *meter) turn(d *core.Decision) time.Duration {
	t := m.throttler
	var wait, chunk int64 = 0, maxChunk
	for i, o := range d.Outcomes() {
		// ResetAfter is when the last byte taken has passed at the rate.
		early := t.bursts[i] - o.ResetAfter
		wait = max(wait, -early)
		q := &m.charges[i].Quota
		chunk = min(chunk, muldiv(max(0, early), q.Limit, 2*q.Window))
	}
	m.chunk = max(t.chunk, chunk)
	return micros(wait)
}

// sleep waits, or returns the error of ctx if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() // both may have come at once
}

// ask asks the store. What it cannot decide ends the body: while it is out of
// reach the guard around it decides, and what remains a client may have caused.
func (m *meter) ask(ctx context.Context) (core.Decision, error) {
	l := m.throttler.policy.limiter
	d, err := l.store.Take(context.WithoutCancel(ctx), m.policy, m.charges)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUndecided, err)
		l.failed(&l.notices.undecided, "limit: a part of a body could not be decided", m.request, Decision{}, err)
	}
	return d, err
}
