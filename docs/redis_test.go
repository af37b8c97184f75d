package docs_test

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// TestRedis runs two instances of the program of the page, with the rights that
// the page names and no others.
func TestRedis(t *testing.T) {
	admin := redistest.Real(t)
	_, rights, found := strings.Cut(read(t, "redis.md"), "ACL SETUSER shop ")
	require.True(t, found)
	rights, _, found = strings.Cut(rights, "\n```")
	require.True(t, found)
	words := []any{"ACL", "SETUSER", "shop"}
	for word := range strings.FieldsSeq(strings.ReplaceAll(rights, "\\\n", " ")) {
		words = append(words, word)
	}
	require.NoError(t, admin.Do(t.Context(), words...).Err())

	addr, password := admin.Options().Addr, "password"
	secret := []byte("0123456789abcdef0123456789abcdef")
	instance := func(watch func(*limit.Limiter)) http.Handler {
		client := redis.NewClient(&redis.Options{Addr: addr, Username: "shop", Password: password})
		store := redisstore.New(client, &redisstore.Options{
			Prefix: "shop", // programs with different prefixes share nothing
			Secret: secret, // 16 random bytes or more: addresses and users are hashed
		})
		limiter := limit.New(store, &limit.Options{
			Instances: 3,         // processes that share this Redis
			MaxKeys:   1_000_000, // above the clients you expect in the longest window
		})
		t.Cleanup(func() { client.Close() })
		watch(limiter)
		mux := http.NewServeMux()
		mux.Handle("GET /items", limiter.Limit(limit.Rules(limit.PerIP(time.Hour, 2)))(http.HandlerFunc(ok)))
		return mux
	}
	assert.Equal(t, []int{200, 200, 429, 429}, onRedis(t, admin, func(watch func(*limit.Limiter)) (codes []int) {
		one, two := instance(watch), instance(watch)
		for _, server := range []http.Handler{one, two, one, two} {
			codes = append(codes, send(server, "GET", "/items").Code)
		}
		return codes
	}))

	keys, err := admin.Keys(t.Context(), "shop:1:{GET*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.True(t, strings.HasPrefix(keys[0], "shop:"), keys)
	assert.NotContains(t, keys[0], "192.0.2.1")
}

// TestPrefetch has two processes share a hot rule: they admit no more than it says,
// with a fraction of the calls.
func TestPrefetch(t *testing.T) {
	admin := redistest.Real(t)
	var admitted atomic.Int64
	instance := func() (send func()) {
		client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr})
		inner := refusals.New(guard.New(redisstore.New(client, nil), &guard.Options{Instances: 3}))
		hot := prefetch.New(inner, &prefetch.Options{Rules: []prefetch.Rule{{Policy: "api", Name: "all"}}})
		limiter := limit.New(hot, nil)
		policy, err := limiter.Policy(limit.Named("api",
			limit.Rule{Name: "all", Key: limit.Everyone, Limit: 50_000, Window: time.Second}))
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, hot.Close(context.Background()))
			client.Close()
		})
		return func() {
			d, err := policy.Take(t.Context(), limit.Request{})
			assert.NoError(t, err)
			if d.Allowed {
				admitted.Add(1)
			}
		}
	}
	var done sync.WaitGroup
	for _, send := range []func(){instance(), instance()} {
		for range 16 {
			done.Go(func() {
				for range 1000 {
					send()
				}
			})
		}
	}
	done.Wait()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info)
	require.NotNil(t, found)
	calls, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	assert.Positive(t, admitted.Load())
	assert.Less(t, calls, 32_000/4)
}
