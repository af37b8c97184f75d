package proof

import (
	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// bind binds rules to a limiter. It panics if they are invalid, so that
// goroutines can call it too.
func bind(limiter *limit.Limiter, rules limit.RuleSet) *limit.Policy {
	policy, err := limiter.Policy(rules)
	if err != nil {
		panic(err)
	}
	return policy
}

// redisKey returns the key of Redis that holds the state of a quota.
func redisKey(prefix, policy, rule, key string) string {
	return lua.Key(prefix, &core.Charge{Policy: policy, Rule: rule, Key: key})
}
