package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/redisfacts"
)

// checks lists all checks, in the order in which they are printed.
var checks = []check{
	{id: "connect", why: "While Redis does not answer, each process falls back to local limits, or to what a rule's on-error says.", node: connect},
	{id: "version", why: "The scripts are tested on Redis 6.2 and later, and on Valkey.", node: version},
	{id: "role", why: "Only a primary can decide: a replica refuses writes, and its data lags.", node: role},
	{id: "cluster", why: "Policies in a slot that no server serves fall back to local limits, and a client of the wrong type is redirected.", node: cluster},
	{id: "writable", why: "While a server refuses writes, its policies fall back to local limits.", node: writable, primary: true},
	{id: "permissions", why: "A decision is one EVALSHA, or EVAL to load the script, which runs the other commands. INFO shows restarts.", node: permissions, primary: true},

	{id: "eviction", why: "An evicted key is a reset quota: a client that creates enough keys is no longer limited.", node: eviction},
	{id: "memory", why: "When memory is full, Redis refuses or evicts keys: their policies fall back to local limits, or lose quotas.", node: memory},
	{id: "persistence", why: "A restart resets the quotas that Redis has not saved.", node: persistence, primary: true},
	{id: "replicas", why: "Redis does not wait for its replicas: a failover resets what they had not received.", node: replicas, primary: true},

	{id: "clock", why: "All times are those of Redis: calendar periods begin by its clock.", node: clock},

	{id: "connections", why: "Beyond maxclients, Redis refuses connections, and the decisions on them fall back to local limits.", node: connections},
	{id: "idle-timeout", why: "A decision is sent once: on a connection that the server has just closed, it fails.", node: idleTimeout},
	{id: "ping-latency", why: "Every decision takes a round trip to Redis.", node: pingLatency},
	{id: "script-latency", why: "Each request waits this long for its decision. After redisstore.Options.Timeout (100 ms by default) it falls back to local limits.", node: scriptLatency, primary: true},

	{id: "keys", why: "How many quotas there are, and in which policies.", redis: keysFound},
	{id: "keys-ttl", why: "A key that never expires stays when its client is gone, and fills the memory.", redis: keysTTL},
	{id: "keys-type", why: "Requests that need a key of another type cannot be decided and get a 503.", redis: keysType},
	{id: "keys-form", why: "Requests that need a key with an unknown value cannot be decided and get a 503.", redis: keysForm},
	{id: "keys-version", why: "Keys in the format of another version are not read. They only take memory.", redis: keysVersion},

	{id: "application", why: "An application that does not answer cannot be checked.", web: application},
	{id: "proxies", why: "A client that can choose its address by a header has a new quota for each address.", web: proxies},
	{id: "routes", why: "A route without rules is not limited.", web: routes},
}

// setting returns a setting of the server, from CONFIG GET or else from a field of
// INFO. If neither has it, reason says why.
func (n *Node) setting(name, field string) (value, reason string) {
	if v, ok := n.Config[name]; ok {
		return v, ""
	}
	if v, ok := n.Info[field]; ok {
		return v, ""
	}
	return "", n.missing(name)
}

// missing says why a setting is.
func (n *Node) missing(name string) string {
	if n.ConfigErr != nil {
		return fmt.Sprintf("CONFIG GET: %v", n.ConfigErr)
	}
	return "the server has no setting " + name
}

func (n *Node) info(field string) (int64, bool) {
	v, err := strconv.ParseInt(n.Info[field], 10, 64)
	return v, err == nil
}

// noInfo says why a field of INFO is missing.
func (n *Node) noInfo(field string) Finding {
	if n.InfoErr != nil {
		return Skipped.because("INFO: %v", n.InfoErr)
	}
	return Skipped.because("INFO has no field %s", field)
}

func (n *Node) set(name, value string) []string {
	if n.ConfigErr != nil {
		return []string{"set " + name + " to " + value + " where the service is configured (this user may not run CONFIG)"}
	}
	return []string{"redis-cli CONFIG SET " + name + " " + value, "write " + name + " " + value + " in its configuration file as well, or run CONFIG REWRITE"}
}

// replica reports whether the node is a replica, by its own word or another's.
func (n *Node) replica() bool { return n.Replica || n.Info["role"] == "slave" }

func connect(f *RedisFacts, n *Node) Finding {
	switch {
	case n.Err == "" && strings.Contains(n.Flags, "fail"):
		return Fail.because("it answers, but the Cluster has it as %s", n.Flags).
			change("check the network between the nodes: redis-cli CLUSTER NODES")
	case n.Err == "":
		return OK.because("answers")
	case strings.Contains(n.Err, "WRONGPASS"), strings.Contains(n.Err, "NOAUTH"), strings.Contains(n.Err, "invalid password"):
		return Fail.because("%s", n.Err).change("give its user and password: --redis redis://user:password@" + n.Addr)
	case n.Replica:
		return Warn.because("a replica does not answer: %s", n.Err).change("start it, or let this machine connect to " + n.Addr)
	}
	return Fail.because("%s", n.Err).change("start it, let this machine connect to " + n.Addr + ", or correct --redis")
}

