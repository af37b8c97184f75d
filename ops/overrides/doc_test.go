package overrides_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/overrides"
)

// TestSetKeys runs the program of the package documentation, and sets overrides that no
// request would meet.
func TestSetKeys(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: redistest.Launch(t).Addr}))
	ctx := t.Context()
	rules := limit.Named("api", limit.PerUser(time.Hour, 1000), limit.PerIP(time.Minute, 60))
	o := overrides.New(ctx, control.New(client, nil), &overrides.Options{
		Rules: func(policy, rule string) bool {
			return policy == "api" && slices.ContainsFunc(rules.Rules(), func(r limit.Rule) bool { return r.Name == rule })
		},
	})
	limiter := limit.New(nil, &limit.Options{Override: o.Limit})
	api := must.Get(limiter.Policy(rules))(t)

	set := func(rule, key string) error {
		return o.Set(ctx, overrides.Override{Policy: "api", Rule: rule, Key: key, Limit: 5000}, 24*time.Hour, "bob")
	}
	keys := []string{"192.0.2.1", "2001:db8:1:2::7", "::ffff:192.0.2.2", "2001:DB8:0:0::1"}
	for _, ip := range keys {
		key := must.Get(operate.Key(api, "per-ip-1m", map[string]string{"ip": ip}))(t)
		assert.NoError(t, set("per-ip-1m", key), key)
	}
	assert.NoError(t, set("per-user-1h", "2001:db8::1"), "a user may have any name")
	for _, key := range []string{"2001:db8:1:2::7", "::ffff:192.0.2.2", "2001:db8:1:2::7/64", "2001:DB8::/64", "192.0.2.0/24", "fe80::1%eth0"} {
		assert.ErrorContains(t, set("per-ip-1m", key), "write the key that operate.Key returns", key)
	}
	assert.EqualError(t, set("per-user-1d", "alice"), `overrides: policy "api" has no rule "per-user-1d": write the names that limit.Decision shows`)
	redistest.Await(t, time.Second, "the override", func() bool {
		d := must.Get(api.Take(ctx, limit.Request{Keys: map[string]string{"user": "alice", "ip": "2001:db8:1:2::8"}}))(t)
		return slices.Collect(d.Rules())[1].Limit == 5000
	})
}
