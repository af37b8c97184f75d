package core

import (
	"errors"
	"fmt"
)

// ErrUnavailable is wrapped by the errors of a store that is out of reach, too
// slow, or in no state to decide: a matter of the infrastructure, and not of
// what was asked. Whether the charges were taken is unknown, unless the store
// says so.
//
// No other error may ever be answered by admitting a request, since a client
// could cause it.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrForgotten is wrapped by the error of a store that answers, but may have lost
// what it knew, as one that was started anew. A Take tells it once, and it wraps
// [ErrUnavailable]. Nothing was taken, as far as the store knows.
var ErrForgotten = fmt.Errorf("%w: it may have forgotten what was taken", ErrUnavailable)

// ErrOutOfReach is wrapped by the errors of a store that will tell by
// [ErrForgotten], before anything else, should it have lost meanwhile what it knew.
// It wraps [ErrUnavailable]; errors that wrap only that one promise nothing.
var ErrOutOfReach error = outOfReach{}

type outOfReach struct{}

func (outOfReach) Error() string { return ErrUnavailable.Error() }
func (outOfReach) Unwrap() error { return ErrUnavailable }
