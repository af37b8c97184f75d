package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// problemsOf checks a store, and returns the text of each problem by its code.
func problemsOf(t *testing.T, client redis.UniversalClient, options *Options) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := New(client, options).Check(t.Context())
	if err == nil {
		return found
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var d *core.Diagnosis
		require.ErrorAs(t, err, &d)
		assert.NotContains(t, found, d.Code)
		found[d.Code] = d.Err.Error()
	}
	return found
}

// as returns a client of a server for a user of limited rights.
func as(t *testing.T, admin *redis.Client, rules ...string) *redis.Client {
	t.Helper()
	words := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~limit:*"}
	for _, r := range rules {
		words = append(words, r)
	}
	require.NoError(t, admin.Do(t.Context(), words...).Err())
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "app", Password: "secret"}))
	return client
}

// TestCheckHealthy finds nothing, with all rights and with those that are documented,
// and leaves no key.
func TestCheckHealthy(t *testing.T) {
	admin := redistest.Real(t)
	assert.Empty(t, problemsOf(t, admin, nil))
	assert.Empty(t, problemsOf(t, admin, &Options{Prefix: "shop", Secret: make([]byte, 16)}))
	assert.Empty(t, problemsOf(t, admin, &Options{Spread: 4}))
	require.NoError(t, admin.Do(t.Context(), "ACL", "LOG", "RESET").Err())
	assert.Empty(t, problemsOf(t, as(t, admin, strings.Fields("+"+strings.ToLower(strings.Join(redisfacts.Needed, " +")))...), nil))
	refused := must.Get(admin.Do(t.Context(), "ACL", "LOG").Slice())(t)
	for _, entry := range refused {
		object := entry.(map[any]any)["object"]
		assert.Regexp(t, `^(hello|client)(\||$)`, object, // Redis 6 leaves out the subcommand
			"the check asks for nothing that a store does not need; go-redis does")
	}
	assert.Zero(t, admin.DBSize(t.Context()).Val())
}

// TestCheckRights takes rights away.
func TestCheckRights(t *testing.T) {
	admin := redistest.Real(t)
	all := "+" + strings.ToLower(strings.Join(redisfacts.Needed, " +"))
	for _, command := range redisfacts.Needed {
		found := problemsOf(t, as(t, admin, append(strings.Fields(all), "-"+strings.ToLower(command))...), nil)
		require.Len(t, found, 1, command)
		if command == "INFO" {
			assert.Contains(t, found["LIMIT-305"], `user "app" may not run INFO`)
			assert.Contains(t, found["LIMIT-305"], "ACL SETUSER app +info")
			continue
		}
		assert.Contains(t, found["LIMIT-303"], "redisstore: Redis "+admin.Options().Addr+`: user "app" may not run `+command+` on keys that begin with "limit:"`)
		assert.Contains(t, found["LIMIT-303"], "redis-cli ACL SETUSER app '~limit:*' +evalsha ")
	}
	found := problemsOf(t, as(t, admin, "+@all"), &Options{Prefix: "shop"})
	assert.Contains(t, found["LIMIT-303"], `may not run EVALSHA, EVAL on keys that begin with "shop:"`)
	found = problemsOf(t, as(t, admin, "-@all"), nil)
	assert.Len(t, found, 2)
	assert.Contains(t, found, "LIMIT-303")
	assert.Contains(t, found, "LIMIT-305")
}

// TestCheckRenamed has servers whose configuration takes a command away.
func TestCheckRenamed(t *testing.T) {
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	for command, want := range map[string][2]string{
		"EVALSHA": {"LIMIT-302", "it runs no scripts"}, "EVAL": {"LIMIT-302", "it runs no scripts"}, "INFO": {"LIMIT-305", "may not run INFO"},
	} {
		client := redistest.Launch(t, "--rename-command", command, "").Client()
		found := problemsOf(t, client, nil)
		assert.Len(t, found, 1, command)
		assert.Contains(t, found[want[0]], want[1], command)
		_, err := storetest.Take(t.Context(), New(client, nil), "p", charges)
		assert.Equal(t, command != "INFO", errors.Is(err, core.ErrUnavailable), "%s: %v", command, err)
	}
}

