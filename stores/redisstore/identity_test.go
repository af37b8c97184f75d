package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/storetest"
)

// asUser returns a client of a server for its user "app".
func asUser(t *testing.T, addr string) *redis.Client {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, Username: "app", Password: "pw", ContextTimeoutEnabled: true}))
	return client
}

// user returns the arguments of a server with a user "app" who may run everything
// but some commands.
func user(withheld ...string) []string {
	args := []string{"--user", "app", "on", ">pw", "~*", "+@all"}
	for _, command := range withheld {
		args = append(args, "-"+command)
	}
	return args
}

// TestSameServerWithoutINFO holds that a user who may not run INFO gets no error from
// a server that was not restarted, after failures, reconnections and a flush of all
// scripts, and one error after it was emptied.
func TestSameServerWithoutINFO(t *testing.T) {
	server := redistest.Launch(t, user("info")...)
	admin := server.Client()
	store := New(asUser(t, server.Addr), &patient)
	charges := []core.Charge{charge("r", "k", 100_000, time.Hour)}
	take := func() error {
		_, err := storetest.Take(t.Context(), store, "p", charges)
		return err
	}
	var group sync.WaitGroup
	for range 20 { // whose first calls write the token at the same time
		group.Go(func() { assert.NoError(t, take()) })
	}
	group.Wait()
	known, _, err := store.serverOf(t.Context(), "")
	require.NoError(t, err)
	for range 3 {
		store.failed(known)
		require.NoError(t, take())
		require.NoError(t, admin.Do(t.Context(), "client", "kill", "user", "app").Err())
		require.NoError(t, take())
		redistest.Await(t, 10*time.Second, "a check", func() bool { return known.identifying.Load() == nil })
	}
	require.NoError(t, admin.ScriptFlush(t.Context()).Err())
	store.failed(known)
	require.NoError(t, take())
	require.NoError(t, admin.FlushAll(t.Context()).Err())
	store.failed(known)
	require.ErrorIs(t, take(), core.ErrForgotten)
	require.NoError(t, take())
}

// TestINFOWithdrawn withholds INFO, and grants it again, while a store is in use. The
// token shows that nothing is lost.
func TestINFOWithdrawn(t *testing.T) {
	client := redistest.Real(t)
	store := New(client, &patient)
	take := func() {
		t.Helper()
		known, _, err := store.serverOf(t.Context(), "")
		require.NoError(t, err)
		store.failed(known)
		must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{charge("r", "k", 50, time.Hour)}))(t)
	}
	storetest.MustTake(t, store, charge("r", "k", 50, time.Hour))
	for _, rule := range []string{"-info", "+info"} {
		take()
		require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err())
		take()
	}
}

// TestNoDatabase has a server that lacks the database of the client, which go-redis finds when it
// prepares a connection: no command of the pipeline has that error.
func TestNoDatabase(t *testing.T) {
	server := redistest.Real(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Options().Addr, DB: 99}))
	_, err := storetest.Take(t.Context(), New(client, nil), "p", []core.Charge{charge("r", "k", 1, time.Minute)})
	assert.ErrorIs(t, err, core.ErrUnavailable)
	assert.ErrorContains(t, err, "DB index is out of range")
}

// TestNoIdentity holds that a store which cannot notice a restart says so and does not
// decide, though its user may run the scripts that others have loaded.
func TestNoIdentity(t *testing.T) {
	server := redistest.Launch(t, user("info", "eval")...)
	charges := []core.Charge{charge("r", "k", 50, time.Hour)}
	storetest.MustTake(t, New(server.Client(), &patient), charges...) // loads the script
	store := New(asUser(t, server.Addr), &patient)
	for range 2 {
		_, err := storetest.Take(t.Context(), store, "p", charges)
		require.ErrorIs(t, err, core.ErrUnavailable)
		require.NotErrorIs(t, err, core.ErrOutOfReach)
		require.NotErrorIs(t, err, core.ErrForgotten)
		require.ErrorContains(t, err, "the Redis user may run neither INFO nor EVAL, so a restart that loses data would go unnoticed: grant +info")
	}
	d := storetest.MustTake(t, guard.New(store, &guard.Options{Log: slog.New(slog.DiscardHandler)}), charges...)
	require.Equal(t, core.ModeLocal, d.Mode)
}

// TestWithheldRights has users who may not run some of the commands that the store
// uses, and servers that are restarted without their data, or whose scripts are
// flushed, between calls of two processes. Whatever is withheld, a store makes no
// decision on a restarted server before it has reported the restart; and with a
// guard, a process admits no more than the limit.
func TestWithheldRights(t *testing.T) {
	commands := []string{"info", "eval", "evalsha", "script", "mget", "get", "set", "psetex", "time", "hello", "client", "select", "ping"}
	const limit, seeds = 10, 12
	ran, decided := 0, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 3))
		withheld := []string{commands[int(seed)%len(commands)]}
		if random.IntN(3) > 0 {
			withheld = append(withheld, commands[random.IntN(3)])
		}
		t.Run(strings.Join(withheld, " "), func(t *testing.T) {
			ran++
			server := redistest.Launch(t, user(withheld...)...)
			var stores []*Store
			var reported [2]int // the restart that each has reported
			for range 2 {
				stores = append(stores, New(asUser(t, server.Addr), &patient))
			}
			guarded := guard.New(New(asUser(t, server.Addr), &patient), &guard.Options{Log: slog.New(slog.DiscardHandler)})
			charges := []core.Charge{charge("r", "k", limit, time.Hour)}
			restarts, admitted := 0, 0
			var decidedOnce [2]bool
			for step := range 30 {
				failed := fmt.Sprintf("seed %d, step %d", seed, step)
				switch random.IntN(8) {
				case 0:
					server.Restart()
					restarts++
				case 1:
					_ = server.Client().ScriptFlush(context.Background()).Err()
				case 2:
					_, _ = storetest.Take(t.Context(), New(server.Client(), &patient), "p", charges) // loads the script
				}
				d, err := storetest.Take(t.Context(), guarded, "p", charges)
				if err == nil && d.Allowed {
					admitted++
				}
				require.LessOrEqual(t, admitted, limit, failed)
				i := random.IntN(2)
				_, err = storetest.Take(t.Context(), stores[i], "q", charges)
				switch {
				case errors.Is(err, core.ErrForgotten):
					reported[i] = restarts
				case err == nil && !decidedOnce[i]:
					decidedOnce[i], reported[i] = true, restarts
				case err == nil && reported[i] != restarts:
					// It was decided over a new connection, while the identity was read.
					redistest.Await(t, 10*time.Second, "a report of the restart: "+failed, func() bool {
						_, err := storetest.Take(t.Context(), stores[i], "q", charges)
						return errors.Is(err, core.ErrForgotten)
					})
					reported[i] = restarts
				}
				if err == nil {
					decided++
				}
			}
		})
	}
	if redistest.Installed(t) && ran == seeds { // without some rights, a store never decides
		require.Positive(t, decided)
	}
}
