package proof

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// faults can be produced on one machine. They are in the order of docs/faults.md.
var faults = []fault{
	{name: "killed with kill -9, back without its data", quick: true, begin: kill, mode: core.ModeLocal, client: direct},
	{name: "a black hole: no answer, no end", quick: true, mode: core.ModeLocal, begin: func(b *setup) func() {
		b.proxy.Silence(true)
		return func() { b.proxy.Silence(false); b.proxy.Cut() }
	}},
	{name: "slow: replies after 200 ± 50 ms", quick: true, mode: core.ModeLocal, begin: delayed(150, 250), mute: true},
	{name: "slow: replies after 60 ms, too far for a timeout of 100 ms", mode: core.ModeLocal, begin: delayed(60, 60), mute: true},
	{name: "slow: replies after 25 ms", mode: core.ModeExact, begin: delayed(25, 25), mute: true},
	{name: "paused with SIGSTOP", quick: true, mode: core.ModeLocal, begin: func(b *setup) func() {
		b.server.Pause()
		return b.server.Resume
	}},
	{name: "every fifth reply lost", quick: true, mode: core.ModeLocal, begin: calls(5, faultproxy.LoseReply), mute: true},
	{name: "every tenth reply cut at a random byte", mode: core.ModeLocal, begin: calls(10, faultproxy.CutReply), mute: true},
	{name: "every tenth request cut at a random byte", mode: core.ModeLocal, begin: calls(10, faultproxy.CutRequest), mute: true},
	{name: "every fifth reply swapped with another", quick: true, mode: core.ModeLocal, begin: calls(5, faultproxy.SwapReply), mute: true},
	{name: "every fifth reply sent twice", mode: core.ModeExact, begin: calls(5, faultproxy.DuplicateReply)},
	{name: "SCRIPT FLUSH every 10 ms", quick: true, mode: core.ModeExact, begin: flushScripts},
	{name: "READONLY: the primary demoted", mode: core.ModeLocal, begin: func(b *setup) func() {
		return b.config("replicaof", "127.0.0.1", "1")("replicaof", "no", "one")
	}},
	{name: "CLUSTERDOWN: a Cluster that lost its slots", mode: core.ModeLocal, begin: loseSlots,
		args: []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "500"}, client: clusterClient},
	{name: "OOM: above maxmemory with noeviction", quick: true, mode: core.ModeLocal, begin: func(b *setup) func() {
		return b.config("config", "set", "maxmemory", "1")("config", "set", "maxmemory", "0")
	}},
	{name: "keys evicted by allkeys-random", mode: core.ModeExact, forgets: true, begin: evict},
	{name: "FLUSHALL: data lost without a failure", mode: core.ModeExact, over: callers, begin: func(b *setup) func() {
		require.NoError(b.t, b.admin.FlushAll(b.t.Context()).Err())
		return func() {}
	}},
	{name: "Redis's clock an hour back", quick: true, mode: core.ModeExact, begin: shift(-time.Hour), clock: true},
	{name: "Redis's clock ten years back", mode: core.ModeExact, begin: shift(-87_600 * time.Hour), clock: true},
	{name: "Redis's clock two hours forward, of windows of one", mode: core.ModeExact, forgets: true, begin: shift(2 * time.Hour), clock: true},
	{name: "the pool exhausted: both connections held by BLPOP", quick: true, mode: core.ModeLocal, begin: holdPool,
		client: func(b *setup) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: b.proxy.Addr(), PoolSize: 2})
		}},
	{name: "MAXCLIENTS", mode: core.ModeLocal, begin: maxClients},
	{name: "LOADING (a forged reply)", mode: core.ModeLocal, begin: func(b *setup) func() {
		b.proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-LOADING Redis is loading the dataset in memory\r\n"}))
		return func() { b.proxy.Break(nil) }
	}},
	{name: "BUSY: an endless script of another client", mode: core.ModeLocal, begin: busy},
	{name: "NOREPLICAS: min-replicas-to-write unmet", quick: true, mode: core.ModeLocal, begin: func(b *setup) func() {
		return b.config("config", "set", "min-replicas-to-write", "1")("config", "set", "min-replicas-to-write", "0")
	}},
	{name: "not up when the process starts", quick: true, mode: core.ModeLocal, begin: func(b *setup) func() {
		return func() { b.server.Restart() }
	}, client: func(b *setup) redis.UniversalClient {
		b.server.Kill()
		return direct(b)
	}},
	{name: "a key that holds another type: 503", mode: core.ModeExact, failing: true, begin: wrongType},
}

// direct makes a client without the proxy, which accepts connections of a dead server.
func direct(b *setup) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: b.server.Addr})
}

func kill(b *setup) func() {
	b.server.Kill()
	return func() { b.server.Restart() }
}

// delayed delays the replies of scripts, and the first one of a connection, by least
// to most milliseconds.
func delayed(least, most int) func(*setup) func() {
	return func(b *setup) func() {
		b.proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name != "evalsha" && c.Name != "eval" && c.Name != "hello" {
				return faultproxy.Fault{}
			}
			return faultproxy.Fault{Delay: time.Duration(least+rand.IntN(most-least+1)) * time.Millisecond}
		})
		return func() { b.proxy.Break(nil) }
	}
}

