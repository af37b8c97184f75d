package control_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
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

// An instance follows the documents of a kind.
type instance struct {
	t       testing.TB
	client  *redis.Client
	control *control.Control

	mu        sync.Mutex
	documents map[string]control.Document
	calls     int
}

// follow starts an instance with a client of its own.
func follow(t testing.TB, addr string) *instance {
	t.Helper()
	i := &instance{t: t, client: redis.NewClient(&redis.Options{Addr: addr})}
	t.Cleanup(func() { i.client.Close() })
	i.control = control.New(i.client, &control.Options{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.NoError(t, i.control.Watch(ctx, "flags", func(documents map[string]control.Document) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.documents, i.calls = maps.Clone(documents), i.calls+1
	}))
	return i
}

func (i *instance) put(name, value string, expires time.Duration) {
	i.t.Helper()
	require.NoError(i.t, i.control.Put(i.t.Context(), "flags", name, []byte(value), expires, "ann"))
}

// names returns what the instance knows: "name=value", sorted.
func (i *instance) names() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []string
	for name, d := range i.documents {
		list = append(list, name+"="+string(d.Value))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// know waits until all instances know documents, and returns how long that took.
func know(t testing.TB, want string, instances ...*instance) time.Duration {
	t.Helper()
	start := time.Now()
	return redistest.Await(t, 10*time.Second, want, func() bool {
		return !slices.ContainsFunc(instances, func(i *instance) bool { return i.names() != want })
	}).Sub(start)
}

func three(t testing.TB, addr string) (a, b, c *instance) {
	return follow(t, addr), follow(t, addr), follow(t, addr)
}

func TestChanges(t *testing.T) {
	server := redistest.Launch(t)
	a, b, c := three(t, server.Addr)
	assert.Equal(t, 1, c.calls, "before Watch returns")

	a.put("x", "1", 0)
	know(t, "x=1", a, b, c)
	b.put("x", "2", time.Hour)
	c.put("y", "\x00 binary\n", 0)
	know(t, "x=2 y=\x00 binary\n", a, b, c)
	deleted := must.Get(a.control.Delete(t.Context(), "flags", "y", "bob"))(t)
	assert.True(t, deleted)
	know(t, "x=2", a, b, c)
	deleted = must.Get(a.control.Delete(t.Context(), "flags", "y", "bob"))(t)
	assert.False(t, deleted)

	d := c.documents["x"]
	assert.Equal(t, "ann", d.By)
	assert.WithinDuration(t, time.Now(), d.At, time.Minute)
	assert.WithinDuration(t, time.Now().Add(time.Hour), d.Expires, time.Minute)
	require.Equal(t, "x=2", follow(t, server.Addr).names())
	documents := must.Get(a.control.Read(t.Context(), "flags"))(t)
	assert.Equal(t, []any{1, "2"}, []any{len(documents), string(documents["x"].Value)})

	history := must.Get(a.control.History(t.Context(), "flags"))(t)
	require.Len(t, history, 4)
	for i, want := range []control.Change{{Name: "y", By: "bob", Deleted: true}, {Name: "y", By: "ann"}, {Name: "x", By: "ann"}, {Name: "x", By: "ann"}} {
		assert.WithinDuration(t, time.Now(), history[i].At, time.Minute)
		assert.Equal(t, i == 2, !history[i].Expires.IsZero())
		history[i].At, history[i].Expires = time.Time{}, time.Time{}
		assert.Equal(t, want, history[i])
	}
	keys := must.Get(a.client.Keys(t.Context(), "*").Result())(t)
	for _, key := range keys {
		assert.True(t, strings.HasPrefix(key, "limit:control:{limit}:flags:"), key)
	}
}

// TestWithinASecond measures how long a change takes to reach three instances.
func TestWithinASecond(t *testing.T) {
	server := redistest.Launch(t)
	a, b, c := three(t, server.Addr)
	var times []time.Duration
	for i := range 10 {
		a.put("x", fmt.Sprint(i), 0)
		times = append(times, know(t, fmt.Sprint("x=", i), a, b, c))
	}
	slices.Sort(times)
	t.Logf("all three instances have a change after %v (median), %v (longest)", times[5], times[9])
}

// TestExpiry checks that documents end, and that they do so without Redis.
func TestExpiry(t *testing.T) {
	server := redistest.Launch(t)
	a, b, c := three(t, server.Addr)
	a.put("x", "1", 2*time.Second)
	a.put("y", "1", 4*time.Second)
	a.put("z", "1", 0)
	know(t, "x=1 y=1 z=1", a, b, c)
	know(t, "y=1 z=1", a, b, c)
	server.Kill()
	know(t, "z=1", a, b, c)
}

// TestWatchEnds checks that no goroutine is left after the context has ended, while Redis
// works and after it has failed.
func TestWatchEnds(t *testing.T) {
	server := redistest.Launch(t)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
	c := control.New(client, &control.Options{Log: slog.New(slog.DiscardHandler)})
	before := runtime.NumGoroutine()
	for _, works := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan bool, 100)
		for range 20 {
			require.NoError(t, c.Watch(ctx, "flags", func(map[string]control.Document) { called <- true }))
		}
		require.NoError(t, c.Put(t.Context(), "flags", fmt.Sprint("x", works), nil, 0, "ann"))
		for range 40 { // at once, and after the change
			<-called
		}
		if !works {
			server.Kill()
		}
		cancel()
		redistest.Await(t, 10*time.Second, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// TestRestart loses the data of Redis: the instances still know the documents, and
// write them back.
func TestRestart(t *testing.T) {
	server := redistest.Launch(t)
	a, b, c := three(t, server.Addr)
	for i := range 5 {
		a.put("x", fmt.Sprint(i), 0)
	}
	a.put("y", "1", time.Hour)
	a.put("z", "1", 2*time.Second)
	know(t, "x=4 y=1 z=1", a, b, c)
	server.Kill()
	assert.Error(t, a.control.Put(t.Context(), "flags", "w", nil, 0, "ann"))
	know(t, "x=4 y=1", a, b, c)
	server.Restart()
	// Another program writes before they are back, or after: that stays too.
	other := control.New(server.Client(), nil)
	require.NoError(t, other.Put(t.Context(), "flags", "x", []byte("new"), 0, "ann"))
	know(t, "x=new y=1", a, b, c)
	newcomer := follow(t, server.Addr)
	know(t, "x=new y=1", newcomer)
	assert.WithinDuration(t, time.Now().Add(time.Hour), newcomer.documents["y"].Expires, time.Minute)
	a.put("y", "2", 0)
	know(t, "x=new y=2", a, b, c, newcomer)
	history := must.Get(a.control.History(t.Context(), "flags"))(t)
	assert.True(t, slices.ContainsFunc(history, func(c control.Change) bool { return c.Name == "" && c.By == "a restore" }))
}

// TestFarBehind checks an instance that misses more changes than the history has.
func TestFarBehind(t *testing.T) {
	server := redistest.Launch(t)
	a := follow(t, server.Addr)
	a.put("old", "1", 0)
	know(t, "old=1", a)
	ctx := t.Context()
	writer := control.New(server.Client(), nil)
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for i := range 600 {
				assert.NoError(t, writer.Put(ctx, "flags", fmt.Sprint("x", n), fmt.Append(nil, i), 0, "ann"))
			}
		})
	}
	must.Get(writer.Delete(ctx, "flags", "old", "ann"))(t)
	writers.Wait()
	know(t, "x0=599 x1=599 x2=599 x3=599", a, follow(t, server.Addr))
	assert.Less(t, a.calls, 500, "changes share calls")
	history := must.Get(writer.History(ctx, "flags"))(t)
	assert.Len(t, history, control.MaxHistory)
}

