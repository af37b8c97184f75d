package proof

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// TestMain runs the tests, or what a test has started this binary for.
func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each failure of an outage, and its goroutines read this without a lock
	if args := os.Getenv(driverVar); args != "" {
		drive(args)
	}
	if url := os.Getenv(holderVar); url != "" {
		hold(url)
	}
	if url := os.Getenv(gatewayVar); url != "" {
		stream(url)
	}
	if url := os.Getenv(loserVar); url != "" {
		lose(url)
	}
	if url := os.Getenv(byteServerVar); url != "" {
		options, err := redis.ParseURL(url)
		if err == nil {
			err = serveBytes(redis.NewClient(options))
		}
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	built, _ = os.MkdirTemp("", "proof")
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// built is a directory for programs that tests build.
var built string

// bind binds rules to a limiter. It panics if they are invalid, so that
// goroutines can call it too.
func bind(limiter *limit.Limiter, rules limit.RuleSet) *limit.Policy {
	policy, err := limiter.Policy(rules)
	if err != nil {
		panic(err)
	}
	return policy
}

// patient has a timeout that a slow machine does not reach.
var patient = redisstore.Options{Timeout: 10 * time.Second}

// unhurried returns the store that limit.New makes of one on Redis, for tests in which a machine
// that stalls is no outage.
func unhurried(client redis.UniversalClient, instances int) core.Store {
	return refusals.New(guard.New(redisstore.New(client, &patient), &guard.Options{Slow: time.Minute, Instances: instances}))
}

// redisKey returns the key of Redis that holds the state of a quota.
func redisKey(prefix, policy, rule, key string) string {
	return lua.Key(prefix, &core.Charge{Policy: policy, Rule: rule, Key: key})
}
