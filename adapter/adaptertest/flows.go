package adaptertest

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/notice"
)

// A flow is requests that a client sends one after the other, and what they must be answered.
type flow struct {
	name     string
	store    core.Store // nil is one in memory
	options  limit.Options
	declare  func(r Router, h http.Handler) // h answers with 204; what must not reach it expects another status
	steps    []step
	seen     []string // words of what Observe is told of each decision, in their order; nil is not checked
	failures []string // words of the errors that Observe is told, in their order
	notices  []string // words of the lines that are logged, in their order, unless there is a store
}

// A step is a request that is sent once for each status. A refusal must be a problem document.
type step struct {
	method, path string
	statuses     []int
	headers      []string          // of the request: name, value, name, value
	violated     []string          // the rules that refuse; nil is not checked
	document     *problem          // nil is not checked
	body         string            // of any other answer than a refusal
	want         map[string]string // headers of each answer, with several lines joined
}

func send(request string, statuses ...int) step {
	method, path, _ := strings.Cut(request, " ")
	return step{method: method, path: path, statuses: statuses}
}

// from adds headers to the request.
func (s step) from(headers ...string) step { s.headers = headers; return s }

func (s step) by(rules ...string) step { s.violated = rules; return s }

func (s step) answers(body string) step { s.body = body; return s }

func (s step) with(document problem) step { s.document = &document; return s }

// says requires headers of the answer: name, value, name, value. An empty value is no header.
func (s step) says(headers ...string) step {
	s.want = make(map[string]string)
	for i := 0; i < len(headers); i += 2 {
		s.want[headers[i]] = headers[i+1]
	}
	return s
}

// nowhere is the status of a request whose path is a route of another method: 404 or 405.
const nowhere = 0

func (s suite) flows(t *testing.T) {
	for _, f := range slices.Concat(flows(), refusals(), degraded(), clients(), settlements(), undecided()) {
		t.Run(f.name, func(t *testing.T) { s.flow(t, f) })
	}
}

