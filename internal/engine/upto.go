package engine

import (
	"context"

	"github.com/routelimit/limit/core"
)

// mostTries is how often a request for as many units as there are asks the store at most.
const mostTries = 4

// DecideUpTo is [Run.Decide] for a request that takes fewer units than its cost if there
// are fewer, but at least one, and as many of each rule. It asks for less after each
// refusal: for what the store said was left, and at last for one. Each time it takes from
// every rule or from none, so it never takes more than there is. Where others take in
// between, it takes fewer units than it could have. It returns how many it took.
func (r *Run) DecideUpTo(ctx, calling context.Context, cost int64, d *Decision) (taken int64, err error) {
	r.calling, cost = calling, min(cost, core.MaxCost)
	r.arrange()
	charges := r.asks[0].Charges
	for i := range charges {
		if c := &charges[i]; c.Quota.Spends() {
			cost = min(cost, max(1, c.Quota.Capacity()-c.Reserve))
		}
	}
	for _, a := range r.asks[1:] {
		a.Charges[0].Cost = cost
	}
	for try := 1; ; try++ {
		for i := range charges {
			charges[i].Cost = cost
		}
		if err := r.attempt(); err != nil {
			return 0, err
		}
		*d = r.result
		if d.Allowed || cost == 1 {
			// A slot that comes too late was taken, and must not be tried again.
			if d.Delay > 0 && d.refuseLate(ctx) || !d.Allowed {
				return 0, nil
			}
			return cost, nil
		}
		left := cost - 1 // strictly fewer, whatever the store says
		for i := range charges {
			if c := &charges[i]; c.Quota.Spends() {
				left = min(left, r.asks[0].Decision.Outcomes()[i].Remaining-c.Reserve)
			}
		}
		if cost = max(1, left); try+1 >= mostTries {
			cost = 1
		}
	}
}
