package redisstore

import (
	"context"
	"encoding/binary"
	"strings"
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
// A form is its letter, or "-".
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
		if cmd.Name() != "evalsha" || len(args) < 3+args[2].(int)+6 || !isBlob(args[len(args)-2]) { // not the script that takes
			return next(ctx, cmd)
		}
		keys := make([]string, args[2].(int))
		before := make([]string, len(keys))
		for i := range keys {
			keys[i] = args[3+i].(string)
			before[i] = formOf(ctx, bare, keys[i])
		}
		err := next(ctx, cmd)
		i, spec := 0, args[3+len(keys)+3].([]byte)[1:] // see take.lua
		for i < len(keys) && err == nil {
			changes := small
			if binary.BigEndian.Uint64(spec)<<8>>16 > 128 {
				changes = large
			}
			count := binary.BigEndian.Uint16(spec[13:])
			spec = spec[17+binary.BigEndian.Uint16(spec[15:]):]
			for range count {
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
	for _, change := range []string{"- A", "A A", "B B", "M M", "N N", "A B", "A M", "c A", "c M", "c c", "d d", "d B"} {
		assert.Positive(t, small[change], change)
	}
	for _, change := range []string{"- M", "- N", "- c", "A A", "A c", "c c", "B B", "B d", "d d",
		"M M", "M c", "c M", "N d", "d N", "A M", "A N", "c d"} {
		assert.Positive(t, large[change], change)
	}
}

func isBlob(arg any) bool {
	_, ok := arg.([]byte)
	return ok
}

// formOf returns the form of a stored log.
func formOf(ctx context.Context, client *redis.Client, key string) string {
	value := client.Get(ctx, key).Val()
	switch {
	case value == "":
		return "-"
	case strings.Contains("ABMN", value[:1]) && len(value) > 10+128*6+1:
		return "a string of more than 128 units"
	}
	return value[:1]
}
