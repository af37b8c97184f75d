package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// A process is a store on a server, and the charges of its calls.
type process struct {
	*testing.T
	store   *Store
	policy  string
	charges []core.Charge
}

func processes(t *testing.T, n int, client func() redis.UniversalClient) (all []process) {
	for range n {
		all = append(all, process{t, New(client(), &patient), "p", []core.Charge{charge("r", "k", 100_000, time.Hour)}})
	}
	return all
}

func (p process) take() error {
	_, err := storetest.Take(p.Context(), p.store, p.policy, p.charges)
	return err
}

// server returns the server that the process calls.
func (p process) server() *server {
	c := p.charges[0]
	c.Policy = p.policy
	known, _, err := p.store.serverOf(p.Context(), lua.Key("limit", &c))
	require.NoError(p, err)
	return known
}

// pass has a time pass since the process has checked its server.
func (p process) pass(d time.Duration) { p.server().asked.Add(-int64(d)) }

// check has a call start a check, and waits for it.
func (p process) check() {
	p.pass(identifyEvery)
	_ = p.take()
	redistest.Await(p, 10*time.Second, "a check", func() bool { return p.server().identifying.Load() == nil })
}

// lost holds that each process reports lost data once.
func lost(t *testing.T, all []process, how string) {
	t.Helper()
	for i, p := range all {
		losses := p.store.Losses()
		if p.check(); p.store.Losses() == losses {
			assert.Fail(t, how, "process %d does not notice it", i)
			continue
		}
		p.take() // the first reports it, or the call that began the check did
		require.NoError(t, p.take(), how)
		p.check()
		require.NoError(t, p.take(), how)
		assert.Equal(t, losses+1, p.store.Losses(), how)
	}
}

// TestDataLost has a server lose its data although no call fails and it is the same. Each of
// three processes notices it by its next check, whichever checks first.
func TestDataLost(t *testing.T) {
	for name, withheld := range map[string][]string{"with INFO": nil, "without INFO": {"info"}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Launch(t, append(user(withheld...), "--enable-debug-command", "yes")...)
			admin := server.Client()
			all := processes(t, 3, func() redis.UniversalClient { return asUser(t, server.Addr) })
			for _, p := range all {
				require.NoError(t, p.take())
				p.check()
				require.NoError(t, p.take())
				require.Zero(t, p.store.Losses())
			}
			for how, lose := range map[string]func() error{
				"FLUSHALL":     func() error { return admin.FlushAll(t.Context()).Err() },
				"FLUSHDB":      func() error { return admin.FlushDB(t.Context()).Err() },
				"DEL":          func() error { return admin.Del(t.Context(), admin.Keys(t.Context(), "*").Val()...).Err() },
				"a list there": func() error { return admin.Set(t.Context(), "limit:1:token:{p}::", "foreign", 0).Err() },
				"an old file": func() error {
					require.NoError(t, admin.Save(t.Context()).Err())
					for _, p := range all {
						p.check()
					}
					return admin.Do(t.Context(), "DEBUG", "RELOAD", "NOSAVE").Err()
				},
			} {
				require.NoError(t, lose(), how)
				lost(t, all, how)
			}
			assert.Positive(t, admin.PTTL(t.Context(), "limit:1:token:{p}::").Val())
		})
	}
}

// TestIdleProcess has a server emptied while a process makes no call, and another process
// write the token again. The first call of the idle process is not answered by the emptied
// server, nor are those that come at the same time.
func TestIdleProcess(t *testing.T) {
	server := redistest.Real(t)
	all := processes(t, 2, func() redis.UniversalClient {
		return redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: true}))
	})
	for range 20 {
		for _, p := range all {
			require.NoError(t, p.take())
		}
		require.NoError(t, server.FlushAll(t.Context()).Err())
		lost(t, all[:1], "FLUSHALL")
		all[1].pass(time.Minute)
		const calls = 4
		errs := make(chan error, calls)
		for range calls {
			go func() { errs <- all[1].take() }()
		}
		for range calls {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, core.ErrForgotten)
			} else {
				require.EqualValues(t, all[1].store.reported.Load(), all[1].store.restarts.Load(), "it was answered after the report")
			}
		}
		require.NoError(t, all[1].take())
	}
}

// TestTokenUnreadable has errors of the check alone: a store that knows the run id decides.
func TestTokenUnreadable(t *testing.T) {
	server := redistest.Real(t)
	proxy := faultproxy.Start(t, server.Options().Addr)
	p := processes(t, 1, func() redis.UniversalClient {
		return redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true}))
	})[0]
	require.NoError(t, p.take())
	for _, reply := range []string{"NOPERM no", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "OOM full", "ERR unknown", "LOADING"} {
		proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-" + reply + "\r\n"}, "eval"))
		for _, idle := range []time.Duration{identifyEvery, time.Minute} {
			p.check()
			p.pass(idle)
			require.NoError(t, p.take(), reply)
		}
		p.store.failed(p.server())
		require.NoError(t, p.take(), reply)
	}
	proxy.Break(nil)
	p.check()
	require.NoError(t, p.take())
	require.Zero(t, p.store.Losses())
	require.NoError(t, server.FlushAll(t.Context()).Err())
	lost(t, []process{p}, "FLUSHALL after the errors")
}

