package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/routelimit/limit/lua"
)

// table writes the rows in Markdown, with what the figures mean.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("<!-- made by: go run ./benchmarks/cmd/algorithms -->\n\n")
	b.WriteString("| Limit 100 per 1 s | most in 1 s | admitted wrongly | refused wrongly | bytes a key, memory | bytes a key, Redis | ns a decision |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		onRedis := ""
		if r.redis > 0 {
			onRedis = fmt.Sprint(r.redis)
		}
		fmt.Fprintf(&b, "| %s | %d / %d | %s / %s | %s / %s | %.0f | %s | %.0f |\n", r.name,
			r.hostile.most, r.usual.most,
			percent(r.hostile.over, r.hostile.asked), percent(r.usual.over, r.usual.asked),
			percent(r.hostile.under, r.hostile.asked), percent(r.usual.under, r.usual.asked),
			r.heap, onRedis, r.ns)
	}
	b.WriteString("\nWhere there are two figures, the first is of adversarial schedules, the second of a realistic one.\n\n")
	hostile, usual, redis, waits := 0, 0, false, ""
	for _, r := range rows {
		hostile, usual, redis = hostile+r.hostile.asked, usual+r.usual.asked, redis || r.redis > 0
		if r.usual.delay > 0 {
			waits = fmt.Sprintf(" On the realistic schedule a request that it admitted waited %.0f ms on average.",
				float64(r.usual.delay)/float64(r.usual.admitted)/1000)
		}
	}
	notes := []string{
		fmt.Sprintf("**Schedules**: one key; %.1f million requests on the adversarial schedules and %.1f million on the realistic one, over all algorithms. "+
			"Adversarial are bursts on both sides of a window's edge, retries at the microsecond that a refusal names and one "+
			"before it, floods and silence in turn, and bursts at the end or the beginning of a window of the clock with requests "+
			"all through the next. Their percentages say what an adversary can do, and depend on the mix. Realistic are Poisson "+
			"arrivals at 0.4 to 1.4 times the limit, up and down like a day, with bursts of 20 to 80 about every ten seconds.",
			float64(hostile)/1e6, float64(usual)/1e6),
		"**Most in 1 s**: the most units admitted in any half-open window of 1 s; of the queue, the most whose turn came in one.",
		"**Wrongly**: in per cent of all requests. Each decision is compared with the exact one, given what *this* algorithm " +
			"has admitted before. It admitted wrongly if some half-open window of 1 s then held more than 100 units, and refused " +
			"wrongly if none would have. The buckets promise a rate and a burst instead of a window, so that this measures how far " +
			"the two promises are apart and not a fault. " +
			"A unit of the queue counts when its turn comes, and a wait is not counted as wrong." + waits,
		fmt.Sprintf("**Bytes in memory**: growth of the heap for each of %d,000 full keys in a memstore, the 10 to 13 bytes of the key itself included.", heapKeys/1000),
		fmt.Sprintf("**Bytes in Redis**: the most that `MEMORY USAGE` said of a key, with a name of %d bytes, while it was asked "+
			"for twice its limit within a second.", len(lua.Key("limit", "bench", "ip", address(0)))),
		fmt.Sprintf("**ns a decision**: `core.Decide` at the times of the realistic schedule, the fastest of 10 rounds, on %s/%s with %s; "+
			"a store adds its locks or its network.", runtime.GOOS, runtime.GOARCH, runtime.Version()),
	}
	if !redis {
		notes[4] = "**Bytes in Redis** is blank: there was no redis-server."
	}
	for _, note := range notes {
		b.WriteString("- " + note + "\n")
	}
	return b.String()
}

func percent(n, of int) string {
	if n == 0 {
		return "0"
	}
	share := 100 * float64(n) / float64(of)
	if share < 0.01 {
		return "<0.01 %"
	}
	return fmt.Sprintf("%.2f %%", share)
}
