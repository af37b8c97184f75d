package core

import "errors"

// ErrUnavailable is wrapped by the errors of a store that is out of reach, too
// slow, or in no state to decide: a matter of the infrastructure, and not of
// what was asked. Whether the charges were taken is unknown, unless the store
// says so.
//
// No other error may ever be answered by admitting a request, since a client
// could cause it.
var ErrUnavailable = errors.New("the store is unavailable")
