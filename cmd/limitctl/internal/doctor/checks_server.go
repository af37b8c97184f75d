package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/redisfacts"
)

// Whether memory, disk and replicas keep the quotas, and the server has room and time for
// decisions.

func eviction(f *RedisFacts, n *Node) Finding {
	policy, reason := n.setting("maxmemory-policy", "maxmemory_policy")
	if policy == "" {
		return Skipped.because("%s", reason)
	}
	most, _ := n.setting("maxmemory", "maxmemory")
	evicts, would := redisfacts.Eviction(policy, most)
	if !would {
		return OK.because("maxmemory-policy noeviction")
	}
	found := "maxmemory-policy " + policy
	if strings.HasPrefix(policy, "volatile-") {
		found += ", which applies to all keys of the library, since all expire"
	}
	if evicted, known := n.info("evicted_keys"); known && evicted > 0 {
		found += fmt.Sprintf("; %d keys were evicted since the start", evicted)
	}
	verdict := Fail
	if !evicts {
		verdict = Warn
		found += "; without maxmemory nothing is evicted yet"
	}
	return verdict.because("%s", found).change(n.set("maxmemory-policy", "noeviction")...)
}

// Shares in use, in percent, from which little is left.
const (
	little = 80
	least  = 95
)

func memory(f *RedisFacts, n *Node) Finding {
	used, known := n.info("used_memory")
	if !known {
		return n.noInfo("used_memory")
	}
	text, reason := n.setting("maxmemory", "maxmemory")
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Skipped.because("%s", reason)
	}
	of := "maxmemory"
	if most <= 0 {
		of = "the machine's memory, since maxmemory is not set"
		if most, known = n.info("total_system_memory"); !known || most <= 0 {
			return OK.because("%s used, maxmemory is not set", words.Size(used))
		}
	}
	share := used * 100 / most
	found := fmt.Sprintf("%d %% used: %s of %s, %s", share, words.Size(used), words.Size(most), of)
	fix := n.set("maxmemory", strconv.FormatInt(most+most/2, 10))
	if of != "maxmemory" {
		fix = []string{"give the machine more memory, or Redis fewer keys"}
	}
	return judgeShare(share, found, fix)
}

func judgeShare(share int64, found string, fix []string) Finding {
	switch {
	case share >= least:
		return Fail.because("%s", found).change(fix...)
	case share >= little:
		return Warn.because("%s", found).change(fix...)
	}
	return OK.because("%s", found)
}

func persistence(f *RedisFacts, n *Node) Finding {
	failed := ""
	switch {
	case n.Info["aof_enabled"] == "1" && n.Info["aof_last_write_status"] == "err":
		failed = "write to the append-only file"
	case n.Info["rdb_last_bgsave_status"] == "err" && n.Config["save"] != "" && n.Config["stop-writes-on-bgsave-error"] != "no":
		failed = "snapshot"
	}
	if failed != "" {
		return Fail.because("the last %s failed: writes are refused", failed).
			change("check the disk of the server: free space, and rights on its directory")
	}
	aof := cmp.Or(map[string]string{"1": "yes", "0": "no"}[n.Info["aof_enabled"]], n.Config["appendonly"])
	save, known := n.Config["save"]
	switch {
	case aof == "yes":
		switch n.Config["appendfsync"] {
		case "always":
			return OK.because("append-only file, appendfsync always: a crash loses nothing")
		case "no":
			return OK.because("append-only file, appendfsync no: a crash of the machine loses up to about 30 s")
		}
		return OK.because("append-only file: a crash loses about a second")
	case aof == "":
		return Skipped.because("%s", n.missing("appendonly"))
	case !known:
		return Skipped.because("%s", n.missing("save"))
	case save != "":
		return OK.because("snapshots (save %s): a crash loses what was taken since the last one", save)
	}
	return Warn.because("neither snapshots nor an append-only file: a restart resets every quota").
		change(n.set("appendonly", "yes")...)
}

