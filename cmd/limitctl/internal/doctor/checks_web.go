package doctor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// What an application shows from outside.

func application(f *WebFacts) result {
	if f.Err != "" {
		return Fail.because("%s", f.Err).change("start the application, or correct --url")
	}
	return ok("answers")
}

// byAddress reports whether the name of a rule says that its key is the address, as
// the default names "per-ip-1m" and "per-user-or-ip-1m" do.
func byAddress(rule string) bool {
	return slices.Contains(strings.Split(rule, "-"), "ip")
}

// proxies compares what remained before and after a request with a forged address.
// A quota that begins anew was given to the forged address. A quota that falls on
// proves the opposite only if its key is the address.
func proxies(f *WebFacts) result {
	if f.Err != "" {
		return skipped("the application does not answer")
	}
	if f.Proxies == nil {
		return result{}
	}
	var sent []string
	for _, p := range f.Proxies {
		sent = append(sent, p.Sent)
	}
	about := " (sent: " + strings.Join(sent, "; ") + ")"
	for _, p := range f.Proxies {
		if p.Err != "" {
			return skipped("%s%s", p.Err, about)
		}
	}
	if len(f.Proxies) != 3 {
		return skipped("three responses with RateLimit headers are needed%s", about)
	}
	first, second, forged := f.Proxies[0].Remaining, f.Proxies[1].Remaining, f.Proxies[2].Remaining
	if len(first) == 0 {
		return skipped("no RateLimit headers to compare%s", about)
	}
	refusedBefore := f.Proxies[1].Status == http.StatusTooManyRequests
	refusedForged := f.Proxies[2].Status == http.StatusTooManyRequests
	same, fresh, unclear, others := "", "", "", ""
	for rule, a := range first {
		b, inSecond := second[rule]
		c, inForged := forged[rule]
		switch {
		case !inSecond || !inForged:
			unclear = pick(unclear, rule, a, b, c)
		case b < a && c >= a, b == 0 && refusedBefore && !refusedForged:
			fresh = pick(fresh, rule, a, b, c)
		case !byAddress(rule):
			others = pick(others, rule, a, b, c)
		case b < a && c < b, b == 0 && c == 0 && refusedForged:
			same = pick(same, rule, a, b, c)
		case b == c && refusedForged: // another rule refused, so this one was not charged
		default:
			unclear = pick(unclear, rule, a, b, c)
		}
	}
	switch {
	case fresh != "":
		return Fail.because("a forged address was given a new quota: remaining of %s%s", fresh, about).
			change("name only the proxies in front in limit.Options.Proxies (Trusted), and let the nearest one overwrite what clients send",
				"if this machine is itself one of the trusted proxies, run limitctl doctor from a machine that is not")
	case same != "" && unclear == "":
		return ok("a forged address was given no new quota: remaining of %s%s", same, about)
	case unclear != "":
		return skipped("what remained is inconclusive (refilled, or used by other requests meanwhile): %s%s", unclear, about)
	}
	return skipped("no rule by address, such as \"per-ip-1m\", to show it: name a route with one by --route; remaining of %s%s", others, about)
}

// pick keeps the first rule by name, so that findings do not depend on the
// order of a map.
func pick(old, rule string, remaining ...int64) string {
	text := words.Quote(rule) + " was " + strings.Trim(strings.ReplaceAll(fmt.Sprint(remaining), " ", ", "), "[]")
	if old == "" || text < old {
		return text
	}
	return old
}

func routes(f *WebFacts) result {
	if len(f.Routes) == 0 {
		return result{}
	}
	var bare, failed []string
	for _, p := range f.Routes {
		switch {
		case p.Err != "":
			failed = append(failed, words.Quote(p.Route)+" ("+p.Err+")")
		case len(p.Remaining) == 0:
			bare = append(bare, fmt.Sprintf("%s (%d)", words.Quote(p.Route), p.Status))
		}
	}
	switch {
	case bare != nil:
		return Warn.because("no RateLimit headers on %s", strings.Join(bare, ", ")).
			change("add rules, such as limit.PerIP(time.Second, 10); rules with limit.NoHeaders do not show")
	case failed != nil:
		return skipped("no response from %s", strings.Join(failed, ", "))
	}
	return ok("RateLimit headers on %s", words.Count(int64(len(f.Routes)), "route"))
}
