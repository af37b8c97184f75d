package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	"github.com/routelimit/limit/stores/storetest"
)

// TestRepliesThatAreErrors forges error replies to the script. It expects them to be
// classified, and a second call only after NOSCRIPT.
func TestRepliesThatAreErrors(t *testing.T) {
	const (
		infrastructure = true
		other          = false
	)
	replies := []struct {
		reply       string
		unavailable bool
	}{
		{"LOADING Redis is loading the dataset in memory", infrastructure},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", infrastructure},
		{"READONLY You can't write against a read only replica.", infrastructure},
		{"READONLY You can't write against a read only replica. script: d8f2fad9, on @user_script:9.", infrastructure},
		{"NOREPLICAS Not enough good replicas to write.", infrastructure},
		{"CLUSTERDOWN The cluster is down", infrastructure},
		{"CLUSTERDOWN Hash slot not served", infrastructure},
		{"TRYAGAIN Multiple keys request during rehashing of slot", infrastructure},
		{"MOVED 3999 127.0.0.1:6381", infrastructure},
		{"ASK 3999 127.0.0.1:6381", infrastructure},
		{"OOM command not allowed when used memory > 'maxmemory'.", infrastructure},
		{"OOM command not allowed when used memory > 'maxmemory'. script: d8f2fad9, on @user_script:9.", infrastructure},
		{"ERR Error running script (call to f_d8f2): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.", infrastructure},
		{"ERR Error running script (call to f_d8f2): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.", infrastructure},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", infrastructure},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", infrastructure},
		{"UNKILLABLE Sorry the script already executed write commands", infrastructure},
		{"NOAUTH Authentication required.", infrastructure},
		{"WRONGPASS invalid username-password pair or user is disabled.", infrastructure},
		{"ERR invalid password", infrastructure},
		{"ERR Protocol error: unauthenticated multibulk length", infrastructure},
		{"ERR This instance has cluster support disabled", infrastructure},
		{"ERR max number of clients reached", infrastructure},
		{"ERR max number of clients + cluster connections reached", infrastructure},
		{"ERR Error running script: Script killed by user with SCRIPT KILL.", infrastructure},
		{"NOSCRIPT No matching script. Please use EVAL.", infrastructure},
		{"ERR unknown command 'evalsha', with args beginning with: 'd8f2fad9' '1' ", infrastructure},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", other},
		{"CROSSSLOT Keys in request don't hash to the same slot", other},
		{"ERR user_script:1: attempt to index a nil value script: d8f2fad9, on @user_script:1.", other},
		{"ERR Error running script (call to f_d8f2): @user_script:9: user_script:9: attempt to index a nil value", other},
		{"ERR Protocol error: invalid bulk length", other},
		{"ERR Number of keys can't be negative", other},
		{"ERR the key is LOADING a lot", other},
		{"ERR value OOM", other},
		{"NOSCRIPTS", other},
		{"SOMETHING unknown", other},
	}
	require.GreaterOrEqual(t, len(replies), 25)

	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	store := New(client, &Options{Timeout: 10 * time.Second})
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	for _, test := range replies {
		calls := 0
		proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name != "evalsha" && c.Name != "eval" || slices.ContainsFunc(c.Words, func(w string) bool { return strings.Contains(w, ":token:") }) {
				return faultproxy.Fault{}
			}
			calls++
			return faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-" + test.reply + "\r\n"}
		})
		_, err := storetest.Take(t.Context(), store, "p", charges)
		require.Error(t, err, test.reply)
		assert.Equal(t, test.unavailable, errors.Is(err, core.ErrUnavailable), test.reply)
		assert.ErrorContains(t, err, test.reply)
		want := 1
		if strings.HasPrefix(test.reply, "NOSCRIPT ") {
			want = 2
		}
		assert.Equal(t, want, calls, test.reply)
	}

	// Replies that no script made.
	for _, reply := range []string{"+OK\r\n", ":1\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n", "*1\r\n:5\r\n", "*2\r\n:1\r\n+x\r\n", "*2\r\n:1\r\n$-1\r\n", "?\r\n", "\r\n", "_\r\n"} {
		proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.Forge, Reply: reply}, "evalsha"))
		_, err := storetest.Take(t.Context(), store, "p", charges)
		assert.ErrorIs(t, err, core.ErrUnavailable, "%q", reply)
		proxy.Break(nil)
		_, err = storetest.Take(t.Context(), store, "p", charges)
		assert.NoError(t, err, "the next one, after %q", reply)
	}
}

