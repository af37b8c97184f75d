package doctor

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"

	"github.com/routelimit/limit/internal/redisfacts"
)

const ms = time.Millisecond

// healthy returns the facts of a primary and a replica that pass every check. The
// rows change the primary.
func healthy() Facts {
	calls := slices.Repeat([]time.Duration{ms}, 50)
	config := func() map[string]string {
		return map[string]string{"maxmemory-policy": "noeviction", "maxmemory": "1000000", "save": "", "appendonly": "yes",
			"appendfsync": "everysec", "min-replicas-to-write": "1", "min-replicas-max-lag": "10", "maxclients": "1000",
			"timeout": "0"}
	}
	rights := make(map[string]string)
	for _, command := range redisfacts.Needed {
		rights[command] = ""
	}
	return Facts{
		Redis: &RedisFacts{Prefix: "limit",
			Nodes: []Node{{
				Addr: "10.0.0.1:6379",
				Info: map[string]string{"redis_version": "7.2.5", "role": "master", "cluster_enabled": "0", "used_memory": "500000",
					"aof_enabled": "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok", "connected_clients": "10",
					"connected_slaves": "1", "min_slaves_good_slaves": "1", "master_repl_offset": "5000000",
					"slave0": "ip=10.0.0.2,port=6379,state=online,offset=4999999,lag=1", "evicted_keys": "0"},
				Config: config(), Rights: redisfacts.Rights{Of: rights, Writable: true}, User: "app", Uncertainty: ms, Ping: calls, Script: calls,
			}, {
				Addr: "10.0.0.2:6379", Replica: true,
				Info: map[string]string{"redis_version": "7.2.5", "role": "slave", "cluster_enabled": "0", "used_memory": "500000",
					"connected_clients": "10", "master_link_status": "up"},
				Config: config(), Uncertainty: ms, Ping: calls,
			}},
			Keys: Keys{Found: []Key{{Name: lua.Key("limit", &core.Charge{Policy: "POST /", Rule: "per-ip-2s", Key: "1"}), Type: "string", TTL: time.Second, Size: 12, First: 'A'}}},
		},
		Web: &WebFacts{
			Proxies: []Probe{answer(200, 4), answer(200, 3), answer(200, 2)},
			Routes:  []Probe{answer(200, 4)},
		},
	}
}

func answer(status int, left int64) Probe {
	return Probe{Sent: "GET /", Route: "/", Status: status, Remaining: map[string]int64{"per-ip-2s": left}}
}

func shared(left int64) Probe {
	return Probe{Sent: "GET /", Route: "/", Status: 200, Remaining: map[string]int64{"global-1m": left}}
}

func TestHealthy(t *testing.T) {
	findings := Examine(healthy())
	for _, f := range findings {
		assert.Equal(t, OK, f.Verdict, "%s: %s", f.Check, f.Found)
		assert.NotEmpty(t, f.Why)
		assert.Empty(t, f.Fix)
	}
	assert.Zero(t, ExitCode(findings))
	for _, c := range checks {
		assert.True(t, slices.ContainsFunc(findings, func(f Finding) bool { return f.Check == c.id }), "%s says nothing", c.id)
	}
}

