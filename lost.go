package limit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ErrLeaseLost is wrapped by the error that [Options].Observe is told when a
// request has lost what it held under rules of [Concurrency]: see [Decision.Lost].
var ErrLeaseLost = errors.New("limit: a lease was lost")

// Lost returns a channel that is closed once something that the decision holds
// under rules of [Concurrency] is known to be lost: the request goes on, but
// counts no more, and its place may be another's. It is nil, as a channel that is
// never closed, if the decision holds nothing.
//
// It is lost when a renewal finds that the store no longer holds it (after a
// Reset of the [Store], an eviction, or a pause of this process for longer than the
// Window), or when no renewal has succeeded for the shortest Window. A store out
// of reach is no loss by itself: this process counts what it holds meanwhile, and
// admits nobody in its place. With several [Options].Instances that does not bind the
// others, and what the store has not confirmed for a Window is lost, though it was
// taken while the store was out of reach.
//
// It is told late: up to a third of the shortest Window and the length of a call
// after the fact, and a process that stands still learns it when it goes on. So it
// says when to stop, and fences off nothing. What is lost stays lost, though its
// place may be free again. A request that ends before its loss is noticed is not
// told. Release does not close the channel, unless it finds that no renewal has
// succeeded for the shortest Window.
func (d Decision) Lost() <-chan struct{} {
	if d.lease == nil {
		return nil
	}
	return d.lease.lost
}

// Lost returns a channel that is closed once one of the decisions that let a
// request through to its handler has lost what it held: see [Decision.Lost]. The
// context is that of the request. The channel is nil if nothing is held. To end
// with it what goes by a context:
//
//	ctx, cancel := context.WithCancelCause(r.Context())
//	defer cancel(nil)
//	go func() {
//		select {
//		case <-limit.Lost(ctx):
//			cancel(limit.ErrLeaseLost)
//		case <-ctx.Done():
//		}
//	}()
func Lost(ctx context.Context) <-chan struct{} {
	if l, ok := ctx.Value(lossesKey{}).(*losses); ok {
		return l.any
	}
	return nil
}

// Request returns the request that a handler is to be called with, for adapters:
// r, or if the decision holds something a copy whose context [Lost] knows.
func (d Decision) Request(r *http.Request) *http.Request {
	if d.lease == nil {
		return r
	}
	l, ok := r.Context().Value(lossesKey{}).(*losses)
	if !ok {
		l = &losses{any: make(chan struct{})}
		r = r.WithContext(context.WithValue(r.Context(), lossesKey{}, l))
	}
	d.lease.mu.Lock()
	defer d.lease.mu.Unlock()
	d.lease.request = l
	if d.lease.loss != nil {
		l.close()
	}
	return r
}

// losses are those of all decisions on one request.
type losses struct {
	any  chan struct{}
	once sync.Once
}

type lossesKey struct{}

func (l *losses) close() { l.once.Do(func() { close(l.any) }) }

// lose tells of the first loss. The caller has locked l.
func (l *lease) lose(loss error) {
	if l.loss != nil {
		return
	}
	l.loss = loss
	close(l.lost)
	if l.request != nil {
		l.request.close()
	}
}

// checkOverdue finds a loss if it is a Window since what is held was taken or
// renewed. The last problem may be nil. The caller has locked l.
func (l *lease) checkOverdue(problem error) {
	window := 3 * l.every
	if time.Since(l.renewed) < window {
		return
	}
	loss := fmt.Errorf("%w: not renewed for %v", ErrLeaseLost, window)
	if problem != nil {
		loss = fmt.Errorf("%w: %w", loss, problem)
	}
	l.lose(loss)
}

// observe has a loss told to Observe when the request releases d: its handler
// may use the request until then, and nothing of it is safe to read beside that.
func (d Decision) observe(r *http.Request) {
	if d.lease == nil {
		return
	}
	l := d.policy.limiter
	d.lease.mu.Lock()
	defer d.lease.mu.Unlock()
	d.lease.told = func(loss error) { l.failed(&l.notices.lost, "limit: a request has lost what it held", r, d, loss) }
}