func (s suite) flow(t *testing.T, f flow) {
	book, seen, failures := new(logbook.Book), new(logbook.Book), new(logbook.Book)
	f.options.Log, f.options.Instances = book.Log(), 1
	f.options.Observe = func(r *http.Request, d limit.Decision, err error) {
		var rules []string
		for rule := range d.Rules() {
			rules = append(rules, rule.Name)
		}
		if err != nil {
			assert.ErrorIs(t, err, limit.ErrUndecided)
			fmt.Fprintln(failures, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		assert.True(t, err != nil || time.Since(d.At) < time.Minute, d.At)
		fmt.Fprintf(seen, "%s %s %s mode=%v allowed=%v %v %v %v\n",
			r.RequestURI, d.Policy, d.Outcome(), d.Mode, d.Allowed, d.RetryAfter, rules, err)
	}
	router, ran := s.framework(limit.New(f.store, &f.options)), 0
	f.declare(router, counting(&ran))
	c := serve(t, authenticated(router))
	for _, step := range f.steps {
		c.expectStep(step)
		for _, status := range step.statuses {
			if status == http.StatusNoContent {
				ran--
			}
		}
	}
	assert.Zero(t, ran, "how much more often the handler has run than was expected")
	requireLines(t, failures, f.failures)
	if f.store == nil {
		requireLines(t, book, f.notices)
	}
	if f.seen == nil {
		return
	}
	lines := seen.Lines()
	require.Len(t, lines, len(f.seen), lines)
	for i, want := range f.seen { // whole words: the name of a policy is a part of many paths
		assert.Subset(t, strings.Fields(lines[i]), strings.Fields(want))
	}
}

// requireLines requires a line for each list of words.
func requireLines(t *testing.T, book *logbook.Book, words []string) {
	t.Helper()
	lines := book.Lines()
	require.Len(t, lines, len(words), lines)
	for i, want := range words {
		for _, word := range strings.Fields(want) {
			assert.Contains(t, lines[i], word)
		}
	}
}

func (c client) expectStep(s step) {
	for i, status := range s.statuses {
		a := c.send(s.method, s.path, s.headers...)
		switch {
		case status == nowhere:
			require.Contains(c.t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, a.StatusCode, "%s %s", s.method, s.path)
		case s.document != nil || (status == 429 || status == 503) && s.method != "HEAD":
			p := requireProblem(c.t, a, status)
			if s.violated != nil {
				assert.ElementsMatch(c.t, s.violated, p.Violated, "%s %s", s.method, s.path)
			}
			if s.document != nil {
				assert.Equal(c.t, *s.document, p)
			}
		default:
			require.Equal(c.t, status, a.StatusCode, "%s %s, request %d: %s", s.method, s.path, i+1, a.body)
			assert.True(c.t, status >= 400 || a.body == s.body, "the body of %s %s: %q", s.method, s.path, a.body)
		}
		for name, want := range s.want {
			assert.Equal(c.t, want, strings.Join(a.Header.Values(name), ", "), "%s of %s %s", name, s.method, s.path)
		}
	}
}

// on declares one route.
func on(request string, sets ...limit.RuleSet) func(Router, http.Handler) {
	method, path, _ := strings.Cut(request, " ")
	return func(r Router, h http.Handler) { r.Handle(method, path, h, sets...) }
}

func flows() (list []flow) {
	perIP, global := limit.PerIP(time.Hour, 1), limit.Global(time.Hour, 4)
	strict, loose := limit.Per(limit.ByHeader("X-Key"), time.Hour, 1), limit.Global(time.Hour, 3)
	all, everyone := shared("all", limit.Everyone, 9), shared("all", limit.ByIP, 5)

	// A request that one rule refuses is not charged to another.
	for name, rules := range map[string]limit.RuleSet{"strict first": limit.Rules(strict, loose), "loose first": limit.Rules(loose, strict)} {
		list = append(list, flow{name: "all or nothing, " + name, declare: on("GET /", rules), steps: []step{
			send("GET /", 204, 429, 429, 429, 429).from("X-Key", "a"),
			send("GET /", 204).from("X-Key", "b"),
			send("GET /", 204).from("X-Key", "c"),
			send("GET /", 429).from("X-Key", "d").by("global-1h"),
			send("GET /", 429).from("X-Key", "a").by("global-1h", "per-header-x-key-1h"),
		}})
	}
	// A set declared on several routes has quotas on each. A route is its pattern, not the path.
	for name, rules := range map[string]limit.RuleSet{"Rules": limit.Rules(perIP), "EachRoute": limit.EachRoute(perIP)} {
		list = append(list, flow{name: "routes of " + name, declare: func(r Router, h http.Handler) {
			r.Handle("GET", "/a", h, rules)
			r.Handle("POST", "/a", h, rules)
			r.Handle("GET", "/b/{id}", h, rules)
		}, steps: []step{send("GET /a", 204, 429), send("POST /a", 204, 429), send("GET /b/1", 204, 429), send("GET /b/2", 429)}})
	}
	// Each request is charged twice to a set that stands twice on a route.
	for name, rules := range map[string]limit.RuleSet{"Rules": limit.Rules(global), "Named": shared("all", limit.Everyone, 4)} {
		list = append(list, flow{name: name + " charged twice", declare: on("GET /", rules, rules), steps: []step{send("GET /", 204, 204, 429)},
			notices: []string{"code=" + notice.ChargedTwice}})
	}
	return append(list,
		flow{name: "HEAD", declare: on("HEAD /", limit.Rules(limit.PerIP(time.Minute, 1))),
			steps: []step{send("HEAD /", 204), send("HEAD /", 429).says("Retry-After", "60")}},
		// The client writes the first entries of the header.
		flow{name: "trusted proxy", declare: on("GET /", limit.Rules(perIP)),
			options: limit.Options{Proxies: limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}},
			steps: []step{
				send("GET /", 204).from("X-Forwarded-For", "203.0.113.1"),
				send("GET /", 204).from("X-Forwarded-For", "203.0.113.2"),
				send("GET /", 429).from("X-Forwarded-For", "198.51.100.7, 203.0.113.2"),
			}},
		// A path value is decoded once.
		flow{name: "path value", declare: on("GET /users/{id}", limit.Rules(limit.Per(limit.ByPathValue("id"), time.Hour, 1))), steps: []step{
			send("GET /users/alice", 204, 429),
			send("GET /users/bob", 204),
			send("GET /users/%61lice", 429), // another spelling is the same user
			send("GET /users/alice%20", 429),
			send("GET /users/%2561lice", 204), // the user "%61lice"
			send("GET /users/alice?id=carol", 429),
		}},
		// All requests share one quota if the route does not have the path value.
		flow{name: "missing path value", declare: on("GET /users/{uid}", limit.Rules(limit.Per(limit.ByPathValue("id"), time.Hour, 1))),
			steps:   []step{send("GET /users/alice", 204), send("GET /users/bob", 429)},
			notices: []string{"code=" + notice.NoPathValue + " value=id"}},
		flow{name: "named", declare: func(r Router, h http.Handler) {
			rules := limit.Named("shared", limit.PerIP(time.Hour, 2))
			r.Handle("GET", "/a", h, rules)
			r.Handle("POST", "/b", h, rules)
		}, steps: []step{send("GET /a", 204), send("POST /b", 204, 429), send("GET /a", 429)}},
		// Rules before everything, on a group and on a route decide from the outside in, each for
		// itself, and add to the same fields. A refusal by one costs the others nothing.
		flow{name: "stacked", declare: func(r Router, h http.Handler) {
			r.Use(all)
			group := r.Group("/api", shared("group", limit.Everyone, 3))
			group.Handle("GET", "/item", h, rule("route", limit.Everyone, 2))
			group.Handle("GET", "/other", h, rule("other", limit.Everyone, 2))
		}, steps: []step{
			send("GET /api/item", 204).says("RateLimit", `"all";r=8;t=3600, "group";r=2;t=3600, "route";r=1;t=3600`,
				"RateLimit-Policy", `"all";q=9;w=3600, "group";q=3;w=3600, "route";q=2;w=3600`),
			send("GET /api/item", 204),
			send("GET /api/item", 429, 429).by("route"),
			send("GET /api/other", 204),
			send("GET /api/other", 429).by("group"),
		}},
		// A set and one that is With it stand around each other, in both orders. Each quota is
		// charged once, and given back if another one refuses.
		flow{name: "sets with others", declare: func(r Router, h http.Handler) {
			r.Group("/inside", all).Handle("GET", "/item", h, rule("route", limit.Everyone, 1).With(all))
			r.Group("/outside", shared("group", limit.Everyone, 5).With(all)).Handle("GET", "/item", h, all)
			r.Handle("GET", "/alone", h, rule("route", limit.Everyone, 1).With(limit.Named("all")))
		}, steps: []step{
			send("GET /inside/item", 204).says("RateLimit", `"all";r=8;t=3600, "route";r=0;t=3600`),
			send("GET /outside/item", 204).says("RateLimit", `"group";r=4;t=3600, "all";r=7;t=3600`),
			send("GET /inside/item", 429).says("RateLimit", `"all";r=7;t=3600, "route";r=0;t=3600`),
			send("GET /alone", 204).says("RateLimit", `"route";r=0;t=3600, "all";r=6;t=3600`),
			send("GET /alone", 429).says("RateLimit", `"route";r=0;t=3600, "all";r=6;t=3600`),
		}},
		// Requests without a route share the quota of the named set with the routes, and so do
		// methods that clients make up.
		flow{name: "unmatched", declare: func(r Router, h http.Handler) { r.Use(everyone); r.Handle("GET", "/real", h) }, steps: []step{
			send("GET /nothing/0/here", 404), send("POST /nothing/1/here", 404), send("PUT /nothing/2/here", 404),
			send("DELETE /nothing/3/here", 404), send("OPTIONS /nothing/4/here", 404),
			send("GET /x0", 429), send("GET /x1", 429), send("GET /real", 429),
		}},
		flow{name: "invented methods", declare: func(r Router, h http.Handler) { r.Use(everyone); r.Handle("GET", "/real", h) }, steps: []step{
			send("INVENTED0 /real", nowhere), send("INVENTED1 /real", nowhere), send("INVENTED2 /real", nowhere),
			send("INVENTED3 /real", nowhere), send("INVENTED4 /real", nowhere), send("ANOTHER /real", 429),
		}},
		// Observe is told once of each decision.
		flow{name: "observe", declare: func(r Router, h http.Handler) {
			r.Handle("GET", "/seen", h, limit.Named("seen", limit.Global(time.Minute, 1)))
			r.Handle("GET", "/free", h)
		}, steps: []step{send("GET /seen", 204), send("GET /free", 204), send("GET /seen", 429)},
			seen: []string{"/seen seen admitted mode=exact", "/seen seen refused mode=exact"}},
		flow{name: "not barred", declare: on("GET /", limit.Rules(limit.PerIP(time.Minute, 1))), options: limit.Options{
			Exempt: func(limit.Client) bool { return false },
			Bar:    func(limit.Client) time.Duration { return -1 },
		}, steps: []step{send("GET /", 204, 429)}},
	)
}