// TestTokenRights withholds EVAL, or the key of the token, from a user who may decide. The
// store decides, notices a restart by its run id, and its check says what is missing.
func TestTokenRights(t *testing.T) {
	for name, rules := range map[string][]string{
		"no EVAL": {"~*", "+@all", "-eval"},
		"no key":  {"~limit:1:{*", "~limit:1:mark:*", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Launch(t, append([]string{"--user", "app", "on", ">pw"}, rules...)...)
			p := processes(t, 1, func() redis.UniversalClient { return asUser(t, server.Addr) })[0]
			storetest.MustTake(t, New(server.Client(), &patient), p.charges...) // loads the script
			for range 3 {
				p.check()
				require.NoError(t, p.take())
			}
			require.Zero(t, p.store.Losses())
			assert.Contains(t, problemsOf(t, asUser(t, server.Addr), nil)["LIMIT-303"], "may not run EVAL")
			server.Restart()
			redistest.Await(t, 10*time.Second, "a report of the restart", func() bool {
				err := p.take()
				if redis.HasErrorPrefix(err, "NOSCRIPT") || err != nil && p.store.Losses() == 0 { // nobody else has loaded the script
					storetest.MustTake(t, New(server.Client(), &patient), p.charges...)
				}
				return p.store.Losses() == 1
			})
		})
	}
}

// TestTokensOfCluster empties one primary of a Cluster, moves the slot of its token away and
// back with its data, and kills it.
func TestTokensOfCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 2*time.Second)
	client := func() redis.UniversalClient {
		return nodes.Client(t)
	}
	all := processes(t, 2, client)
	key := "limit:1:{p}:r:k"
	for _, p := range all {
		require.NoError(t, p.take())
		p.check()
	}
	home := nodes.Owner(t, key)
	var other *redistest.Server
	there := slices.Clone(all)
	for i := 0; other == nil || other == home; i++ {
		for p := range there {
			there[p].policy = fmt.Sprint(i)
		}
		other = nodes.Owner(t, fmt.Sprintf("limit:1:{%d}:r:k", i))
	}
	for _, p := range there {
		require.NoError(t, p.take())
		p.check()
	}
	for _, at := range []struct {
		server    *redistest.Server
		processes []process
	}{{other, there}, {home, all}} {
		require.NoError(t, at.server.Client().FlushAll(t.Context()).Err())
		lost(t, at.processes, "FLUSHALL of a primary")
	}

	token := all[0].server().token
	require.Equal(t, "limit:1:token:{p}::", token)
	for _, to := range []*redistest.Server{other, home} {
		moveSlot(t, nodes, key, to)
		for _, p := range all {
			losses := p.store.Losses()
			redistest.Await(t, 10*time.Second, "a decision", func() bool { return p.take() == nil })
			for range 3 {
				p.check()
				require.NoError(t, p.take())
			}
			require.Equal(t, losses, p.store.Losses(), "its data moved with the slot")
		}
	}

	var before []int64 // a check that the last decision began may notice the loss as soon as it is there
	for _, p := range all {
		before = append(before, p.store.Losses())
	}
	moveSlot(t, nodes, key, other)
	require.NoError(t, other.Client().Del(t.Context(), key, token).Err())
	moveSlot(t, nodes, key, home)
	for i, p := range all {
		redistest.Await(t, 10*time.Second, "a report", func() bool { p.check(); return p.store.Losses() > before[i] })
	}

	replica := nodes.Replica(t, home)
	home.Kill()
	nodes.Promoted(t, replica)
	for _, p := range all {
		losses := p.store.Losses()
		redistest.Await(t, 30*time.Second, "a decision", func() bool { return p.take() == nil })
		require.Greater(t, p.store.Losses(), losses, "a failover may lose writes")
	}
}

// moveSlot moves the slot of a key with its data.
func moveSlot(t *testing.T, nodes redistest.Nodes, key string, to *redistest.Server) {
	t.Helper()
	from := nodes.Owner(t, key)
	source, target, ctx := from.Client(), to.Client(), context.Background()
	id := func(of *redis.Client) string { return of.Do(ctx, "CLUSTER", "MYID").Val().(string) }
	slot := source.ClusterKeySlot(ctx, key).Val()
	do := func(at *redis.Client, words ...any) {
		require.NoError(t, at.Do(ctx, words...).Err(), fmt.Sprint(words...))
	}
	do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(source))
	do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(target))
	for _, name := range source.ClusterGetKeysInSlot(ctx, int(slot), 1000).Val() {
		require.NoError(t, source.Migrate(ctx, "127.0.0.1", portOf(to), name, 0, 5*time.Second).Err())
	}
	do(target, "CLUSTER", "SETSLOT", slot, "NODE", id(target))
	do(source, "CLUSTER", "SETSLOT", slot, "NODE", id(target))
	// Two owners in a row may choose one epoch. Then the nodes choose one of them, maybe the other.
	redistest.Await(t, 30*time.Second, "all nodes know the owner", func() bool {
		agree := true
		for _, node := range nodes {
			err := node.Client().Exists(ctx, key).Err()
			if node == to && err != nil || node != to && (err == nil || !strings.HasSuffix(err.Error(), " "+to.Addr)) { // MOVED
				node.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id(target)) // an error of replicas
				agree = false
			}
		}
		return agree
	})
}

func portOf(s *redistest.Server) string { return s.Addr[len("127.0.0.1:"):] }

// TestWaitForCheckIsNoLatency has a call answered at once, and wait for a check that is not. The
// server is then as fast as the call, and has last replied when it did.
func TestWaitForCheckIsNoLatency(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true}))
	p := process{t, New(client, &Options{Timeout: 2 * time.Second}), "p", []core.Charge{charge("r", "k", 100, time.Hour)}}
	require.NoError(t, p.take())
	require.NoError(t, p.take())
	p.server().latency.Store(0)
	proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.Swallow}, "eval"))
	p.pass(time.Minute)
	began := time.Now()
	require.NoError(t, p.take())
	waited := time.Since(began)
	require.Greater(t, waited, 500*time.Millisecond, "it has waited for the check")
	assert.Less(t, time.Duration(p.server().latency.Load()), waited/16)
	assert.Less(t, p.server().answered.Load(), ticks()-int64(waited/2))
}
