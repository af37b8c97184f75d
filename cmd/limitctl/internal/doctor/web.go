package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxRoutes is the largest number of routes that [Web] asks.
const MaxRoutes = 20

// WebOptions name an application.
type WebOptions struct {
	URL    string   // such as http://127.0.0.1:8080/api
	Routes []string // paths, or "HEAD /path"; without any, the URL alone is asked
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
		at := *base
		joined := base.JoinPath(ref.EscapedPath())
		at.Path, at.RawPath, at.RawQuery = joined.Path, joined.RawPath, ref.RawQuery
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
	facts := &WebFacts{}
	for _, t := range targets {
		p := probe(ctx, client, t.method, t.url, "")
		p.Route = t.route
		probes = append(probes, p)
		if (facts.Proxies == nil || proxies(facts).verdict == Skipped) && slices.ContainsFunc(slices.Collect(maps.Keys(p.Remaining)), byAddress) {
			facts.Proxies = forge(ctx, client, t, p)
		}
	}
	facts.Err = probes[0].Err
	if len(o.Routes) > 0 {
		facts.Routes = probes
	}
	if facts.Proxies == nil { // no rule is by address
		facts.Proxies = forge(ctx, client, targets[0], probes[0])
	}
	return facts, nil
}

// forge repeats a request whose response shows quotas, without and with a forged address.
func forge(ctx context.Context, client *http.Client, t target, first Probe) []Probe {
	if len(first.Remaining) == 0 {
		return []Probe{first}
	}
	return []Probe{first, probe(ctx, client, t.method, t.url, ""), probe(ctx, client, t.method, t.url, forgedAddress())}
}

// forgedAddress returns a random address in 198.18.0.0/15, which is reserved for
// benchmarks.
func forgedAddress() string {
	var b [3]byte
	rand.Read(b[:])
	return fmt.Sprintf("198.%d.%d.%d", 18+b[0]&1, b[1], b[2])
}

// probe sends a request. If forged is not empty, its headers claim that address.
func probe(ctx context.Context, client *http.Client, method, url, forged string) Probe {
	p := Probe{Sent: method + " " + url}
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
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
	for _, value := range h.Values("RateLimit") {
		for member := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(member, ";")
			for p := range strings.SplitSeq(parameters, ";") {
				if text, ok := strings.CutPrefix(strings.TrimSpace(p), "r="); ok {
					if r, err := strconv.ParseInt(text, 10, 64); err == nil {
						m[strings.Trim(strings.TrimSpace(name), `"`)] = r
					}
				}
			}
		}
	}
	if r, err := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64); err == nil && len(m) == 0 {
		m["X-RateLimit-Remaining"] = r
	}
	return m
}
