package storetest

import (
	"context"
	"slices"

	"github.com/routelimit/limit/core"
)

// The functions of this file are for tests whose charges are of one policy.

// Of returns the charges as those of a policy.
func Of(policy string, charges ...core.Charge) []core.Charge {
	list := slices.Clone(charges)
	for i := range list {
		list[i].Policy = policy
	}
	return list
}

// Take makes one decision on charges of a policy.
func Take(ctx context.Context, store core.Store, policy string, charges []core.Charge) (core.Decision, error) {
	return core.Take(ctx, store, Of(policy, charges...))
}

// Renew renews leases of a policy.
func Renew(ctx context.Context, store core.Store, policy string, charges []core.Charge) ([]bool, error) {
	return store.Renew(ctx, Of(policy, charges...))
}

// Release releases leases of a policy.
func Release(ctx context.Context, store core.Store, policy string, charges []core.Charge) error {
	return store.Release(ctx, Of(policy, charges...))
}

// Return gives units of a policy back, and returns how many of each return.
func Return(ctx context.Context, store core.Store, policy string, returns []core.Return) ([]int64, error) {
	list := slices.Clone(returns)
	for i := range list {
		list[i].Policy = policy
	}
	results, err := store.Return(ctx, list)
	if err != nil {
		return nil, err
	}
	units := make([]int64, len(results))
	for i := range results {
		units[i] = results[i].Units
	}
	return units, nil
}

// Reset resets a key of a rule of a policy.
func Reset(ctx context.Context, store core.Store, policy, rule, key string) error {
	return store.Reset(ctx, []core.Charge{{Policy: policy, Rule: rule, Key: key}})
}