// rows are deployments that differ from the healthy one in one thing.
var rows = []struct {
	check   string
	change  func(*Facts, *Node)
	verdict Verdict
	found   string // is part of what was found
	fix     string // is part of what to change
}{
	{"connect", func(_ *Facts, n *Node) { n.Err = "dial tcp: connection refused" }, Fail, "refused", "let this machine connect to 10.0.0.1:6379"},
	{"connect", func(_ *Facts, n *Node) { n.Err = "WRONGPASS no" }, Fail, "WRONGPASS", "redis://user:password@"},
	{"connect", func(f *Facts, _ *Node) { f.Redis.Nodes[1].Err = "timeout" }, Warn, "replica", "10.0.0.2"},
	{"connect", func(_ *Facts, n *Node) { n.Flags = "master,fail?" }, Fail, "fail?", "redis-cli CLUSTER NODES"},

	{"version", func(_ *Facts, n *Node) { n.Info["redis_version"] = "6.0.16" }, Fail, "6.0.16", "6.2"},
	{"version", func(_ *Facts, n *Node) { n.Info["redis_version"] = "6.2.0" }, OK, "6.2.0", ""},
	{"version", func(_ *Facts, n *Node) { n.Info["redis_version"] = "10.0.0" }, OK, "10.0.0", ""},
	{"version", func(_ *Facts, n *Node) { n.Info["valkey_version"] = "8.1.0" }, OK, "Valkey 8.1.0", ""},
	{"version", func(_ *Facts, n *Node) { n.Info["redis_version"] = "seven" }, Skipped, "redis_version", ""},
	{"version", noInfo, Skipped, "NOPERM", ""},

	{"role", func(_ *Facts, n *Node) {
		n.Info["role"], n.Info["master_host"], n.Info["master_port"] = "slave", "10.0.0.9", "1"
	}, Fail, "replica", "10.0.0.9:1"},
	{"role", func(f *Facts, _ *Node) { f.Redis.Nodes[1].Info["role"] = "master" }, Warn, "master", "again"},
	{"role", noInfo, Skipped, "NOPERM", ""},

	{"cluster", func(_ *Facts, n *Node) { n.Info["cluster_enabled"] = "1" }, Fail, "--cluster was not given", "NewClusterClient"},
	{"cluster", func(f *Facts, _ *Node) { f.Redis.Cluster = true }, Fail, "not a Cluster", "NewClient"},
	{"cluster", inCluster("ok", "16384", 0), OK, "16384", ""},
	{"cluster", inCluster("fail", "16384", 0), Fail, "cluster_state:fail", "--cluster check 10.0.0.1:6379"},
	{"cluster", inCluster("ok", "16000", 0), Fail, "16000 of 16384", "--cluster fix"},
	{"cluster", inCluster("ok", "16384", 2), Warn, "2 slots are migrating", "--cluster fix"},
	{"cluster", func(f *Facts, n *Node) {
		f.Redis.Cluster, n.Info["cluster_enabled"], n.ClusterErr = true, "1", errors.New("NOPERM")
	}, Skipped, "NOPERM", ""},
	{"cluster", noInfo, Skipped, "NOPERM", ""},

	{"writable", func(_ *Facts, n *Node) { n.Rights.WriteErr = "READONLY no" }, Fail, "READONLY", "primary"},
	{"writable", func(_ *Facts, n *Node) { n.Rights.WriteErr = "OOM no" }, Fail, "OOM", "maxmemory"},
	{"writable", func(_ *Facts, n *Node) { n.Rights.WriteErr = "MISCONF no" }, Fail, "MISCONF", "persistence"},
	{"writable", func(_ *Facts, n *Node) { n.Rights.WriteErr = "NOREPLICAS no" }, Fail, "NOREPLICAS", "replicas"},
	{"writable", func(_ *Facts, n *Node) { n.Rights.Err = errors.New("i/o timeout") }, Skipped, "timeout", ""},
	{"writable", func(_ *Facts, n *Node) { n.Rights.Writable = false }, Skipped, "this user may not", ""},

	{"permissions", func(_ *Facts, n *Node) { n.Rights.Of["PSETEX"] = "NOPERM psetex" }, Fail, `"app" may not run PSETEX (NOPERM psetex)`, "redis-cli -h 10.0.0.1 -p 6379 ACL SETUSER app '~limit:*' +evalsha +eval +info"},
	{"permissions", func(_ *Facts, n *Node) { n.Rights.Of["INFO"] = "NOPERM info" }, Warn, `"app" may not run INFO (NOPERM info)`, "+info"},
	{"permissions", func(_ *Facts, n *Node) { n.Rights.Of["INFO"], n.Rights.Of["EVAL"] = "NOPERM", "NOPERM" }, Fail, "EVAL (NOPERM), INFO (NOPERM)", "+info"},
	{"permissions", func(_ *Facts, n *Node) { delete(n.Rights.Of, "PSETEX") }, OK, "not tried: PSETEX", ""},
	{"permissions", func(_ *Facts, n *Node) { n.Rights.Err = errors.New("i/o timeout") }, Skipped, "timeout", ""},

	{"eviction", policy("allkeys-lru"), Fail, "allkeys-lru", "redis-cli -h 10.0.0.1 -p 6379 CONFIG SET maxmemory-policy noeviction"},
	{"eviction", policy("volatile-ttl"), Fail, "since all expire", "noeviction"},
	{"eviction", func(f *Facts, n *Node) { policy("allkeys-lru")(f, n); n.Config["maxmemory"] = "0" }, Warn, "nothing is evicted yet", "noeviction"},
	{"eviction", func(f *Facts, n *Node) { policy("allkeys-lru")(f, n); n.Info["evicted_keys"] = "7" }, Fail, "7 keys were evicted", ""},
	{"eviction", func(f *Facts, n *Node) {
		noConfig(f, n)
		n.Info["maxmemory_policy"], n.Info["maxmemory"] = "volatile-lru", "1"
	}, Fail, "volatile-lru", "where the service is configured"},
	{"eviction", noConfig, Skipped, "NOPERM", ""},

	{"memory", func(_ *Facts, n *Node) { n.Info["used_memory"] = "799999" }, OK, "79 %", ""},
	{"memory", func(_ *Facts, n *Node) { n.Info["used_memory"] = "800000" }, Warn, "80 % used: 800.0 kB of 1.0 MB", "CONFIG SET maxmemory 1500000"},
	{"memory", func(_ *Facts, n *Node) { n.Info["used_memory"] = "950000" }, Fail, "95 %", "maxmemory"},
	{"memory", func(_ *Facts, n *Node) { n.Config["maxmemory"], n.Info["total_system_memory"] = "0", "510000" }, Fail, "98 % used: 500.0 kB of 510.0 kB, the machine's memory", "more memory"},
	{"memory", func(_ *Facts, n *Node) { n.Config["maxmemory"] = "0" }, OK, "not set", ""},
	{"memory", noConfig, Skipped, "NOPERM", ""},
	{"memory", noInfo, Skipped, "NOPERM", ""},

	{"persistence", func(_ *Facts, n *Node) { n.Info["aof_enabled"] = "0" }, Warn, "neither", "CONFIG SET appendonly yes"},
	{"persistence", func(_ *Facts, n *Node) { n.Info["aof_enabled"], n.Config["save"] = "0", "60 1" }, OK, "save 60 1", ""},
	{"persistence", func(_ *Facts, n *Node) { n.Config["appendfsync"] = "always" }, OK, "loses nothing", ""},
	{"persistence", func(_ *Facts, n *Node) { n.Config["appendfsync"] = "no" }, OK, "30 s", ""},
	{"persistence", func(_ *Facts, n *Node) { n.Info["aof_last_write_status"] = "err" }, Fail, "refused", "disk"},
	{"persistence", func(_ *Facts, n *Node) { n.Info["rdb_last_bgsave_status"], n.Config["save"] = "err", "60 1" }, Fail, "snapshot failed", "disk"},
	{"persistence", func(f *Facts, n *Node) { noConfig(f, n); n.Info["aof_enabled"] = "0" }, Skipped, "NOPERM", ""},

	{"replicas", func(_ *Facts, n *Node) { n.Config["min-replicas-to-write"] = "0" }, Warn, "1 replica", "CONFIG SET min-replicas-to-write 1"},
	{"replicas", func(_ *Facts, n *Node) { n.Config["min-replicas-max-lag"] = "0" }, Warn, "1 replica", "CONFIG SET min-replicas-max-lag 10"},
	{"replicas", func(_ *Facts, n *Node) { n.Info["min_slaves_good_slaves"] = "0" }, Fail, "NOREPLICAS", "bring the replicas back"},
	{"replicas", func(_ *Facts, n *Node) { n.Info["connected_slaves"] = "0" }, OK, "no replicas", ""},
	{"replicas", func(f *Facts, n *Node) { f.Redis.Cluster, n.Info["connected_slaves"] = true, "0" }, Warn, "no replica", "add-node"},
	{"replicas", noConfig, Skipped, "NOPERM", ""},
	{"replicas", noInfo, Skipped, "NOPERM", ""},

	{"clock", func(_ *Facts, n *Node) { n.Offset = 1002 * ms }, Warn, "1s ahead of this machine, ±1ms", "NTP"},
	{"clock", func(_ *Facts, n *Node) { n.Offset = -1002 * ms }, Warn, "1s behind this machine", "NTP"},
	{"clock", func(_ *Facts, n *Node) { n.Offset, n.Uncertainty = 1500*ms, 500*ms }, OK, "±500ms", ""},
	{"clock", func(_ *Facts, n *Node) { n.TimeErr = errors.New("NOPERM") }, Skipped, "NOPERM", ""},

	{"connections", func(_ *Facts, n *Node) { n.Info["connected_clients"] = "800" }, Warn, "800 of 1000", "CONFIG SET maxclients 2000"},
	{"connections", func(_ *Facts, n *Node) { n.Info["connected_clients"] = "950" }, Fail, "950", "PoolSize"},
	{"connections", noConfig, Skipped, "NOPERM", ""},
	{"connections", noInfo, Skipped, "NOPERM", ""},

	{"idle-timeout", config("timeout", "60"), Warn, "timeout 60", "ConnMaxIdleTime: 30s"},
	{"idle-timeout", config("timeout", "1801"), OK, "longer", ""},
	{"idle-timeout", noConfig, Skipped, "NOPERM", ""},

	{"ping-latency", func(_ *Facts, n *Node) { n.Ping = append(n.Ping[:50-1:50-1], 100*ms) }, Warn, "p50 1ms, p99 100ms, of 50 calls", "run limitctl doctor where the program runs"},
	{"ping-latency", func(_ *Facts, n *Node) { n.Ping = []time.Duration{5 * ms} }, Warn, "of 1 calls", "--latency"},
	{"ping-latency", func(_ *Facts, n *Node) { n.Ping, n.PingErr = nil, errors.New("timeout") }, Skipped, "timeout", ""},
	{"script-latency", func(_ *Facts, n *Node) { n.Script = append(n.Script[:50-1:50-1], time.Second) }, Fail, "p99 1s", "SLOWLOG"},
	{"script-latency", func(_ *Facts, n *Node) { n.Script, n.ScriptErr = nil, errors.New("timeout") }, Skipped, "timeout", ""},

	{"keys", func(f *Facts, _ *Node) {
		add(f, Key{Name: lua.Key("limit", &core.Charge{Policy: "\x1b]", Rule: "r", Key: "k"}), Type: "string", TTL: 1, Size: 5000, First: 'c'})
		f.Redis.Keys.More = true
	}, OK, `2 keys under "limit", and more that were not checked (--keys); by policy: "\x1b]" 1, "POST /" 1; the largest has 5.0 kB: "limit:1:{%1B%5D}:r:k"`, ""},
	{"keys", func(f *Facts, _ *Node) { f.Redis.Keys = Keys{} }, Skipped, "another prefix (--prefix)", ""},
	{"keys", func(f *Facts, _ *Node) { f.Redis.Keys = Keys{More: true} }, OK, "and more that were not checked", ""},
	{"keys", noScan, Skipped, "NOPERM", ""},
	{"keys-ttl", func(f *Facts, _ *Node) {
		add(f, Key{Name: "limit:1:{p}:r:k", Type: "string", TTL: -1, Size: 12, First: 'A'})
	}, Fail, `1 key: "limit:1:{p}:r:k"`, "redis-cli -h 10.0.0.1 -p 6379 UNLINK 'limit:1:{p}:r:k'"},
	{"keys-ttl", func(f *Facts, _ *Node) { add(f, Key{Name: "limit:other", Type: "hash", TTL: -1}) }, OK, "all keys of the library expire (2 keys checked)", ""},
	{"keys-ttl", func(f *Facts, _ *Node) { add(f, Key{Name: "limit:1:'\x1b[2J", Type: "string", TTL: -1}) }, Fail, `"limit:1:'\x1b[2J"`, "find out"},
	{"keys-ttl", func(f *Facts, _ *Node) { f.Redis.Keys = Keys{} }, OK, "no keys", ""},
	{"keys-ttl", noScan, Skipped, "NOPERM", ""},
	{"keys-type", func(f *Facts, _ *Node) { add(f, Key{Name: "limit:1:{p}:r:k", Type: "list", TTL: 1}) }, Fail, "1 key", "UNLINK"},
	{"keys-type", noScan, Skipped, "NOPERM", ""},
	{"keys-form", func(f *Facts, _ *Node) {
		add(f, Key{Name: "limit:1:{p}:r:k", Type: "string", TTL: 1, Size: 12, First: 'z'})
	}, Fail, "1 key", "later formats"},
	{"keys-form", noScan, Skipped, "NOPERM", ""},
	{"keys-version", func(f *Facts, _ *Node) {
		for _, name := range []string{"a", "b", "c", "d"} {
			add(f, Key{Name: "limit:0:" + name, Type: "string", TTL: 1})
		}
	}, Warn, `4 keys: "limit:0:a", "limit:0:b", "limit:0:c", …`, "expire"},
	{"keys-version", noScan, Skipped, "NOPERM", ""},

	{"proxies", probes(answer(200, 4), answer(200, 3), answer(200, 4)), Fail, `"per-ip-2s" was 4, 3, 4`, "limit.Options.Proxies"},
	{"proxies", probes(answer(429, 0), answer(429, 0), answer(200, 4)), Fail, "new quota", "Proxies"},
	{"proxies", probes(answer(200, 0), answer(429, 0), answer(200, 0)), Fail, "new quota", "Proxies"}, // a limit of 1
	{"proxies", probes(answer(429, 0), answer(429, 0), answer(429, 0)), OK, "no new quota", ""},
	{"proxies", probes(answer(200, 4), answer(200, 3), answer(200, 3)), Skipped, "inconclusive", ""},
	{"proxies", probes(answer(200, 4), answer(200, 4), answer(200, 4)), Skipped, "inconclusive", ""},
	{"proxies", probes(shared(4), shared(3), shared(2)), Skipped, `no rule by address, such as "per-ip-1m"`, ""},
	{"proxies", probes(shared(4), shared(3), shared(4)), Fail, "new quota", "Proxies"}, // a rule by address with a name of its own
	{"proxies", probes(Probe{Status: 200}), Skipped, "three responses", ""},
	{"proxies", probes(answer(200, 4), Probe{Err: "timeout"}), Skipped, "timeout", ""},
	{"proxies", func(f *Facts, _ *Node) { f.Web.Err = "refused" }, Skipped, "does not answer", ""},
	{"application", func(f *Facts, _ *Node) { f.Web.Err = "connection refused" }, Fail, "connection refused", "--url"},
	{"routes", func(f *Facts, _ *Node) { f.Web.Routes = append(f.Web.Routes, Probe{Route: "/bare", Status: 404}) }, Warn, `no RateLimit headers on "/bare" (404)`, "PerIP"},
	{"routes", func(f *Facts, _ *Node) { f.Web.Routes[0].Err = "timeout" }, Skipped, `"/" (timeout)`, ""},
}

