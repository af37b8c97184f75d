package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// MaxRoutes is the largest number of routes that [Web] asks.
const MaxRoutes = 20

// WebOptions name an application.
type WebOptions struct {
	URL    string   // such as http://127.0.0.1:8080/api
	Routes []string // paths, or "HEAD /path"; without any, the URL alone is asked
}

// WebFacts describe an application.
type WebFacts struct {
	Err      string  // why the first request got no answer
	Loopback bool    // whether the URL is of an address such as 127.0.0.1
	Proxies  []Probe // of one route: two plain requests, then one with a forged address
	Routes   []Probe // one for each route
}

// A Probe is a request and its response.
type Probe struct {
	Sent      string // the request line, and headers
	Route     string
	Err       string
	Status    int
	Remaining map[string]int64 // of each rule, in the headers
}

// A target is a request to a route.
type target struct{ route, method, url string }

// Web sends requests to an application: one to each route (or to the URL), and two
// more to routes with a rule by address, the last one with a forged address, until the
// remaining quotas show something: those of rules that count only failures do not.
// Requests are GET or HEAD, follow no redirect, and use the quotas of this machine. An
// error is about the options.
func Web(ctx context.Context, o WebOptions) (*WebFacts, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--url %q: write it as http://127.0.0.1:8080", o.URL)
	}
	if len(o.Routes) > MaxRoutes {
		return nil, fmt.Errorf("--route: %d routes: name at most %d", len(o.Routes), MaxRoutes)
	}
	var targets []target
	var probes []Probe
	for _, route := range o.Routes {
		method, path, spaced := strings.Cut(route, " ")
		if !spaced {
			method, path = http.MethodGet, route
		}
		if method != http.MethodGet && method != http.MethodHead || !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("--route %q: write a path such as /api/items, or \"HEAD /api/items\": only GET and HEAD are sent", route)
		}
		ref, err := url.Parse(path)
		if err != nil || ref.Host != "" {
			return nil, fmt.Errorf("--route %q: write a path such as /api/items", route)
		}
		at := base.JoinPath(ref.EscapedPath())
		at.RawQuery = ref.RawQuery
		targets = append(targets, target{route, method, at.String()})
	}
	if len(targets) == 0 {
		targets = []target{{base.Path, http.MethodGet, o.URL}}
	}
	client := &http.Client{
		Timeout:       5 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	at, _ := netip.ParseAddr(base.Hostname())
	facts := &WebFacts{Loopback: at.IsLoopback() || base.Hostname() == "localhost"}
	for _, t := range targets {
		p := t.probe(ctx, client, "")
		probes = append(probes, p)
		if (facts.Proxies == nil || proxies(facts).Verdict == Skipped) && slices.ContainsFunc(slices.Collect(maps.Keys(p.Remaining)), byAddress) {
			facts.Proxies = t.forge(ctx, client, p)
		}
	}
	facts.Err = probes[0].Err
	if len(o.Routes) > 0 {
		facts.Routes = probes
	}
	if facts.Proxies == nil { // no rule is by address
		facts.Proxies = targets[0].forge(ctx, client, probes[0])
	}
	return facts, nil
}

// forge repeats a request whose response shows quotas, without and with a forged address.
func (t target) forge(ctx context.Context, client *http.Client, first Probe) []Probe {
	if len(first.Remaining) == 0 {
		return []Probe{first}
	}
	var b [3]byte
	rand.Read(b[:])
	reserved := fmt.Sprintf("198.%d.%d.%d", 18+b[0]&1, b[1], b[2]) // in 198.18.0.0/15, for benchmarks
	return []Probe{first, t.probe(ctx, client, ""), t.probe(ctx, client, reserved)}
}

