package limit_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/prefetch"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// TestNoticeOfSeveralMemories has a memory store in a program of one instance and of
// several.
func TestNoticeOfSeveralMemories(t *testing.T) {
	for instances := range 3 {
		for _, store := range []core.Store{nil, memstore.New(nil)} {
			book := new(logbook.Book)
			limiter := limit.New(store, &limit.Options{Log: book.Log(), Instances: instances})
			h := limiter.Limit(limit.Rules(limit.Global(time.Hour, 1)))(status(http.StatusOK))
			assert.Empty(t, book.Lines(), "no request has come")
			err := operate.Check(t.Context(), limiter)
			for range 3 {
				routed(h, "GET /")
			}
			lines := book.Lines()
			if instances < 2 {
				assert.NoError(t, err)
				assert.Empty(t, lines)
				continue
			}
			var d *core.Diagnosis
			require.ErrorAs(t, err, &d)
			assert.Equal(t, "LIMIT-112", d.Code)
			assert.Contains(t, err.Error(), "limit.Options.Instances is 2")
			require.Len(t, lines, 1)
			assert.Contains(t, lines[0], `level=WARN msg="limit: a check has found a problem" code=LIMIT-112 error="limit: the quotas are in memory`)

			limiter = limit.New(store, &limit.Options{Log: book.Log(), Instances: instances, Silence: []string{"LIMIT-112"}})
			require.NoError(t, operate.Check(t.Context(), limiter))
			routed(limiter.Limit(limit.Rules(limit.Global(time.Hour, 1)))(status(http.StatusOK)), "GET /")
			assert.Empty(t, book.Lines())
		}
	}
}

// checked is a store with problems.
type checked struct {
	core.Store
	err error
}

func (c checked) Check(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.err
}

// TestCheckOfStores passes the check on through everything that surrounds a store.
func TestCheckOfStores(t *testing.T) {
	problem := errors.New("problem")
	store := checked{memstore.New(nil), errors.Join(&core.Diagnosis{Code: "LIMIT-304", Err: problem}, &core.Diagnosis{Code: "LIMIT-305", Err: errors.New("other")})}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, store := range map[string]core.Store{
		"alone":    store,
		"guard":    guard.New(store, nil),
		"refusals": refusals.New(store),
		"prefetch": prefetch.New(refusals.New(guard.New(store, nil)), &prefetch.Options{Rules: []prefetch.Rule{{Policy: "p", Name: "r"}}}),
	} {
		limiter := limit.New(store, nil)
		err := operate.Check(t.Context(), limiter)
		require.ErrorIs(t, err, problem, name)
		assert.Equal(t, "LIMIT-304: problem\nLIMIT-305: other", err.Error(), name)
		assert.ErrorIs(t, operate.Check(ended, limiter), context.Canceled, name)

		limiter = limit.New(store, &limit.Options{Silence: []string{"LIMIT-304"}})
		assert.EqualError(t, operate.Check(t.Context(), limiter), "LIMIT-305: other", name)
		limiter = limit.New(store, &limit.Options{Silence: []string{"LIMIT-304", "LIMIT-305"}})
		assert.NoError(t, operate.Check(t.Context(), limiter), name)
	}
	limiter := limit.New(nil, nil)
	assert.NoError(t, operate.Check(t.Context(), limiter))
	assert.ErrorIs(t, operate.Check(ended, limiter), context.Canceled)
	assert.NoError(t, operate.Check(t.Context(), limit.New(failing{}, nil)), "a store without a check")
}

// TestNoticeOfRedis logs what is wrong with a Redis after the first decision, once.
func TestNoticeOfRedis(t *testing.T) {
	healthy := redistest.Real(t)
	evicting := redistest.Launch(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Client()
	require.NoError(t, healthy.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~limit:*", "+@all", "-info").Err())
	limited := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: healthy.Options().Addr, Username: "app", Password: "secret"}))
	for _, test := range []struct {
		name    string
		client  *redis.Client
		silence []string
		want    string
	}{
		{"healthy", healthy, nil, ""},
		{"evicting", evicting, nil, "code=LIMIT-304 error=\"redisstore: Redis " + evicting.Options().Addr + ": it evicts keys"},
		{"evicting, silenced", evicting, []string{"LIMIT-304"}, ""},
		{"no INFO", limited, nil, `code=LIMIT-305 error="redisstore: Redis ` + healthy.Options().Addr + `: user \"app\" may not run INFO`},
		{"no INFO, silenced", limited, []string{"LIMIT-305"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := test.client
			book := new(logbook.Book)
			store := &observed{Store: redisstore.New(client, &redisstore.Options{Timeout: 10 * time.Second}), done: make(chan struct{}, 9)}
			limiter := limit.New(store, &limit.Options{Log: book.Log(), Silence: test.silence})
			h := limiter.Limit(limit.Rules(limit.Global(time.Hour, 9)))(status(http.StatusOK))
			for range 3 {
				routed(h, "GET /")
			}
			<-store.done
			if test.want != "" {
				var lines []string
				redistest.Await(t, 5*time.Second, "a line", func() bool {
					lines = append(lines, book.Lines()...)
					return len(lines) > 0
				})
				require.Len(t, lines, 1)
				assert.Contains(t, lines[0], test.want)
			}
			assert.Empty(t, book.Lines())
			assert.Empty(t, store.done, "one check")
		})
	}
}

// observed notes when a store has been checked.
type observed struct {
	*redisstore.Store
	done chan struct{}
}

func (o *observed) Check(ctx context.Context) error {
	defer func() { o.done <- struct{}{} }()
	return o.Store.Check(ctx)
}

// TestNoticeOfFailingRedis decides on a Redis that refuses writes, on one that refuses
// this user, and without one. The first request says why, and no other.
func TestNoticeOfFailingRedis(t *testing.T) {
	primary := redistest.Launch(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.Launch(t, "--replicaof", strings.Replace(primary.Addr, ":", " ", 1)).Client()
	redistest.Await(t, 10*time.Second, "a replica in sync", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	require.NoError(t, primary.Client().Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~limit:*", "+@all", "-evalsha").Err())
	limited := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: primary.Addr, Username: "app", Password: "secret"}))
	gone := redistest.Launch(t)
	dead := gone.Client()
	gone.Kill()
	for code, test := range map[string]struct {
		client *redis.Client
		code   string
		want   string
	}{
		"LIMIT-302": {replica, "LIMIT-205", "READONLY"},
		"LIMIT-303": {limited, "LIMIT-303", "NOPERM"},
		"LIMIT-301": {dead, "LIMIT-205", "connection refused"},
	} {
		book := new(logbook.Book)
		limiter := limit.New(redisstore.New(test.client, &redisstore.Options{Timeout: 5 * time.Second}), &limit.Options{Log: book.Log()})
		h := limiter.Limit(limit.Rules(limit.Global(time.Hour, 9)))(status(http.StatusOK))
		for range 3 {
			routed(h, "GET /")
		}
		lines := book.Lines()
		require.Len(t, lines, 1, code)
		assert.Contains(t, lines[0], "code="+test.code)
		assert.Contains(t, lines[0], test.want)
		var d *core.Diagnosis
		require.ErrorAs(t, operate.Check(t.Context(), limiter), &d)
		assert.Equal(t, code, d.Code)
		assert.NoError(t, operate.Check(t.Context(), limit.New(redisstore.New(test.client, nil), &limit.Options{Silence: []string{code}})))
	}
}
