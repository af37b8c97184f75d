package redisstore

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
)

// TestForms tests that random batches, which are compared with core, take logs from
// one stored form to another. The changes that it does not ask for come less than ten
// times in a run, and so sometimes not at all.
//
// A form is its letter, in upper case for a string of more than 128 units, or "-".
func TestForms(t *testing.T) {
	race.Skip(t)
	t.Setenv("LIMIT_ALGORITHM", core.SlidingLog.String())
	t.Setenv("LIMIT_STEPS", "60")
	client := redistest.Client(t)
	bare := redis.NewClient(client.Options()) // without the hook
	t.Cleanup(func() { bare.Close() })
	small, large := make(map[string]int), make(map[string]int) // limits up to 128, and above
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := cmd.Args()
		if cmd.Name() != "evalsha" || len(args) < 3+args[2].(int)+9 { // not the script that takes
			return next(ctx, cmd)
		}
		keys := make([]string, args[2].(int))
		before := make([]string, len(keys))
		for i := range keys {
			keys[i] = args[3+i].(string)
			before[i] = formOf(ctx, bare, keys[i])
		}
		err := next(ctx, cmd)
		i, params := 0, args[3+len(keys)+4:]
		for rule := 0; i < len(keys) && err == nil; rule++ {
			changes := small
			if params[5*rule+1].(int64) > 128 {
				changes = large
			}
			for range params[5*rule+3].(int) {
				changes[before[i]+" "+formOf(ctx, bare, keys[i])]++
				i++
			}
		}
		return err
	}))
	now := start
	compareBatches(t, at(client, &now), &now, 150)
	t.Logf("limits up to 128: %v", small)
	t.Logf("limits above 128: %v", large)
	for _, change := range []string{"- a", "a a", "A a", "A A", "b b", "B b", "a b", "b a", "c a", "d b", "c A"} {
		assert.Positive(t, small[change], change)
	}
	for _, change := range []string{"- a", "- c", "a a", "a c", "c a", "c c", "- b", "- d", "b b", "b d", "d b", "d d",
		"a b", "a d", "b a", "b c"} {
		assert.Positive(t, large[change], change)
	}
}

// formOf returns the form of a stored log.
func formOf(ctx context.Context, client *redis.Client, key string) string {
	value := client.Get(ctx, key).Val()
	switch {
	case value == "":
		return "-"
	case value[0] == 'a' && len(value) > 8+128*4:
		return "A"
	case value[0] == 'b' && len(value) > 8+128*6:
		return "B"
	}
	return value[:1]
}