func version(f *RedisFacts, n *Node) Finding {
	if v := n.Info["valkey_version"]; v != "" {
		return OK.because("Valkey %s", v)
	}
	v := n.Info["redis_version"]
	var major, minor int
	switch _, err := fmt.Sscanf(v, "%d.%d", &major, &minor); {
	case err != nil:
		return n.noInfo("redis_version")
	case major < 6 || major == 6 && minor < 2:
		return Fail.because("Redis %s", v).change("upgrade to Redis 6.2 or later, or to Valkey")
	}
	return OK.because("Redis %s", v)
}

func role(f *RedisFacts, n *Node) Finding {
	switch r := n.Info["role"]; {
	case r == "":
		return n.noInfo("role")
	case r == "slave" && !n.Replica:
		to := "its primary"
		if host := n.Info["master_host"]; host != "" {
			to += ", " + host + ":" + n.Info["master_port"]
		}
		return Fail.because("it is a replica").change("point the program at " + to)
	case r == "slave":
		return OK.because("replica")
	case n.Replica:
		return Warn.because("it was listed as a replica, and reports the role %s", r).change("a failover may be under way: run limitctl doctor again")
	}
	return OK.because("primary")
}

func cluster(f *RedisFacts, n *Node) Finding {
	mode, known := n.Info["cluster_enabled"]
	switch {
	case !known && n.ClusterInfo == nil:
		return n.noInfo("cluster_enabled")
	case mode == "1" && !f.Cluster:
		return Fail.because("it is a node of a Cluster, and --cluster was not given").
			change("use redis.NewClusterClient in the program, and run limitctl doctor with --cluster")
	case mode == "0" && f.Cluster:
		return Fail.because("it is not a Cluster, and --cluster was given").
			change("use redis.NewClient in the program, and run limitctl doctor without --cluster")
	case !f.Cluster:
		return OK.because("not a Cluster")
	case n.ClusterInfo == nil:
		return Skipped.because("CLUSTER INFO: %v", n.ClusterErr)
	}
	state, slots := n.ClusterInfo["cluster_state"], n.ClusterInfo["cluster_slots_ok"]
	switch {
	case state != "ok" || slots != "16384":
		return Fail.because("cluster_state:%s, %s of 16384 slots served", state, slots).
			change("redis-cli --cluster check "+n.Addr, "redis-cli --cluster fix "+n.Addr)
	case n.Migrating > 0:
		return Warn.because("%d slots are migrating: decisions on new keys there fail with TRYAGAIN until that ends", n.Migrating).
			change("if no migration is running: redis-cli --cluster fix " + n.Addr)
	}
	return OK.because("cluster_state:ok, 16384 slots served")
}

// What the user of the program may do, and whether the server accepts it.

func writable(f *RedisFacts, n *Node) Finding {
	switch rights := &n.Rights; {
	case rights.WriteErr != "":
		code, _, _ := strings.Cut(rights.WriteErr, " ")
		return Fail.because("%s", rights.WriteErr).change(unwritable[code]...)
	case rights.Err != nil:
		return Skipped.because("EVAL: %v", rights.Err)
	case !rights.Writable:
		return Skipped.because("this user may not run a command that shows it; see the check permissions")
	}
	return OK.because("it accepts writes")
}

// unwritable says what to change, by the code of the error of a write.
var unwritable = map[string][]string{
	"READONLY":   {"point the program at the primary"},
	"OOM":        {"raise maxmemory, see the check memory"},
	"MISCONF":    {"see the check persistence: the disk fails, or is full"},
	"NOREPLICAS": {"bring its replicas back, see the check replicas"},
}

func permissions(f *RedisFacts, n *Node) Finding {
	if n.Rights.Err != nil {
		return Skipped.because("EVAL: %v", n.Rights.Err)
	}
	refused := n.Rights.Refused()
	for i, command := range refused {
		refused[i] = fmt.Sprintf("%s (%s)", command, n.Rights.Of[command])
	}
	untried := slices.DeleteFunc(slices.Clone(redisfacts.Needed), func(command string) bool {
		_, tried := n.Rights.Of[command]
		return tried
	})
	user, name := userNames(n.User)
	fix := redisfacts.Grant(name, f.Prefix)
	switch {
	case refused == nil:
		found := user + " may run all that a decision needs"
		if len(untried) > 0 {
			found += "; not tried: " + strings.Join(untried, ", ")
		}
		return OK.because("%s", found)
	case len(refused) == 1 && n.Rights.Of["INFO"] != "":
		return Warn.because("%s may not run %s: a failover that loses the writes of the last second may go unnoticed", user, refused[0]).
			change(fix)
	}
	return Fail.because("%s may not run %s", user, strings.Join(refused, ", ")).change(fix)
}

func userNames(name string) (sentence, command string) {
	switch {
	case name == "":
		return "this user", "<user>"
	case !plainName(name):
		return "user " + words.Quote(name), "<user>"
	}
	return "user " + words.Quote(name), name
}