// TestCheckNoCluster has clients of a Cluster on a server that is none, and on one without slots.
func TestCheckNoCluster(t *testing.T) {
	charges := []core.Charge{charge("r", "k", 1000, time.Minute)}
	for enabled, why := range map[string]string{"no": "cluster support disabled", "yes": "it serves no slots"} {
		server := redistest.Launch(t, "--cluster-enabled", enabled)
		client := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}}))
		assert.Contains(t, problemsOf(t, client, nil)["LIMIT-301"], why)
		_, err := storetest.Take(t.Context(), New(client, nil), "p", charges)
		assert.ErrorIs(t, err, core.ErrUnavailable, why)
	}
}

// TestCheckUnwritable has servers that refuse writes.
func TestCheckUnwritable(t *testing.T) {
	primary := redistest.Launch(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr)
	for _, readOnly := range []string{"yes", "no"} {
		replica := redistest.Launch(t, "--replicaof", host+" "+port, "--replica-read-only", readOnly).Client()
		redistest.Await(t, 10*time.Second, "a replica in sync", func() bool {
			return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		found := problemsOf(t, replica, nil)
		require.Len(t, found, 1)
		assert.Contains(t, found["LIMIT-302"], "it is a replica: give the client the address of the primary, "+primary.Addr)
		limited := problemsOf(t, as(t, replica, "+@all", "-info"), nil)
		assert.Equal(t, readOnly == "yes", strings.Contains(limited["LIMIT-302"], "it is a replica"), "without INFO")
	}
	assert.Empty(t, problemsOf(t, primary.Client(), nil))

	full := redistest.Launch(t, "--maxmemory", "1").Client()
	assert.Contains(t, problemsOf(t, full, nil)["LIMIT-302"], "its memory is full, so it refuses writes: raise maxmemory (OOM ")

	alone := redistest.Launch(t, "--min-replicas-to-write", "1").Client()
	if found := problemsOf(t, alone, nil); len(found) > 0 || !strings.Contains(alone.Info(t.Context(), "server").Val(), "redis_version:6.") {
		assert.Contains(t, found["LIMIT-302"], "fewer replicas in sync than min-replicas-to-write") // Redis 6 lets scripts write
	}

	dir := filepath.Join(t.TempDir(), "gone")
	require.NoError(t, os.Mkdir(dir, 0o700))
	disk := redistest.Launch(t, "--dir", dir, "--save", "3600 1").Client()
	assert.Empty(t, problemsOf(t, disk, nil))
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, disk.BgSave(t.Context()).Err())
	redistest.Await(t, 10*time.Second, "a failed snapshot", func() bool {
		return strings.Contains(disk.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	assert.Contains(t, problemsOf(t, disk, nil)["LIMIT-302"], "it cannot write to its disk")
}

// TestCheckUnwritableRedis6 has the errors that Redis 6 gives to commands in scripts.
func TestCheckUnwritableRedis6(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	for problem, want := range map[string]string{
		"-OOM command not allowed when used memory > 'maxmemory'.\r\n":               "its memory is full, so it refuses writes: raise maxmemory (OOM command not allowed when used memory > 'maxmemory'.)",
		"-READONLY You can't write against a read only replica.\r\n":                 "it is a replica: give the client the address of the primary",
		"-MISCONF Redis is configured to save RDB snapshots, but it is not able\r\n": "it cannot write to its disk",
	} {
		problem = "@user_script: 9: " + problem
		proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.Forge, Reply: fmt.Sprintf("*4\r\n$3\r\nGET\r\n$0\r\n\r\n$3\r\nSET\r\n$%d\r\n%s\r\n", len(problem), problem)}, "eval"))
		found := problemsOf(t, client, nil)
		require.Len(t, found, 1)
		assert.Contains(t, found["LIMIT-302"], want)
	}
}

// TestCheckEviction has servers with every combination of the settings.
func TestCheckEviction(t *testing.T) {
	client := redistest.Real(t)
	for _, test := range []struct {
		policy, maxmemory string
		evicts            bool
	}{
		{"noeviction", "0", false}, {"noeviction", "100mb", false}, {"allkeys-lru", "0", false},
		{"allkeys-lru", "100mb", true}, {"volatile-ttl", "100mb", true},
	} {
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", test.maxmemory).Err())
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", test.policy).Err())
		for _, client := range []*redis.Client{client, as(t, client, "+@all", "-config")} {
			found := problemsOf(t, client, nil)
			if !test.evicts {
				assert.Empty(t, found, test)
				continue
			}
			require.Len(t, found, 1, test)
			assert.Contains(t, found["LIMIT-304"], "(maxmemory-policy "+test.policy+")")
			assert.Contains(t, found["LIMIT-304"], "redis-cli CONFIG SET maxmemory-policy noeviction")
		}
	}
}

// TestCheckUnreachable has a port without a server, a wrong password, a paused server,
// and contexts that end.
func TestCheckUnreachable(t *testing.T) {
	server := redistest.Launch(t)
	admin := server.Client()
	dead := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	dead.Close()
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: dead.Addr().String()}))
	start := time.Now()
	store := New(client, nil)
	err := store.Check(t.Context())
	require.ErrorIs(t, err, core.ErrUnavailable)
	assert.Contains(t, err.Error(), "LIMIT-301: redisstore: Redis "+dead.Addr().String()+": ")
	assert.Contains(t, err.Error(), "connection refused: start it, let this machine connect to it, or correct the address of the client")
	assert.Less(t, time.Since(start), checkTimeout)
	t.Logf("dead port: %v", time.Since(start))

	as(t, admin, "+@all")
	wrong := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: "app", Password: "typo"}))
	text := problemsOf(t, wrong, nil)["LIMIT-301"]
	assert.Contains(t, text, "WRONGPASS")
	assert.Contains(t, text, "write its Username and Password")
	assert.NotContains(t, text, "typo")

	server.Pause()
	defer server.Resume()
	for _, deadlines := range []bool{false, true} {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: deadlines}))
		store := New(client, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := store.Check(ctx)
		cancel()
		assert.Less(t, time.Since(start), checkTimeout)
		var d *core.Diagnosis
		require.ErrorAs(t, err, &d)
		assert.Equal(t, "LIMIT-301", d.Code)
		require.ErrorIs(t, err, core.ErrUnavailable)

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		assert.Equal(t, context.Canceled, store.Check(ctx))
	}
}

