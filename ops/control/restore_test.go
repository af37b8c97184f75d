package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
)

// become gives a server the data of another one, at once.
func become(t *testing.T, to, from *redis.Client) {
	t.Helper()
	ctx := t.Context()
	keys := must.Get(from.Keys(ctx, "*").Result())(t)
	must.Get(to.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for _, key := range keys {
			p.Restore(ctx, key, 0, from.Dump(ctx, key).Val())
		}
		return nil
	}))(t)
}

// TestFailover loses changes to a primary that has made others since: fewer, as many,
// or more. What was lost is written back, unless the new primary has a later change of
// it. What it has deleted stays deleted.
func TestFailover(t *testing.T) {
	for n, want := range []string{
		"d=1 e=1 lost=1 x=2 y=1",
		"e=1 lost=1 x=2 y=1",
		"e=1 lost=1 new=1 x=2 y=1",
		"e=2 lost=1 new=1 x=2 y=1",
		"e=2 lost=1 new=1 x=2",
		"e=2 f=1 lost=1 new=1 x=2",
		"e=2 f=2 lost=1 new=1 x=2",
	} {
		t.Run(fmt.Sprint(n, " changes"), func(t *testing.T) {
			server, replica := redistest.Launch(t), redistest.Launch(t)
			a, b, c := three(t, server.Addr)
			for _, name := range []string{"d", "e", "x", "y"} {
				a.put(name, "1", 0)
			}
			a.put("again", "1", 0)
			must.Get(a.control.Delete(t.Context(), "flags", "again", "ann"))(t)
			time.Sleep(2 * time.Millisecond) // times of changes are in milliseconds
			become(t, replica.Client(), server.Client())
			a.put("x", "2", 0)
			a.put("y", "1", 0)
			a.put("lost", "1", 0)
			a.put("again", "2", 0)
			want := "again=2 " + want
			know(t, "again=2 d=1 e=1 lost=1 x=2 y=1", a, b, c)
			time.Sleep(2 * time.Millisecond)

			primary := control.New(replica.Client(), nil)
			put := func(name, value string) {
				require.NoError(t, primary.Put(t.Context(), "flags", name, []byte(value), 0, "bob"))
			}
			remove := func(name string) {
				must.Get(primary.Delete(t.Context(), "flags", name, "bob"))(t)
			}
			for _, change := range []func(){
				func() { remove("d") }, func() { put("new", "1") }, func() { put("e", "2") },
				func() { remove("y") }, func() { put("f", "1") }, func() { put("f", "2") },
			}[:n] {
				change()
			}
			become(t, server.Client(), replica.Client())
			know(t, want, a, b, c)
			know(t, want, follow(t, server.Addr))
			b.put("z", "1", 0)
			know(t, want+" z=1", a, b, c)
			deleted := must.Get(c.control.Delete(t.Context(), "flags", "lost", "bob"))(t)
			require.True(t, deleted)
			know(t, strings.Replace(want, "lost=1 ", "", 1)+" z=1", a, b, c)
		})
	}
}

// TestLostTwice has the first instance to write back know less than others: they write
// the rest.
func TestLostTwice(t *testing.T) {
	server := redistest.Launch(t)
	a, b, c := three(t, server.Addr)
	a.put("x", "1", 0)
	know(t, "x=1", a, b, c)
	old := redistest.Launch(t)
	become(t, old.Client(), server.Client())
	late := follow(t, old.Addr) // knows x
	know(t, "x=1", late)
	b.put("y", "1", 0)
	know(t, "x=1 y=1", a, b, c)
	require.NoError(t, old.Client().FlushAll(t.Context()).Err())
	redistest.Await(t, 3*time.Second, "x is written back", func() bool {
		return old.Client().HLen(t.Context(), "limit:control:{limit}:flags:documents").Val() == 1
	})
	become(t, server.Client(), old.Client())
	newcomer := follow(t, server.Addr)
	know(t, "x=1 y=1", a, b, c, newcomer)
}

// counted notes the largest call of a script.
type counted struct {
	mu                     sync.Mutex
	calls, arguments, most int // most bytes
}

func (c *counted) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			bytes := 0
			for _, arg := range cmd.Args() {
				bytes += len(fmt.Sprint(arg))
			}
			c.mu.Lock()
			c.calls, c.arguments, c.most = c.calls+1, max(c.arguments, len(cmd.Args())), max(c.most, bytes)
			c.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// TestRestoreInBatches writes many documents back, and long ones: no call of a script
// is large, and the documents are there at once for other instances.
func TestRestoreInBatches(t *testing.T) {
	const small, long = 10_000, 8
	server := redistest.Launch(t)
	writer := server.Client()
	documents := "limit:control:{limit}:flags:documents"
	require.NoError(t, writer.Eval(t.Context(), `for i = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], 'x' .. i, '0 5 3 ann1') end
		for i = 1, tonumber(ARGV[2]) do redis.call('HSET', KEYS[1], 'long' .. i, '0 5 3 ann' .. string.rep('x', 1000000)) end return 1`,
		[]string{documents}, small, long).Err())
	require.NoError(t, control.New(writer, nil).Put(t.Context(), "flags", "y", nil, 0, "ann"))

	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	var calls counted
	client.AddHook(&calls)
	require.NoError(t, control.New(client, &control.Options{Log: slog.New(slog.DiscardHandler)}).Watch(t.Context(), "flags",
		func(map[string]control.Document) {}))
	require.NoError(t, writer.FlushAll(t.Context()).Err())
	start := time.Now()
	redistest.Await(t, 10*time.Second, "all are back", func() bool {
		return writer.Exists(t.Context(), "limit:control:{limit}:flags:version").Val() == 1
	})
	assert.EqualValues(t, small+long+1, writer.HLen(t.Context(), documents).Val())
	calls.mu.Lock()
	defer calls.mu.Unlock()
	t.Logf("%d documents are back after %v, in %d calls of up to %d arguments and %d bytes", small+long+1, time.Since(start),
		calls.calls, calls.arguments, calls.most)
	assert.LessOrEqual(t, calls.arguments, 1020)
	assert.Less(t, calls.most, 1<<20+20_000)
	newcomer := follow(t, server.Addr)
	newcomer.mu.Lock()
	defer newcomer.mu.Unlock()
	assert.Len(t, newcomer.documents, small+long+1)
}
