package core

import "context"

// A Store keeps the state of quotas and changes it atomically. It is the seam between
// this library and its stores: it may change in any version.
//
// Implementations are safe for concurrent use and pass the suite in package storetest. A store that
// adds something around another one (a cache, a guard, an observer) is itself a Store.
//
// A store does not keep the slices that it is given, but may keep the strings in them. One
// that has a guard inside says so by a method Guarded() bool: limit.New then adds none.
type Store interface {
	// Take makes decisions, one after the other, at one reading of one clock. Each ask is admitted,
	// and all its charges are taken, or it is refused and none is. A refusal does not concern the
	// other asks. Later asks see what earlier ones took. All of them have at most [MaxCharges]
	// charges. Where two asks charge the same quota, the Quota of both is the same.
	//
	// A request is usually one ask. A rule that is only watched is an ask of its own
	// beside it: it is decided as if it were the only rule.
	//
	// The charges of a call may be debts, which are always admitted: see [Charge].Debt.
	// After an error of a store with several servers, some of them may have been taken.
	//
	// A refusal is a Decision, not an error. An error means that the store could not decide, and
	// concerns all asks; their decisions are undefined. Then nothing was taken, unless the error
	// comes from a context or a connection; in that case the outcome is unknown. A store that knows
	// until when such a call may still take leases returns an [Unanswered].
	//
	// Quotas may differ from those of an earlier call: a changed limit keeps what has been spent.
	Take(ctx context.Context, asks []Ask) error

	// Renew begins the life of leases anew. held[i] reports whether the lease of charges[i] was
	// still held; a lease that has ended cannot be renewed. The charges are of [Concurrency] only,
	// and at most [MaxLeaseCharges]. They may name a state and a key several times, with other ids;
	// their Cost does not matter. The call may be repeated. After an error, leases with held[i]
	// were renewed, and it is unknown whether the others were; held may be nil. A lease that was
	// not renewed for a Window has ended.
	Renew(ctx context.Context, charges []Charge) (held []bool, err error)

	// Release ends leases, of charges as Renew takes them. It does nothing to a
	// lease that is not held or has ended, so the call may be repeated.
	Release(ctx context.Context, charges []Charge) error

	// Return gives units back, one return after the other, and reports for each what came of it:
	// see [Return]. At most [MaxCharges] returns; they may name a quota several times. After an
	// error, nothing was given back, or the outcome is unknown, as with Take.
	Return(ctx context.Context, returns []Return) ([]Returned, error)

	// Reset forgets the quotas that the charges name by Policy, Rule, Variant and Key:
	// they are full again, whatever their algorithms. The rest of a charge does not
	// matter. At most [MaxCharges] charges; see [ValidateNames]. After an error the
	// outcome is unknown. It may be repeated.
	Reset(ctx context.Context, charges []Charge) error
}

// Take makes one decision on charges: it calls store.Take with one ask. A caller that
// decides often keeps its own asks, since this allocates one.
func Take(ctx context.Context, store Store, charges []Charge) (Decision, error) {
	asks := []Ask{{Charges: charges}}
	if err := store.Take(ctx, asks); err != nil {
		return Decision{}, err
	}
	return asks[0].Decision, nil
}