func noInfo(_ *Facts, n *Node)   { n.Info, n.InfoErr = nil, errors.New("NOPERM info") }
func noConfig(_ *Facts, n *Node) { n.Config, n.ConfigErr = nil, errors.New("NOPERM config") }
func noScan(f *Facts, _ *Node)   { f.Redis.Keys = Keys{Err: "SCAN: NOPERM"} }
func add(f *Facts, k Key)        { f.Redis.Keys.Found = append(f.Redis.Keys.Found, k) }

func config(name, value string) func(*Facts, *Node) {
	return func(_ *Facts, n *Node) { n.Config[name] = value }
}

func policy(name string) func(*Facts, *Node) { return config("maxmemory-policy", name) }

func inCluster(state, slots string, migrating int) func(*Facts, *Node) {
	return func(f *Facts, n *Node) {
		f.Redis.Cluster, n.Info["cluster_enabled"] = true, "1"
		n.ClusterInfo = map[string]string{"cluster_state": state, "cluster_slots_ok": slots}
		n.Migrating = migrating
	}
}

func probes(p ...Probe) func(*Facts, *Node) {
	return func(f *Facts, _ *Node) { f.Web.Proxies = p }
}

func TestChecks(t *testing.T) {
	for _, row := range rows {
		facts := healthy()
		row.change(&facts, &facts.Redis.Nodes[0])
		// Of several nodes, the worst is the one that was changed.
		var got *Finding
		for _, f := range Examine(facts) {
			if f.Check == row.check && f.Verdict == row.verdict && strings.Contains(f.Found, row.found) {
				got = &f
			}
		}
		if !assert.NotNil(t, got, "%s does not say %s: %s", row.check, row.verdict, row.found) {
			continue
		}
		switch row.verdict {
		case Warn, Fail:
			assert.Contains(t, strings.Join(got.Fix, "\n"), row.fix)
			assert.NotEmpty(t, got.Fix, "%s: what to change?", row.found)
		default:
			assert.Empty(t, got.Fix)
		}
	}
}