func TestBounds(t *testing.T) {
	client := redistest.Real(t)
	c := control.New(client, &control.Options{Prefix: "other"})
	ctx := t.Context()
	put := func(name string, size int) error {
		return c.Put(ctx, "flags", name, make([]byte, size), 0, "ann")
	}
	assert.EqualError(t, put("x", control.MaxValue+1), "control: a value of 1048577 bytes: write at most 1048576")
	for i := range 63 {
		require.NoError(t, put(fmt.Sprint("x", i), control.MaxValue))
	}
	err := put("y", control.MaxValue)
	assert.ErrorIs(t, err, control.ErrFull)
	assert.EqualError(t, err, "control: the kind is full: the documents of flags would have more than 64 MiB: delete some, or write shorter ones")
	require.NoError(t, put("x0", control.MaxValue), "one is replaced")
	must.Get(c.Delete(ctx, "flags", "x1", "ann"))(t)
	require.NoError(t, put("y", control.MaxValue))

	require.NoError(t, client.FlushDB(ctx).Err())
	require.NoError(t, client.Eval(ctx, `for i = 1, 100000 do
		redis.call('HSET', KEYS[1], i, '1 0 0 ')
		redis.call('ZADD', KEYS[2], i <= 100000 - 150 and '9e15' or '1', i)
	end
	return 1`, []string{"other:control:{other}:flags:documents", "other:control:{other}:flags:expiries"}).Err())
	require.NoError(t, put("x", 1), "some had ended")
	require.NoError(t, client.ZRemRangeByScore(ctx, "other:control:{other}:flags:expiries", "-inf", "1").Err())
	for i := range 99 {
		require.NoError(t, put(fmt.Sprint("y", i), 1))
	}
	err = put("z", 1)
	assert.ErrorIs(t, err, control.ErrFull)
	assert.EqualError(t, err, "control: the kind is full: flags has 100000 documents: delete some, or let them end")
	require.NoError(t, put("x", 1), "one is replaced")

	for name, call := range map[string]func() error{
		`control: kind "Flags": write 1 to 64 of a to z, 0 to 9 and -`: func() error { return c.Put(ctx, "Flags", "x", nil, 0, "ann") },
		`control: kind "": write`:                                      func() error { return c.Watch(ctx, "", nil) },
		`control: kind "a:b": write`:                                   func() error { _, err := c.History(ctx, "a:b"); return err },
		`control: name "": write 1 to 512 bytes`:                       func() error { return put("", 0) },
		`control: name "a\n": write 1 to 512 bytes`:                    func() error { return put("a\n", 0) },
		`control: name "\xff": write 1 to 512 bytes`:                   func() error { return put("\xff", 0) },
		`control: by "": write 1 to 512 bytes`:                         func() error { _, err := c.Delete(ctx, "flags", "x", ""); return err },
		`control: a document that ended 1s ago: write`:                 func() error { return c.Put(ctx, "flags", "x", nil, -time.Second, "ann") },
	} {
		assert.ErrorContains(t, call(), name)
	}
	assert.Panics(t, func() { control.New(nil, nil) })
	assert.Panics(t, func() { control.New((*redis.Client)(nil), nil) })
	assert.Panics(t, func() { control.New(client, &control.Options{Prefix: "{x}"}) })
}

