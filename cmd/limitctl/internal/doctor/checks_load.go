package doctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
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
	return judgeShare(used*100/most, found, fix)
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
	found := fmt.Sprintf("p50 %s, p99 %s, of %d calls from this machine", words.Duration(p50), words.Duration(p99), len(calls))
	r := ok("%s", found)
	switch {
	case p99 >= hopeless:
		r = Fail.because("%s", found)
	case p50 >= slowUsual || p99 >= slowSeldom:
		r = Warn.because("%s", found)
	}
	if r.verdict != OK {
		r = r.change("run limitctl doctor where the program runs; if it is slow there too, move Redis closer, and see SLOWLOG GET and the check memory",
			"redis-cli --latency")
	}
	return r
}

func pingLatency(f *RedisFacts, n *Node) result { return latency(n.Ping, "PING: "+n.PingErr) }

func scriptLatency(f *RedisFacts, n *Node) result { return latency(n.Script, n.ScriptErr) }
