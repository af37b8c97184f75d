package core

import "context"

// An Account is what a key owes and holds, beside its [Outcome].
type Account struct {
	Owed  int64 // units above the limit, if the algorithm is one that [Algorithm.Owes]
	Holds int64 // holds that live
	Held  int64 // units that count for them
	Next  int64 // µs until the next of them ends; 0 if there are none
	Ended int64 // holds that have ended, and whose units nobody has given back yet
}

// AccountOf returns what the store's method Account(context.Context, Charge) (Account, error) does,
// or the zero Account. The method changes nothing; the Cost does not matter. A store that wraps
// another one passes the call on.
func AccountOf(ctx context.Context, store Store, c Charge) (Account, error) {
	if s, ok := store.(interface {
		Account(context.Context, Charge) (Account, error)
	}); ok {
		return s.Account(ctx, c)
	}
	return Account{}, nil
}
