package doctor

import (
	"strconv"
	"strings"
)

// checks are all, in the order in which they are printed.
var checks = []check{
	{id: "connect", why: "A Redis that does not answer leaves every request undecided: 503.", node: connect},
	{id: "version", why: "The scripts are tested on Redis 6.2 and later, and on Valkey.", node: version},
	{id: "role", why: "Decisions are made on primaries: a replica refuses to write them, or answers with the past.", node: role},
	{id: "cluster", why: "A policy whose slot is not served is not decided, and a client of the wrong kind is sent away.", node: cluster},
	{id: "writable", why: "A server that refuses writes decides nothing.", node: writable},
	{id: "permissions", why: "A decision is one EVALSHA, or EVAL where the script is not loaded yet, which runs these commands.", node: permissions},

	{id: "eviction", why: "To evict a key is to forget a quota: who makes enough keys is no longer limited.", node: eviction},
	{id: "memory", why: "When memory is full, new keys are refused (or evicted) and their requests are not decided.", node: memory},
	{id: "persistence", why: "What a restart forgets may be taken once more.", node: persistence},
	{id: "replicas", why: "Replication is not waited for: what a failover loses may be taken once more.", node: replicas},
	{id: "replication-lag", why: "A failover to a replica that is behind forgets what it has not seen.", node: replicationLag},

	{id: "clock", why: "Redis's clock decides: calendar periods begin when it says so.", node: clock},
	{id: "clock-between", why: "After a failover another clock decides: one ahead frees quotas early, one behind keeps them long.", redis: clockBetween},

	{id: "connections", why: "Beyond maxclients, connections are refused, and with them requests.", node: connections},
	{id: "idle-timeout", why: "A decision is sent once: on a connection that the server has just closed, it fails.", node: idleTimeout},
	{id: "keepalive", why: "Without keepalive, connections of clients that vanished stay, and count against maxclients.", node: keepalive},
	{id: "busy-threshold", why: "While a script runs longer than this, Redis answers BUSY to everyone.", node: busyThreshold},
	{id: "slowlog", why: "Redis does one thing at a time: while a command is slow, nobody is decided.", node: slowlog},
	{id: "ping-latency", why: "Every decision waits for the way to Redis and back.", node: pingLatency},
	{id: "script-latency", why: "This is what a decision costs a request; a store's Options.Timeout ends it after one second.", node: scriptLatency},

	{id: "keys", why: "What quotas there are, and who has most of them.", redis: keysFound},
	{id: "keys-ttl", why: "A key that never expires stays when its client is gone, and fills the memory.", redis: keysTTL},
	{id: "keys-type", why: "A key that holds something else leaves the requests that need it undecided: 503.", redis: keysType},
	{id: "keys-form", why: "A value that no script has written leaves the requests that need it undecided: 503.", redis: keysForm},
	{id: "keys-version", why: "Keys of another version of the form are not read: they only take memory.", redis: keysVersion},

	{id: "proxies", why: "Who can choose an address by a header has as many quotas as addresses.", web: proxies},
	{id: "routes", why: "A route without rules is not limited.", web: routes},
}

// A setting of the server: what CONFIG GET says or, where that is refused, the
// field of INFO. The reason is why it is not known.
func (n *Node) setting(name, field string) (value, reason string) {
	if v, ok := n.Config[name]; ok {
		return v, ""
	}
	if v, ok := n.Info[field]; ok {
		return v, ""
	}
	if n.ConfigErr != "" {
		return "", "CONFIG GET: " + n.ConfigErr
	}
	return "", "the server does not know " + name
}

// info returns a number of INFO.
func (n *Node) info(field string) (int64, bool) {
	v, err := strconv.ParseInt(n.Info[field], 10, 64)
	return v, err == nil
}

// noInfo says why a field of INFO is not known.
func (n *Node) noInfo(field string) result {
	if n.InfoErr != "" {
		return skipped("INFO: %s", n.InfoErr)
	}
	return skipped("INFO does not say %s", field)
}

// set returns what sets a setting.
func (n *Node) set(name, value string) []string {
	if n.ConfigErr != "" {
		return []string{"set " + name + " to " + value + " where the service is configured (this user may not CONFIG)"}
	}
	return []string{"redis-cli CONFIG SET " + name + " " + value, "and " + name + " " + value + " in its configuration file, or CONFIG REWRITE"}
}

// replica reports whether the node says or is said to be one.
func (n *Node) replica() bool { return n.Replica || n.Info["role"] == "slave" }

