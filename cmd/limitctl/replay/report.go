package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

func (r *run) report(log Source) *Result {
	stats := log.Stats()
	result := &r.result
	result.Lines, result.BadLines = stats.Lines, stats.BadLines
	result.Formats, result.Samples = stats.Formats, stats.Samples
	if many, ok := log.(interface{ Files() []accesslog.File }); ok {
		result.Files = many.Files()
	}
	if !result.From.IsZero() {
		result.To = timeOf(r.now)
	}
	result.Refusals = []Client{} // not null in JSON
	result.Clients = int64(len(r.clients))
	result.Policies = policyResults(r.sides[0].bound, r.options.Top)
	r.listClients()
	result.Routes = []RouteResult{}
	for i, route := range r.routes {
		if route.Route = r.places.routes[i]; route.Requests > 0 {
			result.Routes = append(result.Routes, route)
		}
	}
	slices.SortStableFunc(result.Routes, func(a, b RouteResult) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Requests, a.Requests),
			strings.Compare(a.Route, b.Route))
	})
	result.Width, result.Buckets = r.buckets.list()
	if stays := &result.Stays; stays.Count > 0 {
		micros := func(q float64) time.Duration {
			return min(stays.Max, time.Duration(r.stays.Quantile(q))*time.Microsecond)
		}
		stays.P50, stays.P90, stays.P99 = micros(0.5), micros(0.9), micros(0.99)
	}
	if c := result.Comparison; c != nil {
		c.Policies = policyResults(r.sides[1].bound, r.options.Top)
		c.NewlyRefused = r.newly.list(r.options.Top)
	}
	if r.suggest != nil {
		result.Suggestions = r.suggest.list(r.options.Top, r.places.routes, r.options.Share, r.finer)
	}
	r.explain()
	return result
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func policyResults(all []*bound, most int) []PolicyResult {
	results := make([]PolicyResult, 0, len(all))
	for _, b := range all {
		for _, c := range b.rules {
			c.Keys = c.keys.list(most)
			b.Rules = append(b.Rules, c.RuleResult)
		}
		results = append(results, b.PolicyResult)
	}
	return results
}

func (r *run) listClients() {
	var refused []*client
	for _, c := range r.clients {
		r.endStay(c)
		if c.Refused > 0 {
			refused = append(refused, c)
		}
	}
	slices.SortFunc(refused, func(a, b *client) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Address, b.Address))
	})
	for _, c := range refused[:min(len(refused), r.options.Top)] {
		r.result.Refusals = append(r.result.Refusals, c.Client)
	}
}

// explain adds notes on what a reader might not expect.
func (r *run) explain() {
	result := &r.result
	for i, s := range r.sides {
		result.Overflow += s.overflow
		for _, b := range s.bound {
			for _, c := range b.rules {
				r.explainKey(b.Requests, c)
			}
			if b.Requests+b.Listed == 0 && result.Requests > 0 {
				r.notes.add("%spolicy %q matches no request of the log: its routes are %s",
					[]string{"", "new "}[i], b.Name, strings.Join(b.Routes, ", "))
			}
		}
	}
	for _, f := range result.Files {
		switch {
		case f.Error != "":
			r.notes.add("not read: %s", f.Error)
		case f.Truncated != "":
			r.notes.add("%s ends early after %v lines: %s", f.Path, f.Lines, f.Truncated)
		}
	}
	if len(r.sides[0].bound) > 0 {
		r.notes.count(result.NoRoute, "of %v requests are on routes without a policy", result.Requests)
	}
	if r.suggest != nil {
		r.notes.count(result.Redirected, "requests were answered with 301 or 308, which servers do before a limiter sees "+
			"a request: the suggestions leave them out")
		r.notes.count(r.suggest.anonymous(allRoutes), "requests have no user, and would share one quota: where there are some, "+
			"no rule per user is suggested; try one such as --rules %q", "100/1m per user or ip")
	}
	r.notes.count(r.addressless, "requests have no address of a client; rules per ip count them as one client")
	r.notes.count(result.Late, "requests came more than %v lines late, and were decided at a later time",
		int64(r.queue.late))
	r.notes.count(result.BadTimes, "lines have a time before 1970 or after 2255, and were left out")
	r.notes.count(result.Overflow, "decisions shared a quota because there were more than %v keys at once: "+
		"raise MaxKeys", int64(r.options.MaxKeys))
	r.notes.count(result.Untracked, "requests came from clients beyond the first %v: they are decided, but not listed",
		int64(r.options.maxClients))
	result.Notes = r.notes.list
}

// Notes are sentences, each once. Numbers in them are of type int64.
type notes struct{ list []string }

func (n *notes) add(format string, args ...any) {
	for i, arg := range args {
		if number, ok := arg.(int64); ok {
			args[i] = words.Number(number)
		}
	}
	if text := fmt.Sprintf(format, args...); !slices.Contains(n.list, text) {
		n.list = append(n.list, text)
	}
}

// count adds a note that begins with a number, unless that is 0.
func (n *notes) count(number int64, format string, args ...any) {
	if number > 0 {
		n.add("%v "+format, append([]any{number}, args...)...)
	}
}