// calls breaks every nth call of the script.
func calls(nth int, kind faultproxy.Kind) func(*setup) func() {
	return func(b *setup) func() {
		b.proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name != "evalsha" || c.Number%nth != 0 {
				return faultproxy.Fault{}
			}
			return faultproxy.Fault{Kind: kind, At: rand.IntN(80)}
		})
		return func() { b.proxy.Break(nil) }
	}
}

// config sends a command to the server. It returns a function that takes the command
// to undo it.
func (b *setup) config(words ...any) func(undo ...any) func() {
	send := func(words []any) { require.NoError(b.t, b.admin.Do(context.Background(), words...).Err()) }
	send(words)
	return func(undo ...any) func() { return func() { send(undo) } }
}

// until calls a function every 10 ms until the fault ends.
func (b *setup) until(each func()) (end func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			each()
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(stop); done.Wait() }
}

func flushScripts(b *setup) func() {
	return b.until(func() { b.admin.ScriptFlush(context.Background()) })
}

// clusterClient makes the server a Cluster of one, and returns its client.
func clusterClient(b *setup) redis.UniversalClient {
	b.addSlots()
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{b.server.Addr}})
}

// addSlots assigns all slots to the server, and returns when it serves them.
func (b *setup) addSlots() {
	require.NoError(b.t, b.admin.Do(context.Background(), "cluster", "addslotsrange", 0, 16383).Err())
	redistest.Await(b.t, 10*time.Second, "the Cluster is up", func() bool {
		return strings.Contains(b.admin.ClusterInfo(context.Background()).Val(), "cluster_state:ok")
	})
}

func loseSlots(b *setup) func() {
	require.NoError(b.t, b.admin.Do(context.Background(), "cluster", "delslotsrange", 0, 16383).Err())
	return b.addSlots
}

// evict fills the server with other keys until it has evicted those of the rules.
func evict(b *setup) func() {
	ctx := context.Background()
	b.config("config", "set", "maxmemory-policy", "allkeys-random")
	b.config("config", "set", "maxmemory", "2mb")
	few := redisKey("limit", "few", "global-1h", "")
	for i := 0; i < 200_000 && b.admin.Exists(ctx, few).Val() > 0; i++ {
		pipe := b.admin.Pipeline()
		for range 100 {
			pipe.Set(ctx, fmt.Sprint(rand.Uint64()), "0123456789", 0)
		}
		_, _ = pipe.Exec(ctx)
	}
	return b.config("config", "set", "maxmemory", "0")("ping")
}

// holdPool makes the program use up the connections of its own client.
func holdPool(b *setup) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for i := range 2 {
		done.Go(func() {
			for ctx.Err() == nil {
				b.client.BLPop(context.Background(), 2*time.Second, fmt.Sprint("list ", i))
			}
		})
	}
	return func() {
		cancel()
		for i := range 2 {
			b.admin.RPush(context.Background(), fmt.Sprint("list ", i), "end")
		}
		done.Wait()
	}
}

func maxClients(b *setup) func() {
	end := b.config("config", "set", "maxclients", "1")("config", "set", "maxclients", "10000")
	require.NoError(b.t, b.admin.Do(context.Background(), "client", "kill", "type", "normal", "skipme", "yes").Err())
	return end
}

// busy runs an endless script until the fault ends.
func busy(b *setup) func() {
	b.config("config", "set", "lua-time-limit", "20")
	killer := b.server.Client()
	var done sync.WaitGroup
	done.Go(func() { b.admin.Eval(context.Background(), "while true do end", nil) })
	return func() {
		require.NoError(b.t, killer.ScriptKill(context.Background()).Err())
		done.Wait()
	}
}

// wrongType puts a list where the few are counted. A client could cause such an error
// if a program let it choose keys, so that it must not lead to admission.
func wrongType(b *setup) func() {
	ctx, key := context.Background(), redisKey("limit", "few", "global-1h", "")
	kept := must.Get(b.admin.Dump(ctx, key).Result())(b.t)
	must.Get(b.admin.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		return p.RPush(ctx, key, "a list").Err()
	}))(b.t)
	return func() {
		require.NoError(b.t, b.admin.RestoreReplace(ctx, key, time.Hour, kept).Err())
	}
}

// preloadClock makes the servers that the test starts afterwards read their wall clock
// with an offset, which is in a file.
func preloadClock(t *testing.T) *os.File {
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux and a C compiler to move the clock of Redis: ", err)
	}
	library := filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", library, "testdata/clock.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "offset")))(t)
	t.Cleanup(func() { file.Close() })
	must.Get(file.Write(make([]byte, 8)))(t)
	t.Setenv("LD_PRELOAD", library)
	t.Setenv("LIMIT_CLOCK", file.Name())
	return file
}

// shift moves the clock of the server, and leaves it there.
func shift(by time.Duration) func(*setup) func() {
	return func(b *setup) func() {
		before := b.admin.Time(b.t.Context()).Val()
		offset := binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds()))
		must.Get(b.clock.WriteAt(offset, 0))(b.t)
		moved := b.admin.Time(b.t.Context()).Val().Sub(before)
		require.InDelta(b.t, by.Seconds(), moved.Seconds(), 60, "the clock of Redis moves")
		return func() {}
	}
}
