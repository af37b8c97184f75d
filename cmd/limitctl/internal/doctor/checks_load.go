package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Whether the server has room and time for decisions.

func connections(f *RedisFacts, n *Node) result {
	used, known := n.info("connected_clients")
	if !known {
		return n.noInfo("connected_clients")
	}
	text, reason := n.setting("maxclients", "maxclients")
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil || most <= 0 {
		return skipped("%s", reason)
	}
	found := fmt.Sprintf("%d of %d connections", used, most)
	fix := append([]string{"lower PoolSize in redis.Options: the pools of all instances must fit"}, n.set("maxclients", strconv.FormatInt(2*most, 10))...)
	switch share := used * 100 / most; {
	case share >= least:
		return Fail.because("%s", found).change(fix...)
	case share >= little:
		return Warn.because("%s", found).change(fix...)
	}
	return ok("%s", found)
}

// poolIdle is how long go-redis keeps an idle connection by default.
const poolIdle = 30 * time.Minute

func idleTimeout(f *RedisFacts, n *Node) result {
	text, reason := n.setting("timeout", "")
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return skipped("%s", reason)
	}
	idle := time.Duration(seconds) * time.Second
	switch {
	case idle == 0:
		return ok("timeout 0: idle connections stay open")
	case idle <= poolIdle:
		return Warn.because("timeout %d: the server closes idle connections that go-redis keeps for %s", seconds, poolIdle).
			change(append(n.set("timeout", "0"), fmt.Sprintf("or ConnMaxIdleTime: %s in redis.Options", idle/2))...)
	}
	return ok("timeout %d s, longer than go-redis keeps idle connections", seconds)
}

func keepalive(f *RedisFacts, n *Node) result {
	text, reason := n.setting("tcp-keepalive", "")
	switch text {
	case "":
		return skipped("%s", reason)
	case "0":
		return Warn.because("tcp-keepalive 0").change(n.set("tcp-keepalive", "300")...)
	}
	return ok("tcp-keepalive %s s", text)
}

// minBusy is above the time of the library's longest script, which rewrites a ring of
// the largest limit.
const minBusy = 100 // ms

func busyThreshold(f *RedisFacts, n *Node) result {
	name := "busy-reply-threshold"
	text, reason := n.setting(name, "")
	if text == "" {
		name = "lua-time-limit" // before Redis 7
		text, reason = n.setting(name, "")
	}
	most, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return skipped("%s", reason)
	case most <= 0:
		return ok("%s %d: never", name, most)
	case most < minBusy:
		return Warn.because("%s %d ms: a script of a large limit can take 60 ms", name, most).change(n.set(name, "5000")...)
	}
	return ok("%s %d ms", name, most)
}

// slow is how long a command may hold up others.
const slow = 10 * time.Millisecond

func slowlog(f *RedisFacts, n *Node) result {
	if n.SlowErr != "" {
		return skipped("SLOWLOG: %s", n.SlowErr)
	}
	var ours, others int
	var worst, worstOurs Slow
	for _, s := range n.Slow {
		if s.Duration < slow {
			continue
		}
		if s.Ours {
			ours++
			worstOurs = longer(worstOurs, s)
		} else {
			others++
			worst = longer(worst, s)
		}
	}
	switch {
	case ours > 0:
		return Warn.because("%s of the library took %s or more within a day, the longest %s", plural(ours, "script"), span(slow), span(worstOurs.Duration)).
			change("redis-cli SLOWLOG GET", "use sliding-cells for large limits; if other commands are slow too, check the machine")
	case others > 0:
		return Warn.because("%s of other programs took %s or more within a day, the longest %s: %s", plural(others, "command"), span(slow), span(worst.Duration), quote(worst.Command)).
			change("redis-cli SLOWLOG GET", "give the quotas a Redis of their own, or fix those commands")
	}
	if least, _ := n.setting("slowlog-log-slower-than", ""); least != "" {
		if us, err := strconv.ParseInt(least, 10, 64); err == nil && (us < 0 || us > slow.Microseconds()) {
			return skipped("slowlog-log-slower-than %s does not log commands of %s", least, span(slow))
		}
	}
	return ok("nothing took %s or more within a day", span(slow))
}

func longer(a, b Slow) Slow {
	if b.Duration > a.Duration {
		return b
	}
	return a
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

func latency(calls []time.Duration, problem string) result {
	if len(calls) == 0 {
		return skipped("%s", problem)
	}
	p50, p99 := percentile(calls, 50), percentile(calls, 99)
	found := fmt.Sprintf("p50 %s, p99 %s, of %d calls from this machine", span(p50), span(p99), len(calls))
	r := ok("%s", found)
	switch {
	case p99 >= hopeless:
		r = Fail.because("%s", found)
	case p50 >= slowUsual || p99 >= slowSeldom:
		r = Warn.because("%s", found)
	}
	if r.verdict != OK {
		r = r.change("run limitctl doctor where the program runs; if it is slow there too, move Redis closer, and see the checks slowlog and memory",
			"redis-cli --latency")
	}
	return r
}

func pingLatency(f *RedisFacts, n *Node) result { return latency(n.Ping, "PING: "+n.PingErr) }

func scriptLatency(f *RedisFacts, n *Node) result {
	if n.replica() {
		return result{}
	}
	return latency(n.Script, n.ScriptErr)
}

// sorted sorts durations.
func sorted(d []time.Duration) []time.Duration {
	slices.Sort(d)
	return d
}
