package guard

import "github.com/routelimit/limit/core"

// of returns copies of charges that are of a policy.
func of(policy string, charges []core.Charge) []core.Charge {
	copied := make([]core.Charge, len(charges))
	for i, c := range charges {
		c.Policy = policy
		copied[i] = c
	}
	return copied
}