// TestChecksAreTested holds the rows to the checks: each is seen to object, and
// to do without what it cannot learn.
func TestChecksAreTested(t *testing.T) {
	for _, c := range checks {
		objects, skips := false, false
		for _, row := range rows {
			objects = objects || row.check == c.id && (row.verdict == Warn || row.verdict == Fail)
			skips = skips || row.check == c.id && row.verdict == Skipped
		}
		assert.True(t, objects || c.id == "keys", "%s never objects", c.id)
		assert.True(t, skips || c.id == "connect" || c.id == "application", "%s is never skipped", c.id)
	}
}

// TestWhyOfOutages holds what the checks say of a Redis that cannot decide: a request
// is decided by local limits, and not answered with 503.
func TestWhyOfOutages(t *testing.T) {
	dead := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}))
	store := guard.New(redisstore.New(dead, nil), &guard.Options{Log: slog.New(slog.DiscardHandler)})
	charges := []core.Charge{{Policy: "p", Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Limit: 3, Window: time.Hour.Microseconds()}}}
	for i := range 4 {
		d := must.Get(core.Take(t.Context(), store, charges))(t)
		assert.Equal(t, core.ModeLocal, d.Mode)
		assert.Equal(t, i < 3, d.Allowed)
	}
	about := []string{"connect", "cluster", "writable", "memory", "connections", "script-latency"}
	for _, c := range checks {
		assert.Equal(t, slices.Contains(about, c.id), strings.Contains(c.why, "local limits"), "%s: %s", c.id, c.why)
	}
}

