package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/routelimit/limit/core"
)

// An attempt is how one call of the guard uses the store: it enters the breaker,
// makes one or more requests, and leaves the breaker once.
type attempt struct {
	guard   *Store
	ctx     context.Context
	now     int64 // the last reading of the clock
	began   int64 // the last decision without the store, before the store was asked
	entered bool
	probe   bool   // the only attempt while the breaker is open
	result  result // the worst of its requests
}

// errOpen is the error of a call that the breaker does not let through.
var errOpen = fmt.Errorf("%w: its last calls failed or were too slow", core.ErrUnavailable)

// enter reports whether the store may be asked.
func (a *attempt) enter() bool {
	a.now = a.guard.now()
	a.guard.learn(nil, a.now) // from another guard on the store
	a.entered, a.probe = a.guard.breaker.enter(a.now)
	return a.entered
}

// leave tells the breaker the result. A store that panics has none.
func (a *attempt) leave() {
	if a.entered {
		a.guard.breaker.leave(a.now, a.probe, a.result)
	}
}

// ended notes how a request ended that began when the clock was last read.
func (a *attempt) ended(err error) {
	began := a.now
	a.now = a.guard.now()
	a.guard.learn(err, a.now)
	if a.now-began > sluggish {
		a.guard.debts.waited.advance(a.now)
	}
	a.result = max(a.result, a.judge(a.now-began, err))
}

func (a *attempt) ask(asks []core.Ask) error {
	err := a.guard.store.Take(a.ctx, asks)
	a.ended(err)
	if err == nil {
		a.guard.answered(a.now)
		a.guard.census.look(a.guard, a.now)
	}
	return err
}

// judge returns what a request that took so long says about the store.
func (a *attempt) judge(took int64, err error) result {
	switch {
	case err == nil && took <= a.guard.slow:
		return answered
	case errors.Is(err, core.ErrForgotten):
		return silent // the store is back: the next request may ask it at once
	case errors.Is(err, core.ErrBlocked):
		return silent // other calls get through
	case unavailable(a.ctx, err):
		return failed
	case err != nil && !errors.Is(a.ctx.Err(), context.DeadlineExceeded):
		return silent
	case took > a.guard.slow:
		return slow // or this process had no time to see the answer
	}
	return silent
}

// try asks the store by a function that makes one request.
func (s *Store) try(ctx context.Context, request func() error) error {
	a := attempt{guard: s, ctx: ctx}
	if !a.enter() {
		s.doubts.failed(a.now)
		return errOpen
	}
	return a.try(request)
}

// try asks the store by a function that makes one request. The attempt has entered.
func (a *attempt) try(request func() error) error {
	defer a.leave()
	err := request()
	a.ended(err)
	if unavailable(a.ctx, err) {
		a.guard.doubts.failed(a.now)
	}
	return err
}
