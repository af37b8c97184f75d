package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestLoneDecisionLeft has the script for lone decisions meet a key of another version of the
// rule. The script for batches decides then, within the time of one call, and for a while first.
func TestLoneDecisionLeft(t *testing.T) {
	client := redistest.Client(t)
	store := New(client, &patient)
	c := charge("r", "k", 5, time.Hour)
	storetest.MustTake(t, store, c)
	c.Quota.Limit = 6
	rules := lua.NewRules("limit", ask([]core.Charge{c}))
	scripts := map[any]string{rules.One.SHA: "lone", rules.One.Text: "lone", rules.Script.SHA: "batch", rules.Script.Text: "batch"}
	var calls []string
	var ends []time.Time
	client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if isTake(cmd) && !redis.HasErrorPrefix(err, "NOSCRIPT ") {
			end, _ := ctx.Deadline()
			calls, ends = append(calls, scripts[cmd.Args()[1]]), append(ends, end)
		}
		return err
	}))
	d := storetest.MustTake(t, store, c)
	require.EqualValues(t, 4, d.Outcomes()[0].Remaining)
	require.Equal(t, []string{"lone", "batch"}, calls)
	assert.Equal(t, ends[0], ends[1], "the timeout is that of both calls")

	d = storetest.MustTake(t, store, c)
	require.EqualValues(t, 3, d.Outcomes()[0].Remaining)
	require.Equal(t, []string{"lone", "batch", "batch"}, calls)
	store.part.batcher(ask([]core.Charge{c})).left.Store(0)
	c.Key = "another"
	storetest.MustTake(t, store, c)
	require.Equal(t, []string{"lone", "batch", "batch", "lone"}, calls)
}