// TestInvalid checks that a document that another program has broken is logged, and
// keeps no other one from being in force.
func TestInvalid(t *testing.T) {
	server := redistest.Launch(t)
	client := server.Client()
	var log bytes.Buffer
	c := control.New(client, &control.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, c.Put(t.Context(), "flags", "good", nil, 0, "ann"))
	for i, text := range []string{"", "1", "1 2 3 ", "x 2 0 ", "-1 2 0 ", "1 2 9 ab"} {
		require.NoError(t, client.HSet(t.Context(), "limit:control:{limit}:flags:documents", "x", text).Err())
		require.NoError(t, client.Set(t.Context(), "limit:control:{limit}:flags:version", fmt.Sprint(i+2, " ", text), 0).Err())
		ctx, cancel := context.WithCancel(t.Context())
		var names []string
		require.NoError(t, c.Watch(ctx, "flags", func(documents map[string]control.Document) {
			names = slices.Collect(maps.Keys(documents))
		}))
		cancel()
		assert.Equal(t, []string{"good"}, names, "the others are in force")
		assert.Contains(t, log.String(), "invalid documents have no effect: write them again, or delete them\" code=LIMIT-403 kind=flags documents=1 first=x", text)
		log.Reset()
	}
}

// TestInvalidChange checks that an instance goes on with what it knows of a document
// that has become invalid.
func TestInvalidChange(t *testing.T) {
	server := redistest.Launch(t)
	a := follow(t, server.Addr)
	a.put("x", "1", 0)
	a.put("y", "1", 0)
	know(t, "x=1 y=1", a)
	require.NoError(t, a.client.HSet(t.Context(), "limit:control:{limit}:flags:documents", "x", "no document").Err())
	a.put("y", "2", 0)
	know(t, "x=1 y=2", a)
	newcomer := follow(t, server.Addr)
	know(t, "y=2", newcomer)
	a.put("x", "3", 0)
	know(t, "x=3 y=2", a, newcomer)
}

// TestCluster runs on a Cluster, where the keys of a script must share a slot.
func TestCluster(t *testing.T) {
	client := redistest.Cluster(t)
	c := control.New(client, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	known := make(chan int, 100)
	require.NoError(t, c.Watch(ctx, "flags", func(documents map[string]control.Document) { known <- len(documents) }))
	require.Equal(t, 0, <-known)
	require.NoError(t, c.Put(ctx, "flags", "x", []byte("1"), time.Hour, "ann"))
	require.Equal(t, 1, <-known)
	must.Get(c.Delete(ctx, "flags", "x", "ann"))(t)
	require.Equal(t, 0, <-known)
	history := must.Get(c.History(ctx, "flags"))(t)
	assert.Len(t, history, 2)
}
