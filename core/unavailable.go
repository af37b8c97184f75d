package core

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable is wrapped by the errors of a store that cannot be reached, is too slow, or cannot
// decide for another reason of its own, never because of the charges. Whether they were taken is
// unknown, unless the store says so. Never admit a request because of any other error: a client
// could cause it.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrForgotten is wrapped by the error of a store that answers but may have lost
// its data, such as a server that was restarted. One Take returns it, and nothing
// was taken as far as the store knows. A store that several guards may share has a method
// Losses() int64 too, which counts these errors for all of them. One that they share with
// other processes has a method Lost, as redisstore has. It wraps [ErrUnavailable].
var ErrForgotten = fmt.Errorf("%w: it may have forgotten what was taken", ErrUnavailable)

// ErrOutOfReach is wrapped by the errors of a store that cannot be reached, and
// that will return [ErrForgotten] first if it has lost its data meanwhile. It
// wraps [ErrUnavailable]. Errors that wrap only ErrUnavailable promise nothing.
var ErrOutOfReach = fmt.Errorf("%w", ErrUnavailable)

// ErrBlocked is wrapped by the error of a store that works but could not decide one call, for lack
// of a connection or of a right. It says nothing about other calls. It wraps [ErrOutOfReach].
var ErrBlocked error = blocked{}

// An Unanswered is the error of a call of Take without an answer. The call may have
// taken its charges, or may take them until a time. After that they can be released.
// Find it with [errors.As].
type Unanswered struct {
	Err   error
	Until time.Time
}

func (u *Unanswered) Error() string { return u.Err.Error() }

// Unwrap returns u.Err.
func (u *Unanswered) Unwrap() error { return u.Err }

type blocked struct{}

func (blocked) Error() string { return "the store works, but could not decide this call" }
func (blocked) Unwrap() error { return ErrOutOfReach }