func TestExamineJoinsNodes(t *testing.T) {
	facts := healthy()
	for i := range facts.Redis.Nodes {
		facts.Redis.Nodes[i].Config["timeout"] = "60"
	}
	facts.Redis.TLS = true
	for _, f := range Examine(facts) {
		if f.Check == "idle-timeout" {
			assert.Equal(t, []string{"10.0.0.1:6379", "10.0.0.2:6379"}, f.Nodes)
			require.Len(t, f.Fix, 4)
			assert.Equal(t, "redis-cli -h 10.0.0.1 --tls -p 6379 CONFIG SET timeout 0", f.Fix[0])
			assert.Equal(t, "redis-cli -h 10.0.0.2 --tls -p 6379 CONFIG SET timeout 0", f.Fix[1])
			assert.Contains(t, f.Fix[2], "configuration file")
		}
	}
}

func TestExamineWithoutAnything(t *testing.T) {
	assert.Empty(t, Examine(Facts{}))
	for _, f := range Examine(Facts{Redis: &RedisFacts{Nodes: []Node{{Addr: "a:1"}}}, Web: &WebFacts{}}) {
		assert.Contains(t, []Verdict{OK, Skipped}, f.Verdict, "%s is not known, and judged: %s", f.Check, f.Found)
	}
}

func TestExitCode(t *testing.T) {
	assert.Equal(t, 0, ExitCode([]Finding{{Verdict: OK}, {Verdict: Skipped}}))
	assert.Equal(t, 1, ExitCode([]Finding{{Verdict: Warn}, {Verdict: OK}}))
	assert.Equal(t, 2, ExitCode([]Finding{{Verdict: Warn}, {Verdict: Fail}, {Verdict: OK}}))
}
