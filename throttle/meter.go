package throttle

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// A meter lets the bytes of one body pass, by permits that it takes ahead of them.
// It is not safe for concurrent use, as bodies are not.
type meter struct {
	throttle *Throttle
	ctx      context.Context // of the request
	request  *http.Request   // with a context that does not end: a call is not given up
	decide   decide

	free   int64 // bytes that still pass uncounted
	permit int64 // bytes that may pass
	passed int64 // bytes so far
	length int64 // of the body; 0 if it is not known
	chunk  int64 // the largest permit to take next
	most   int64 // of want in a permit, beyond a quarter of what has passed
}

// unsentPermit is the most of a download, a frame of HTTP/2, in a permit that is more than a
// quarter of what has passed: a client may disconnect, or read none of it. The bytes of an upload
// have come before their permit is taken.
const unsentPermit = 16 << 10

// A decide decides a request that costs a number of bytes.
type decide func(r *http.Request, bytes int64) (limit.Decision, error)

func (t *Throttle) meter(r *http.Request, decide decide) *meter {
	return &meter{throttle: t, ctx: r.Context(), request: r.WithContext(context.WithoutCancel(r.Context())), decide: decide,
		free: t.options.Free, chunk: t.chunk, most: math.MaxInt64}
}

// next returns how many of so many bytes may pass now: at least one, unless want is 0. It waits for
// their slot, and returns the error of the request's context if that ends first.
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

func (m *meter) pass(n int64) {
	m.passed += n
	if m.free > 0 {
		m.free -= n
	} else {
		m.permit -= n
	}
}

// size returns how large a permit to take for so many bytes: those, and at most a quarter of what
// has passed ahead of others, so that many small ones share a permit. A length is what a client
// promises, so it only says where the body ends. The unused part of the last permit is lost.
func (m *meter) size(want int64) int64 {
	ahead := m.passed / 4
	if m.length > 0 {
		ahead = min(ahead, m.length-m.passed)
	}
	return min(m.chunk, max(ahead, min(want, m.most)))
}

// take takes n bytes of every rule, or fewer, waits for their slot, and returns how many they are.
func (m *meter) take(n int64) (int64, error) {
	for {
		if err := m.ctx.Err(); err != nil {
			return 0, err
		}
		d, err := m.decide(m.request, n)
		if err != nil {
			return 0, err
		}
		switch {
		case d.Allowed:
			return n, sleep(m.ctx, m.wait(&d))
		case d.Mode == core.ModeBarred:
			return 0, &limit.RefusedError{Decision: d}
		}
		// The queue is full for as long as queueTime. The random time keeps the
		// bodies that wait from asking again at once.
		if err := sleep(m.ctx, d.RetryAfter+rand.N(queueTime/2)); err != nil {
			return 0, err
		}
		if d.Mode == core.ModeLocal {
			n = max(1, n/2) // a process's share of the limit may be less than a permit
		}
	}
}

// wait returns how long a new permit waits for its slot, and sets how large the next
// one may be: while a burst lasts, half of what is left of it.
func (m *meter) wait(d *limit.Decision) time.Duration {
	t := m.throttle
	var wait time.Duration
	var chunk int64 = maxChunk
	i := 0
	for rule := range d.Rules() {
		// ResetAfter is when the last byte taken has passed at the rate.
		early, rate := ahead(t.buckets[i], rule.Limit)
		early -= rule.ResetAfter
		wait = max(wait, -early)
		chunk = min(chunk, bytesIn(rate, max(0, early))/2)
		i++
	}
	m.chunk = max(t.chunk, chunk)
	return wait
}

// sleep waits, or returns the error of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() // both may have come at once
}
