package bench

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Verdict says what keeps a Redis from more decisions.
type Verdict struct {
	Limit   string `json:"limit"` // one of the Limits
	Why     string `json:"why"`
	Summary string `json:"summary"`
}

// Limits.
const (
	RedisCPU   = "redis-cpu"   // the thread of Redis that runs commands
	ClientCPU  = "client-cpu"  // this process: Redis can do more
	SharedCPU  = "shared-cpu"  // Redis and this process on one machine
	RoundTrip  = "round-trip"  // callers wait for the network, and nothing is busy: Redis can do more
	NotReached = "not-reached" // the throughput still grew
)

// busy is the part of the time from which a processor counts as the limit. The rest is
// what a run loses to its start and to other programs.
const busy = 0.8

// judge fills in the verdict and the notes. climbed says that the number of callers grew
// until the throughput did not.
func (r *Result) judge(climbed bool) {
	best := r.best()
	all := float64(cores())
	callers := fmt.Sprintf("with %s", count(float64(best.Callers), "caller"))
	server := fmt.Sprintf("The thread of Redis that runs commands was %.0f %% busy", 100*best.ServerBusy)
	if best.ServerBusy == 0 {
		server = "Redis does not say how busy it was"
		r.Notes = append(r.Notes, "Redis gives no INFO: how busy it was is unknown. Grant the Redis user +info.")
	}
	script := ""
	if best.Script > 0 {
		script = fmt.Sprintf(" A call of the script takes %s in Redis, for %.1f decisions.", short(best.Script), best.PerCall)
	}
	client := fmt.Sprintf("this program used %.1f of %.0f cores", best.ClientCores, all)
	switch {
	case best.ServerBusy >= busy:
		r.Limit = RedisCPU
		r.Why = fmt.Sprintf("Redis's CPU. %s %s, and %s.%s", server, callers, client, script)
	case r.Server.Local && best.ServerBusy > 0 && best.ClientCores+best.ServerBusy >= busy*all:
		r.Limit = SharedCPU
		r.Why = fmt.Sprintf("the CPU of this machine, which Redis and this program share. %s %s, and %s.%s Run the benchmark on another machine to measure Redis alone.", server, callers, client, script)
	case best.ClientCores >= busy*all:
		r.Limit = ClientCPU
		r.Why = fmt.Sprintf("the CPU of this program, not Redis. %s %s, and %s. Run the benchmark on a larger machine, or on several at once.", server, callers, client)
	case r.Interrupted:
		r.Limit = NotReached
		r.Why = "not found, since the benchmark was interrupted."
	case climbed && r.grew():
		r.Limit = NotReached
		r.Why = fmt.Sprintf("not found. The throughput still grew %s. Write more, such as --callers %d,%d.", callers, 2*best.Callers, 4*best.Callers)
	default:
		r.Limit = RoundTrip
		r.Why = fmt.Sprintf("the round trip. %s %s, and %s, so callers waited for the network, or for a machine that is busy with other work.%s A program has at most two calls of a policy in flight, so several programs may get more.", server, callers, client, script)
	}
	r.Summary = r.summary(best)
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Unanswered > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("With %s, Redis did not decide %s: it did not answer within --timeout, and this program fell back to local limits, as yours would.",
				run.name(), count(float64(run.Unanswered), "request")))
		}
		if run.Refused > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("With %s, %s of %s were refused, which costs Redis less than to admit them.",
				run.name(), thousands(float64(run.Refused)), count(float64(run.Decisions), "request")))
		}
	}
}

// name describes a run in a sentence.
func (r *Run) name() string {
	text := count(float64(r.Callers), "caller")
	if r.Hot {
		text += " and one client"
	}
	return text
}

// grew reports whether the last run with many clients was faster than the one before.
func (r *Result) grew() bool {
	var last, before float64
	for i := range r.Runs {
		if !r.Runs[i].Hot {
			last, before = r.Runs[i].PerSecond, last
		}
	}
	return last >= growth*before
}

// summary returns one sentence for a person.
func (r *Result) summary(best *Run) string {
	least, shared, round := "about ", "", math.Round
	switch r.Limit {
	case ClientCPU, NotReached, RoundTrip:
		least, round = "at least ", math.Floor
	case SharedCPU:
		shared = " while it shares this machine with the benchmark"
	}
	text := fmt.Sprintf("This Redis decides %s%s a second with %s%s", least, count(rounded(best.PerSecond, round), "request"), r.rules(), shared)
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Callers == 1 && !run.Hot {
			text += fmt.Sprintf("; a lone decision takes %s", short(run.Latency.P50))
			if r.RoundTrip > 0 && r.RoundTrip < run.Latency.P50 {
				text += fmt.Sprintf(", of which %s is the round trip", short(r.RoundTrip))
			}
			break
		}
	}
	return text + "."
}

// rules says what decides each request.
func (r *Result) rules() string {
	if len(r.Policies) > 1 {
		return fmt.Sprintf("%d policies in turn", len(r.Policies))
	}
	n := len(r.Policies[0].Texts)
	if n == 1 {
		return "one rule"
	}
	if words := []string{2: "two", 3: "three", 4: "four", 5: "five"}; n < len(words) {
		return words[n] + " rules"
	}
	return fmt.Sprintf("%d rules", n)
}

// rounded returns a number with two significant digits, by math.Round or math.Floor.
func rounded(n float64, round func(float64) float64) float64 {
	if n <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return round(n/unit) * unit
}

// thousands returns a whole number with commas.
func thousands(n float64) string {
	text := strconv.FormatFloat(n, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func count(n float64, one string) string {
	if text := thousands(n); text != "1" {
		return text + " " + one + "s"
	}
	return "1 " + one
}

// short returns a duration with two or three digits, in ms or s.
func short(m Micros) string {
	ms := float64(m) / float64(time.Millisecond)
	switch {
	case ms >= 1000:
		return strconv.FormatFloat(ms/1000, 'f', 2, 64) + " s"
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms >= 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms >= 0.1:
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	}
	return strconv.FormatFloat(ms*1000, 'f', 0, 64) + " µs"
}