func connect(f *RedisFacts, n *Node) result {
	switch {
	case n.Err == "" && strings.Contains(n.Flags, "fail"):
		return Fail.because("it answers here, but the Cluster counts it as %s", n.Flags).
			change("look at the network between the nodes: redis-cli CLUSTER NODES")
	case n.Err == "":
		return ok("answers")
	case strings.Contains(n.Err, "WRONGPASS"), strings.Contains(n.Err, "NOAUTH"), strings.Contains(n.Err, "invalid password"):
		return Fail.because("%s", n.Err).change("give its user and password: --redis redis://user:password@" + n.Addr)
	case n.Replica:
		return Warn.because("a replica does not answer from here: %s", n.Err).change("start it, or open the way to " + n.Addr)
	}
	return Fail.because("%s", n.Err).change("start it, open the way to " + n.Addr + ", or correct --redis")
}

func version(f *RedisFacts, n *Node) result {
	if v := n.Info["valkey_version"]; v != "" {
		return ok("Valkey %s", v)
	}
	v := n.Info["redis_version"]
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	switch {
	case v == "" || err != nil || err2 != nil:
		return n.noInfo("redis_version")
	case a < 6 || a == 6 && b < 2:
		return Fail.because("Redis %s", v).change("upgrade to Redis 6.2 or later, or to Valkey")
	}
	return ok("Redis %s", v)
}

func role(f *RedisFacts, n *Node) result {
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
		return ok("replica")
	case n.Replica:
		return Warn.because("it was found as a replica and says to be a %s", r).change("a failover may be under way: run limitctl doctor again")
	}
	return ok("primary")
}

func cluster(f *RedisFacts, n *Node) result {
	mode, known := n.Info["cluster_enabled"]
	switch {
	case !known && n.ClusterInfo == nil:
		return n.noInfo("cluster_enabled")
	case mode == "1" && !f.Cluster:
		return Fail.because("it is a node of a Cluster, and --cluster was not given").
			change("use redis.NewClusterClient in the program, and run limitctl doctor with --cluster")
	case mode == "0" && f.Cluster:
		return Fail.because("it is no Cluster, and --cluster was given").
			change("use redis.NewClient in the program, and run limitctl doctor without --cluster")
	case !f.Cluster:
		return ok("no Cluster")
	case n.ClusterInfo == nil:
		return skipped("CLUSTER INFO: %s", n.ClusterErr)
	}
	state, slots := n.ClusterInfo["cluster_state"], n.ClusterInfo["cluster_slots_ok"]
	switch {
	case state != "ok" || slots != "16384":
		return Fail.because("cluster_state:%s, %s of 16384 slots served", state, slots).
			change("redis-cli --cluster check "+n.Addr, "redis-cli --cluster fix "+n.Addr)
	case n.Migrating > 0:
		return Warn.because("%d slots are migrating: decisions on new keys there fail with TRYAGAIN until it ends", n.Migrating).
			change("if no migration is running: redis-cli --cluster fix " + n.Addr)
	}
	return ok("cluster_state:ok, 16384 slots served")
}

func writable(f *RedisFacts, n *Node) result {
	switch {
	case n.replica():
		return result{}
	case n.WriteErr == "":
		if n.RightsErr != "" {
			return skipped("%s", n.RightsErr)
		}
		return ok("it takes writes")
	}
	r := Fail.because("%s", n.WriteErr)
	switch word, _, _ := strings.Cut(n.WriteErr, " "); word {
	case "READONLY":
		return r.change("point the program at the primary")
	case "OOM":
		return r.change("raise maxmemory, see the check memory")
	case "MISCONF":
		return r.change("see the check persistence: the disk refuses, or is full")
	case "NOREPLICAS":
		return r.change("bring its replicas back, see the check replicas")
	}
	return r
}

func permissions(f *RedisFacts, n *Node) result {
	if n.replica() {
		return result{}
	}
	if n.RightsErr != "" {
		return skipped("%s", n.RightsErr)
	}
	var refused []string
	for _, command := range needed {
		if reason := n.Rights[command]; reason != "" {
			refused = append(refused, command+" ("+reason+")")
		}
	}
	user, name := "this user", "<user>"
	if n.User != "" {
		user = "user " + quote(n.User)
		if plainName(n.User) {
			name = n.User
		}
	}
	if refused != nil {
		return Fail.because("%s may not: %s", user, strings.Join(refused, ", ")).
			change("redis-cli ACL SETUSER " + name + " '~" + f.Prefix + ":*' +" + strings.ToLower(strings.Join(needed, " +")))
	}
	found := user + " may run all that a decision needs (by " + n.RightsBy + ")"
	for _, command := range needed {
		if _, tried := n.Rights[command]; !tried {
			found += "; not tried: " + command
		}
	}
	return ok("%s", found)
}
