package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

type location = redisclient.Address

// see examines the Redis at an address, and returns the findings by check.
func see(t *testing.T, o RedisOptions) map[string]Finding {
	t.Helper()
	if !strings.Contains(o.URL, "://") {
		o.URL = "redis://" + o.URL
	}
	if o.Keys == 0 {
		o.Keys = 1000
	}
	facts := must.Get(Redis(t.Context(), o))(t)
	found := make(map[string]Finding)
	for _, f := range Examine(Facts{Redis: facts}) {
		if worse(f.Verdict, found[f.Check].Verdict) {
			found[f.Check] = f
		}
	}
	return found
}

func worse(a, b Verdict) bool {
	order := []Verdict{"", OK, Skipped, Warn, Fail}
	return slices.Index(order, a) > slices.Index(order, b)
}

func addr(client *redis.Client) string { return client.Options().Addr }

// spend takes from quotas of every algorithm, so that every form is stored.
func spend(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), nil)
	for i, text := range []string{
		"5/1h global", "5/2h global", "1000/1h global", "1000/2h global", "5/1h global fixed-window",
		"5/24h global fixed-window aligned", "100/month global zone UTC", "5/1h global sliding-cells cells 10",
		"5/1h global sliding-counter", "10/1h global token-bucket burst 5", "10/1h global leaky-bucket burst 5",
		"10/1h global queue burst 4 wait 5s",
	} {
		policy := must.Get(limiter.Policy(limit.Named(fmt.Sprint("spent-", i), limit.MustParse(text).Rules()...)))(t, text)
		d := must.Get(policy.Take(t.Context(), limit.Request{}))(t, text)
		require.True(t, d.Allowed, text)
	}
}

// TestRedisInOrder examines a server as it should be, with keys of every
// algorithm.
func TestRedisInOrder(t *testing.T) {
	client := redistest.Real(t, "--appendonly", "yes", "--maxmemory", "100mb")
	spend(t, client)
	before := must.Get(client.DBSize(t.Context()).Result())(t)

	found := see(t, RedisOptions{Address: location{URL: addr(client)}})
	for _, f := range found {
		if !strings.HasSuffix(f.Check, "-latency") { // a busy machine may be slow
			assert.Equal(t, OK, f.Verdict, "%s: %s", f.Check, f.Found)
		}
	}
	assert.Contains(t, found["keys"].Found, `13 keys under "limit"; by policy: "spent-0" 1`)
	assert.Contains(t, found["permissions"].Found, `user "default" may run all`)
	assert.Contains(t, found["script-latency"].Found, "of 50 calls")

	after := must.Get(client.DBSize(t.Context()).Result())(t)
	assert.Equal(t, before, after, "it writes nothing")
}

func TestRedisEviction(t *testing.T) {
	client := redistest.Real(t, "--maxmemory", "100mb")
	for _, policy := range []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random",
		"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		f := see(t, RedisOptions{Address: location{URL: addr(client)}})["eviction"]
		if policy == "noeviction" {
			assert.Equal(t, OK, f.Verdict, policy)
			continue
		}
		assert.Equal(t, Fail, f.Verdict, policy)
		host, port, _ := net.SplitHostPort(addr(client))
		assert.Equal(t, "redis-cli -h "+host+" -p "+port+" CONFIG SET maxmemory-policy noeviction", f.Fix[0])
	}
}

// TestRedisConfigRenamed is as on services that take CONFIG away.
func TestRedisConfigRenamed(t *testing.T) {
	client := redistest.Real(t, "--rename-command", "CONFIG", "")
	found := see(t, RedisOptions{Address: location{URL: addr(client)}})
	assert.Equal(t, Skipped, found["idle-timeout"].Verdict)
	assert.Contains(t, found["idle-timeout"].Found, "unknown command")
	assert.Equal(t, OK, found["eviction"].Verdict)

	proxy := faultproxy.Start(t, client.Options().Addr)
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if c.Name != "ping" && c.Name != "evalsha" {
			return faultproxy.Fault{}
		}
		return faultproxy.Fault{Kind: faultproxy.Forge, Reply: "-ERR unknown command '" + c.Name + "'\r\n"}
	})
	found = see(t, RedisOptions{Address: location{URL: proxy.Addr()}})
	assert.Equal(t, OK, found["connect"].Verdict, found["connect"].Found)
	assert.Equal(t, Fail, found["writable"].Verdict)
	assert.Contains(t, found["writable"].Found, "unknown command 'evalsha'")
}

