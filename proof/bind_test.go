package proof

import "github.com/routelimit/limit"

// bind binds rules to a limiter. It panics if they are invalid, so that
// goroutines can call it too.
func bind(limiter *limit.Limiter, rules limit.RuleSet) *limit.Policy {
	policy, err := limiter.Policy(rules)
	if err != nil {
		panic(err)
	}
	return policy
}
