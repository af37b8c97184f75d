// Package engine runs plans: it decides requests on a store, lets them wait, holds their
// leases and settles what they really cost. It knows charges, keys and times. It knows no
// HTTP, no header, and nothing of the declarations that a [Plan] was compiled from.
//
// A request is a [Run] of a plan. The caller fills in its keys, costs and terms, and
// [Run.Decide] or [Run.Wait] makes a [Decision] of it, which outlives the run.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/waiting"
)

// The errors that package limit shows its users.
var (
	ErrUndecided = errors.New("limit: could not decide")
	ErrSettled   = errors.New("limit: nothing to settle")
	ErrLeaseLost = errors.New("limit: a lease was lost")
)

var (
	errNothing = fmt.Errorf("%w: the request was refused, or says neither Settle nor Hold", ErrSettled)
	errEnded   = fmt.Errorf("%w: the request has been settled, or will be as soon as the store answers", ErrSettled)
)

// An Engine runs plans on one store. It is safe for concurrent use once its fields are
// set.
type Engine struct {
	Store  core.Store
	Holder core.Holder // the store, if it can hold

	// Bind returns what decides an ask of charges as Take of the store does, but faster, as it
	// knows all of them but Key, Cost and ID; nil if there is nothing. Bind itself may be nil.
	Bind func([]core.Charge) func(context.Context, *core.Ask) error

	InMemory bool // whether the store answers at once and cannot fail
	Queues   waiting.Queues
	Timed    atomic.Bool // whether decisions have a Latency

	Forgiven atomic.Int64 // units that settlements did not take, since keys would have owed too much
	Ended    atomic.Int64 // unsettled holds of which this process has given back what they took
	Unheld   atomic.Int64 // admitted requests that the store could not hold

	reserved, settled atomic.Int64
	plans             atomic.Uint64 // made so far
}

// Reservations returns how many reservations were admitted, and how many of them were
// settled or given back.
func (e *Engine) Reservations() (reserved, settled int64) {
	settled = e.settled.Load() // first, so that it is never above reserved
	return e.reserved.Load(), settled
}

// Refilled has a caller that waits for a key ask the store at once.
func (e *Engine) Refilled(c *core.Charge) { e.Queues.Refilled(quotaOf(c)) }

// latencySample is how many decisions in memory there are for each whose time is taken:
// reading the clock takes a quarter of their time.
const latencySample = 16

// epoch is a time to measure from: time.Since reads one clock, and time.Now two.
var epoch = time.Now()

// timed reports whether the next decision is measured.
func (e *Engine) timed() bool {
	return e.Timed.Load() && (!e.InMemory || rand.Uint32()%latencySample == 0)
}