// probe sends the request. If forged is not empty, its headers claim that address.
func (t target) probe(ctx context.Context, client *http.Client, forged string) Probe {
	p := Probe{Sent: t.method + " " + t.url, Route: t.route}
	r, err := http.NewRequestWithContext(ctx, t.method, t.url, nil)
	if err != nil {
		p.Err = err.Error()
		return p
	}
	r.Header.Set("User-Agent", "limitctl doctor")
	if forged != "" {
		p.Sent += " with X-Forwarded-For, X-Real-IP and Forwarded of " + forged
		r.Header.Set("X-Forwarded-For", forged)
		r.Header.Set("X-Real-Ip", forged)
		r.Header.Set("Forwarded", "for="+forged)
	}
	response, err := client.Do(r)
	if err != nil {
		p.Err = err.Error()
		return p
	}
	io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	response.Body.Close()
	p.Status, p.Remaining = response.StatusCode, remaining(response.Header)
	return p
}

// remaining reads RateLimit, a list such as "per-ip-2s";r=4;t=2, or
// X-RateLimit-Remaining.
func remaining(h http.Header) map[string]int64 {
	m := make(map[string]int64)
	for _, member := range remainingOf.FindAllStringSubmatch(strings.Join(h.Values("RateLimit"), ","), -1) {
		if r, err := strconv.ParseInt(member[2], 10, 64); err == nil {
			m[member[1]] = r
		}
	}
	if r, err := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64); err == nil && len(m) == 0 {
		m["X-RateLimit-Remaining"] = r
	}
	return m
}

// remainingOf matches the name of a rule and its parameter r.
var remainingOf = regexp.MustCompile(`"?([^",;\s]+)"?\s*(?:;[^,;]*)*?;\s*r=(-?[0-9]+)`)

// What an application shows from outside.

func application(f *WebFacts) Finding {
	if f.Err != "" {
		return Fail.because("%s", f.Err).change("start the application, or correct --url")
	}
	return OK.because("answers")
}

// byAddress reports whether the name of a rule says that its key is the address, as
// the default names "per-ip-1m" and "per-user-or-ip-1m" do.
func byAddress(rule string) bool {
	return slices.Contains(strings.Split(rule, "-"), "ip")
}

// proxies compares what remained before and after a request with a forged address.
// A quota that begins anew was given to the forged address. A quota that falls on
// proves the opposite only if its key is the address.
func proxies(f *WebFacts) Finding {
	if f.Err != "" {
		return Skipped.because("the application does not answer")
	}
	if f.Proxies == nil {
		return Finding{}
	}
	var sent []string
	for _, p := range f.Proxies {
		sent = append(sent, p.Sent)
	}
	about := " (sent: " + strings.Join(sent, "; ") + ")"
	for _, p := range f.Proxies {
		if p.Err != "" {
			return Skipped.because("%s%s", p.Err, about)
		}
	}
	if len(f.Proxies) != 3 {
		return Skipped.because("three responses with RateLimit headers are needed%s", about)
	}
	first, second, forged := f.Proxies[0].Remaining, f.Proxies[1].Remaining, f.Proxies[2].Remaining
	if len(first) == 0 {
		return Skipped.because("no RateLimit headers to compare%s", about)
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
		verdict := Fail
		if f.Loopback { // the address of a proxy on this machine, which many programs rightly trust
			verdict = Warn
		}
		return verdict.because("a forged address was given a new quota: remaining of %s%s", fresh, about).
			change("name only the proxies in front in limit.Options.Proxies (Trusted), and let the nearest one overwrite what clients send",
				"if this machine is itself one of the trusted proxies, as 127.0.0.1 often is, run limitctl doctor from a machine that is not",
				"if several instances without a common store answer, each counts for itself: name one of them by --url")
	case same != "" && unclear == "":
		return OK.because("a forged address was given no new quota: remaining of %s%s", same, about)
	case unclear != "":
		return Skipped.because("what remained is inconclusive (refilled, or used by other requests meanwhile): %s%s", unclear, about)
	}
	return Skipped.because("no rule by address, such as \"per-ip-1m\", to show it: name a route with one by --route; remaining of %s%s", others, about)
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

func routes(f *WebFacts) Finding {
	if len(f.Routes) == 0 {
		return Finding{}
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
		return Skipped.because("no response from %s", strings.Join(failed, ", "))
	}
	return OK.because("RateLimit headers on %s", words.Count(int64(len(f.Routes)), "route"))
}