func TestRedisReplica(t *testing.T) {
	primary := redistest.Real(t)
	host, port, err := net.SplitHostPort(addr(primary))
	require.NoError(t, err)
	replica := redistest.Launch(t, "--replicaof", host+" "+port).Addr

	var found map[string]Finding
	require.Eventually(t, func() bool {
		found = see(t, RedisOptions{Address: location{URL: addr(primary)}})
		return len(found["connect"].Nodes) == 2 && strings.Contains(primary.Info(t.Context(), "replication").Val(), "state=online")
	}, 20*time.Second, 100*time.Millisecond)
	assert.Equal(t, Warn, found["replicas"].Verdict)

	require.NoError(t, primary.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	assert.Equal(t, OK, see(t, RedisOptions{Address: location{URL: addr(primary)}})["replicas"].Verdict)
	require.NoError(t, primary.ConfigSet(t.Context(), "min-replicas-to-write", "2").Err())
	found = see(t, RedisOptions{Address: location{URL: addr(primary)}})
	assert.Equal(t, Fail, found["replicas"].Verdict)
	assert.Contains(t, found["writable"].Found, "NOREPLICAS")

	found = see(t, RedisOptions{Address: location{URL: replica}})
	assert.Equal(t, Fail, found["role"].Verdict)
	assert.Contains(t, strings.Join(found["role"].Fix, ""), addr(primary))
}

func TestRedisFull(t *testing.T) {
	client := redistest.Real(t)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1000").Err())
	found := see(t, RedisOptions{Address: location{URL: addr(client)}})
	assert.Equal(t, Fail, found["memory"].Verdict)
	assert.Equal(t, Fail, found["writable"].Verdict)
	assert.Contains(t, found["writable"].Found, "OOM")
}

func TestRedisCluster(t *testing.T) {
	client := redistest.StartCluster(t, 2*time.Second).Client(t)
	spend(t, client)
	node := client.Options().Addrs[4]
	var found map[string]Finding
	require.Eventually(t, func() bool {
		found = see(t, RedisOptions{Address: location{URL: node, Cluster: true}})
		return len(found["version"].Nodes) == 6 && found["replicas"].Verdict != Skipped
	}, 20*time.Second, 200*time.Millisecond)
	for _, check := range []string{"connect", "role", "cluster", "writable", "permissions", "eviction", "keys-ttl", "keys-type", "keys-form", "keys-version"} {
		assert.Equal(t, OK, found[check].Verdict, "%s: %s", check, found[check].Found)
	}
	assert.Len(t, found["cluster"].Nodes, 6)
	assert.Len(t, found["writable"].Nodes, 3)
	assert.Contains(t, found["keys"].Found, "15 keys") // with a token of each primary
	assert.NotEqual(t, Skipped, found["script-latency"].Verdict, found["script-latency"].Found)

	assert.Equal(t, Fail, see(t, RedisOptions{Address: location{URL: node}})["cluster"].Verdict, "without --cluster")
}

func TestRedisDown(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	at := listener.Addr().String()
	listener.Close()
	for _, cluster := range []bool{false, true} {
		facts := must.Get(Redis(t.Context(), RedisOptions{Address: location{URL: "redis://" + at, Cluster: cluster}, Keys: 10}))(t)
		findings := Examine(Facts{Redis: facts})
		assert.Equal(t, 2, ExitCode(findings))
		assert.Equal(t, "connect", findings[0].Check)
		assert.Contains(t, findings[0].Found, "refused")
		for _, f := range findings[1:] {
			assert.Equal(t, Skipped, f.Verdict, f.Check)
		}
	}
}

func TestRedisOptions(t *testing.T) {
	for _, o := range []RedisOptions{
		{Address: location{URL: "redis://u:secret@127.0.0.1:port"}},
		{Address: location{URL: "http://u:secret@127.0.0.1"}},
		{Address: location{URL: "redis://u:secret@127.0.0.1/db"}},
		{Address: location{URL: "redis://u:sec\x7fret@127.0.0.1"}},
		{Address: location{URL: "redis://127.0.0.1"}, Prefix: "{a}"},
		{Address: location{URL: "redis://127.0.0.1"}, Keys: -1},
	} {
		for _, o.Cluster = range []bool{false, true} {
			if o.Cluster && strings.HasSuffix(o.URL, "/db") {
				continue // a Cluster has none
			}
			_, err := Redis(context.Background(), o)
			require.Error(t, err, o.URL)
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestClusterNodes(t *testing.T) {
	self := Node{Addr: "seed:7000"}
	nodes := clusterNodes(`a 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460 [93->-b]
b 10.0.0.2:7000@17000,host master,fail? - 0 0 2 connected 5461-10922
c 2001:db8::3:7000@17000 slave a 0 0 1 connected
d :0@0 master,noaddr - 0 0 0 disconnected
`, &self)
	assert.Equal(t, Node{Addr: "seed:7000", Flags: "master", Migrating: 1}, self)
	assert.Equal(t, []Node{
		{Addr: "10.0.0.2:7000", Flags: "master,fail?"},
		{Addr: "[2001:db8::3]:7000", Flags: "slave", Replica: true},
	}, nodes)
}
