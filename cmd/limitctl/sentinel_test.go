package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/feed"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestSentinels runs commands through Sentinels, first with the first of them down, then with
// all of them down.
func TestSentinels(t *testing.T) {
	redisclient.Quiet() // before other goroutines use it
	sentinel := redistest.StartSentinel(t)
	client := redistest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: sentinel.Addrs}))
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), nil)
	api := must.Get(limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 2))))(t)
	t.Cleanup(feed.Publish(limiter, client, nil))
	take := func() {
		must.Get(api.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	}
	take()
	stop := func(addr string) {
		one := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}))
		require.NoError(t, one.Shutdown(t.Context()).Err())
		redistest.Await(t, 5*time.Second, "a Sentinel that has ended", func() bool { return one.Ping(t.Context()).Err() != nil })
	}
	at := []string{"--sentinel", sentinel.Name, "--redis", fmt.Sprintf("redis://%s?addr=%s&addr=%s", sentinel.Addrs[0], sentinel.Addrs[1], sentinel.Addrs[2])}
	rules := append([]string{"--rules", "2/1h per user", "--on", "api"}, at...)
	stop(sentinel.Addrs[0])

	_, out, _ := run(t, append([]string{"doctor"}, at...)...)
	assert.Regexp(t, `(?m)^ok +connect`, out)
	assert.NotContains(t, out, "no primary answers")
	out, _ = exits(t, 0, append([]string{"inspect", "--key", "alice"}, rules...)...)
	assert.Regexp(t, `(?m)^api +per-user-1h +1 +2 +50%`, out)
	exits(t, 0, append([]string{"override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice", "--limit", "4", "--for", "1h", "--by", "ann", "--yes"}, rules...)...)
	out, _ = exits(t, 0, append([]string{"reset", "--key", "alice", "--yes"}, rules...)...)
	assert.Contains(t, out, "reset")
	seen, problems, end := watching(t, at...)
	redistest.Await(t, 10*time.Second, "a decision", func() bool { take(); return strings.Contains(seen.String(), "alice") })
	assert.Zero(t, end(), problems.String())

	stop(sentinel.Addrs[1])
	stop(sentinel.Addrs[2])
	code, out, _ := run(t, append([]string{"doctor"}, at...)...)
	assert.Equal(t, 2, code)
	assert.Regexp(t, `(?m)^fail +connect +no Sentinel can be reached: dial tcp `+sentinel.Addrs[0]+`: connect: connection refused, dial tcp `+sentinel.Addrs[1], out)
	for _, args := range [][]string{append([]string{"inspect", "--key", "alice"}, rules...), append([]string{"reset", "--key", "alice", "--yes"}, rules...), append([]string{"watch"}, at...)} {
		_, problem := exits(t, 1, args...)
		assert.Contains(t, problem, "no Sentinel can be reached: ", args)
		assert.NotContains(t, problem, "\n", args)
		for _, addr := range sentinel.Addrs {
			assert.Contains(t, problem, addr+": connect: connection refused", args)
		}
	}
}