// TestCheckClock answers TIME with that of another day.
func TestCheckClock(t *testing.T) {
	proxy := faultproxy.Start(t, redistest.Real(t).Options().Addr)
	for _, test := range []struct {
		ahead time.Duration
		want  string
	}{{time.Hour, "ahead of"}, {-time.Hour, "behind"}, {500 * time.Millisecond, ""}} {
		proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name != "time" {
				return faultproxy.Fault{}
			}
			return faultproxy.Fault{Kind: faultproxy.Forge, Reply: timeReply(time.Now().Add(test.ahead))}
		})
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
		found := problemsOf(t, client, nil)
		if test.want == "" {
			assert.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		assert.Regexp(t, `its clock is (1h0m0|59m59\.\d+)s `+test.want+` that of this machine`, found["LIMIT-306"])
	}
}

func timeReply(at time.Time) string {
	seconds, micros := strconv.FormatInt(at.Unix(), 10), strconv.Itoa(at.Nanosecond()/1000)
	return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(seconds), seconds, len(micros), micros)
}

// TestCheckCluster has a Cluster with one server that evicts, and one that is dead.
func TestCheckCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 2*time.Second)
	client := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
	store := New(client, nil)
	require.NoError(t, store.Check(t.Context()))

	owner := nodes.Owner(t, "x")
	evicting := owner.Client()
	require.NoError(t, evicting.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, evicting.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	found := problemsOf(t, client, nil)
	require.Len(t, found, 1)
	assert.Contains(t, found["LIMIT-304"], "redisstore: Redis "+owner.Addr+": it evicts")

	owner.Kill()
	found = problemsOf(t, client, nil)
	require.Contains(t, found, "LIMIT-301")
	assert.Contains(t, found["LIMIT-301"], owner.Addr)
}