// TestErrorsOfTheClient has a client fail on its side of the network.
func TestErrorsOfTheClient(t *testing.T) {
	var fault error
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}))
	client.AddHook(hook(func(context.Context, redis.Cmder, redis.ProcessHook) error { return fault }))
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	for _, fault = range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted, context.DeadlineExceeded,
		context.Canceled, redis.Nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}, &net.DNSError{IsTimeout: true},
		fmt.Errorf("a hook: %w", redis.ErrPoolTimeout), errors.New("a circuit breaker is open"),
	} {
		_, err := storetest.Take(t.Context(), New(client, nil), "p", charges)
		assert.ErrorIs(t, err, core.ErrUnavailable, "%v", fault)
	}

	// What is not of the infrastructure.
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := storetest.Take(gone, New(client, nil), "p", charges)
	assert.Equal(t, context.Canceled, err)
	_, err = storetest.Take(t.Context(), New(client, nil), "p", []core.Charge{{Rule: "r", Cost: -1}})
	assert.NotErrorIs(t, err, core.ErrUnavailable)
	assert.Error(t, err)
}

// TestPanicsOfAHook has a hook of the client panic: a lone caller sees it, and
// no goroutine of the store ends the program.
func TestPanicsOfAHook(t *testing.T) {
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}))
	client.AddHook(hook(func(context.Context, redis.Cmder, redis.ProcessHook) error { panic("a bug") }))
	store := New(struct{ redis.UniversalClient }{client}, nil) // a type that the store knows nothing of
	_, err := storetest.Take(t.Context(), store, "p", charges)
	assert.ErrorIs(t, err, errPanicked)
	assert.NotErrorIs(t, err, core.ErrUnavailable)

	store = New(client, nil)
	assert.PanicsWithValue(t, "a bug", func() { storetest.Take(t.Context(), store, "p", charges) })
	b := store.batcher(ask(charges))
	idle(t, b)
	r := &request{ctx: t.Context(), charges: charges, done: make(chan struct{}, 1)}
	b.send([]*request{r})
	<-r.done
	assert.ErrorIs(t, r.err, errPanicked)
}

// TestUnavailableStates brings a real server into the states in which it cannot
// decide. The store reports each, changes nothing, and decides again afterwards.
func TestUnavailableStates(t *testing.T) {
	states := []struct {
		name       string
		begin, end func(t *testing.T, server *redistest.Server, direct *redis.Client)
		want       string
	}{
		{"OOM", set("maxmemory", "1"), set("maxmemory", "0"), "OOM"},
		{"READONLY", func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		}, func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.Do(t.Context(), "replicaof", "no", "one").Err())
		}, "READONLY"},
		{"MASTERDOWN", func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.ConfigSet(t.Context(), "replica-serve-stale-data", "no").Err())
			require.NoError(t, direct.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		}, func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.Do(t.Context(), "replicaof", "no", "one").Err())
		}, "MASTERDOWN"},
		{"NOREPLICAS", set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"), "NOREPLICAS"},
		{"NOAUTH", set("requirepass", "secret"), set("requirepass", ""), ""}, // or the end of the connection
		{"MAXCLIENTS", func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.ConfigSet(t.Context(), "maxclients", "1").Err())
		}, func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.ConfigSet(t.Context(), "maxclients", "100").Err())
		}, ""}, // or the end of the connection
		{"BUSY", func(t *testing.T, server *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.ConfigSet(t.Context(), "lua-time-limit", "1").Err())
			slow := server.Client()
			go slow.Eval(context.Background(), "while true do end", nil)
			redistest.Await(t, 10*time.Second, "a busy server", func() bool {
				return redis.HasErrorPrefix(direct.Ping(t.Context()).Err(), "BUSY")
			})
		}, func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
			require.NoError(t, direct.ScriptKill(t.Context()).Err())
			redistest.Await(t, 10*time.Second, "an idle server", func() bool { return direct.Ping(t.Context()).Err() == nil })
		}, "BUSY"},
	}
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			redistest.Real(t)
			server := redistest.Launch(t)
			direct := server.Client()
			client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
			store := New(client, &Options{Timeout: 10 * time.Second})
			charges, counted := counter(t, direct)
			if state.name != "MAXCLIENTS" && state.name != "NOAUTH" { // which concern only new connections
				storetest.MustTake(t, store, charges...)
			}
			before := counted()
			state.begin(t, server, direct)
			for range 3 {
				_, err := storetest.Take(t.Context(), store, "p", charges)
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.ErrorContains(t, err, state.want)
			}
			state.end(t, server, direct)
			assert.Equal(t, before, counted(), "nothing was taken")
			began := time.Now()
			redistest.Await(t, 10*time.Second, "a decision", func() bool {
				_, err := storetest.Take(t.Context(), store, "p", charges)
				return err == nil
			})
			t.Logf("back after %v", time.Since(began))
		})
	}
}

// set returns a step that sets a parameter of the server.
func set(name, value string) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, direct *redis.Client) {
		require.NoError(t, direct.ConfigSet(t.Context(), name, value).Err())
	}
}
