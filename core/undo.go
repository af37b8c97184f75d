package core

import (
	"context"
	"errors"
)

// A Returner takes back what an admission took. Every [Store] is one.
type Returner interface {
	Release(ctx context.Context, charges []Charge) error
	Return(ctx context.Context, returns []Return) ([]Returned, error)
}

// Undo gives back everything that the admitted decision d took for charges: it releases leases and
// returns units. It is for a request that one store admits and another one refuses. After an error,
// what was taken may still count, which is safe: leases end and units expire. Of two errors, Undo
// returns the one that does not wrap [ErrUnavailable], if there is one.
func Undo(ctx context.Context, store Returner, charges []Charge, d *Decision) error {
	var leases []Charge
	var returns []Return
	for i, c := range charges {
		switch {
		case c.Cost == 0 || c.Debt: // what was used stays charged
		case c.Quota.Leases():
			leases = append(leases, c)
		default:
			returns = append(returns, d.Return(i, c))
		}
	}
	var released, returned error
	if leases != nil {
		released = store.Release(ctx, leases)
	}
	if returns != nil {
		_, returned = store.Return(ctx, returns)
	}
	if released == nil || returned != nil && errors.Is(released, ErrUnavailable) {
		return returned
	}
	return released
}
