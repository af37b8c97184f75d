package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// table writes the rows in Markdown, and explains the figures.
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
	b.WriteString("\nTwo figures in a cell are for adversarial schedules and for a realistic one, in that order.\n\n")
	hostile, usual, redis, waits := 0, 0, false, ""
	for _, r := range rows {
		hostile, usual, redis = hostile+r.hostile.asked, usual+r.usual.asked, redis || r.redis > 0
		if r.usual.delay > 0 {
			waits = fmt.Sprintf(" On the realistic schedule an admitted request waited %.0f ms on average.",
				float64(r.usual.delay)/float64(r.usual.admitted)/1000)
		}
	}
	notes := []string{
		fmt.Sprintf("**Schedules**: one key; %.1f million requests on the adversarial schedules and %.1f million on the realistic one, over all algorithms. "+
			"The adversarial schedules are bursts on both sides of a window's edge, retries at the microsecond that a refusal names "+
			"and one before it, floods and silence in turn, and bursts at the end or the beginning of a clock window with requests "+
			"all through the next. Their percentages show what an adversary can do, and depend on the mix. The realistic schedule has Poisson "+
			"arrivals at 0.4 to 1.4 times the limit, rising and falling as over a day, with bursts of 20 to 80 about every ten seconds.",
			float64(hostile)/1e6, float64(usual)/1e6),
		"**Most in 1 s**: the most units admitted in any half-open window of 1 s. For the queue, the most slots in one.",
		"**Wrongly**: in percent of all requests. Each decision is compared with the exact one, given what *this* algorithm " +
			"has admitted before. It is wrongly admitted if some half-open window of 1 s then held more than 100 units, and wrongly " +
			"refused if none would have. The buckets promise a rate and a burst instead of a window, so for them this measures how far " +
			"the two promises are apart; it is not an error. " +
			"A unit of the queue counts at the time of its slot, and a wait does not count as wrong." + waits,
		fmt.Sprintf("**Bytes in memory**: growth of the heap for each of %d,000 full keys in a memstore, including the 10 to 13 bytes of the key itself.", heapKeys/1000),
		fmt.Sprintf("**Bytes in Redis**: the largest `MEMORY USAGE` of a key with a name of %d bytes, while twice its limit "+
			"was requested within a second.", len(lua.Key("limit", &core.Charge{Policy: "bench", Rule: "ip", Key: address(0)}))),
		fmt.Sprintf("**ns a decision**: `core.Decide` at the times of the realistic schedule, the fastest of 10 rounds, on %s/%s with %s. "+
			"A store adds its locks or its network.", runtime.GOOS, runtime.GOARCH, runtime.Version()),
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
