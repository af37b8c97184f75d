package replay

import (
	"context"
	"slices"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// A layered store notes what policies take for a request, since the refusal of a later one
// gives it back.
type layered struct {
	*memstore.Store
	deciding *bound
	taken    []core.Return // for the current request
}

// Guarded keeps [limit.New] from adding a guard: memory does not fail.
func (l *layered) Guarded() bool { return true }

// Take implements [core.Store].
func (l *layered) Take(ctx context.Context, asks []core.Ask) error {
	if err := l.Store.Take(ctx, asks); err != nil {
		return err
	}
	for i := range asks {
		a := &asks[i]
		for j, c := range a.Charges {
			if a.Decision.Allowed && c.Cost > 0 && !l.deciding.staysCharged(c.Rule) {
				l.taken = append(l.taken, a.Decision.Return(j, c))
			}
		}
	}
	return nil
}

// giveBack gives back the first n units that were taken for the request of outer policies.
func (l *layered) giveBack(outer []*bound, n int) {
	for _, b := range outer {
		b.GivenBack++
	}
	for some := range slices.Chunk(l.taken[:n], core.MaxCharges) {
		_, _ = l.Return(context.Background(), some) // memory does not fail
	}
}

// staysCharged reports whether the rule of a name keeps what it took if a later policy
// refuses.
func (b *bound) staysCharged(rule string) bool {
	return slices.ContainsFunc(b.named(rule), func(c *ruleCount) bool { return c.charged })
}

// staysCharged reports whether a rule keeps what it took, as in the limiter.
func staysCharged(r limit.Rule) bool {
	_, distinct := r.Algorithm.(limit.Distinct)
	return r.Attempts || r.Settle != rules.Settlement{} || bans(r) || distinct
}