func replicas(f *RedisFacts, n *Node) Finding {
	count, known := n.info("connected_slaves")
	if !known {
		return n.noInfo("connected_slaves")
	}
	if count == 0 {
		if f.Cluster {
			return Warn.because("no replica: when this node fails, the policies of its slots fall back to local limits").
				change("redis-cli --cluster add-node <address of a new node> " + n.Addr + " --cluster-slave")
		}
		return OK.because("no replicas, so no failover")
	}
	least, reason := n.setting("min-replicas-to-write", "")
	if least == "" {
		return Skipped.because("%s, %s", words.Count(count, "replica"), reason)
	}
	lag := n.Config["min-replicas-max-lag"]
	if want, _ := strconv.ParseInt(least, 10, 64); want > 0 && lag != "0" {
		if good, known := n.info("min_slaves_good_slaves"); known && good < want {
			return Fail.because("%d of the %d replicas that min-replicas-to-write requires are in sync: decisions fail with NOREPLICAS", good, want).
				change("bring the replicas back, or lower min-replicas-to-write")
		}
		return OK.because("%s; a primary without %s within %s s refuses writes", words.Count(count, "replica"), least, lag)
	}
	return Warn.because("%s; a primary that is cut off from them goes on deciding, and a failover loses that", words.Count(count, "replica")).
		change("redis-cli CONFIG SET min-replicas-to-write 1", "redis-cli CONFIG SET min-replicas-max-lag 10",
			"write the same in its configuration file as well (the trade-off: without a replica, decisions fall back to local limits)")
}

// fields reads "a=1,b=2".
func fields(text string) map[string]string {
	m := make(map[string]string)
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		m[name] = value
	}
	return m
}

func clock(f *RedisFacts, n *Node) Finding {
	if n.TimeErr != nil {
		return Skipped.because("TIME: %v", n.TimeErr)
	}
	word := "ahead of"
	off := n.Offset
	if off < 0 {
		word, off = "behind", -off
	}
	found := fmt.Sprintf("%s %s this machine, ±%s", words.Duration(off), word, words.Duration(n.Uncertainty))
	if off-n.Uncertainty > redisfacts.MaxOffset {
		return Warn.because("%s", found).change("start NTP on the server (timedatectl set-ntp true), and check the clock of this machine")
	}
	return OK.because("within %s of this machine's: %s", words.Duration(redisfacts.MaxOffset), found)
}

func connections(f *RedisFacts, n *Node) Finding {
	used, known := n.info("connected_clients")
	if !known {
		return n.noInfo("connected_clients")
	}
	text, reason := n.setting("maxclients", "maxclients")
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil || most <= 0 {
		return Skipped.because("%s", reason)
	}
	found := fmt.Sprintf("%d of %d connections", used, most)
	fix := append([]string{"lower PoolSize in redis.Options: the pools of all instances must fit"}, n.set("maxclients", strconv.FormatInt(2*most, 10))...)
	return judgeShare(used*100/most, found, fix)
}

// poolIdle is how long go-redis keeps an idle connection by default.
const poolIdle = 30 * time.Minute

func idleTimeout(f *RedisFacts, n *Node) Finding {
	text, reason := n.setting("timeout", "")
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return Skipped.because("%s", reason)
	}
	idle := time.Duration(seconds) * time.Second
	switch {
	case idle == 0:
		return OK.because("timeout 0: idle connections stay open")
	case idle <= poolIdle:
		return Warn.because("timeout %d: the server closes idle connections that go-redis keeps for %s", seconds, poolIdle).
			change(append(n.set("timeout", "0"), fmt.Sprintf("or ConnMaxIdleTime: %s in redis.Options", idle/2))...)
	}
	return OK.because("timeout %d s, longer than go-redis keeps idle connections", seconds)
}

// percentile returns the duration that p percent of sorted calls do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// Latencies that add to those of requests.
const (
	slowUsual  = 5 * time.Millisecond
	slowSeldom = 100 * time.Millisecond
	hopeless   = time.Second // ten times the default Timeout of a store
)

func latency(calls []time.Duration, call string, err error) Finding {
	if len(calls) == 0 {
		return Skipped.because("%s%v", call, err)
	}
	p50, p99 := percentile(calls, 50), percentile(calls, 99)
	verdict := OK
	switch {
	case p99 >= hopeless:
		verdict = Fail
	case p50 >= slowUsual || p99 >= slowSeldom:
		verdict = Warn
	}
	found := verdict.because("p50 %s, p99 %s, of %d calls from this machine", words.Duration(p50), words.Duration(p99), len(calls))
	if verdict != OK {
		return found.change("run limitctl doctor where the program runs; if it is slow there too, move Redis closer, and see SLOWLOG GET and the check memory",
			"redis-cli --latency")
	}
	return found
}

func pingLatency(f *RedisFacts, n *Node) Finding { return latency(n.Ping, "PING: ", n.PingErr) }

func scriptLatency(f *RedisFacts, n *Node) Finding { return latency(n.Script, "", n.ScriptErr) }
