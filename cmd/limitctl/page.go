package main

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// A listing is a route as the page shows it.
type listing struct {
	Method, Path string
	Rules        []rule
	Text         string // the rules in the text grammar
	User         bool   // whether a rule is by user
}

// A rule is a rule as the page shows it.
type rule struct {
	Name, Text string
	Most       int64  // the most units that can be left
	Refill     string // how units come back: see refill
	FullAfter  int64  // ms until an unused quota is full
}

// Curl returns a command that sends a request to the route.
func (l listing) Curl(base string) string {
	curl := "curl -i "
	if l.Method != http.MethodGet {
		curl += "-X " + l.Method + " "
	}
	if l.User {
		curl += "-H 'X-User: alice' "
	}
	return curl + base + l.Path
}

// A section is a part of the page.
type section struct {
	Class, Title, Text string
	Routes             []listing
}

// sections returns the routes of the three frameworks, of the algorithms and of the
// download.
func sections() []section {
	frameworks := section{"frameworks", "Frameworks", "The same rules on Gin, Echo and net/http.", nil}
	for _, framework := range []string{"gin", "echo", "http"} {
		frameworks.Routes = append(frameworks.Routes,
			newListing(http.MethodPost, "/"+framework+"/update", updateRules, false),
			newListing(http.MethodGet, "/"+framework+"/test", testRules, true))
	}
	each := section{"algorithms", "Algorithms", "One rule each, on net/http. The queue delays requests until their slots come. A request of concurrency takes a second.", nil}
	for _, a := range algorithms {
		each.Routes = append(each.Routes, newListing(http.MethodGet, "/algorithms/"+a.name, a.rules, false))
	}
	return []section{frameworks, each, {"bandwidth", "Bandwidth",
		"A megabyte, slowed to 100 kB/s for each user over all connections. Nothing is refused. The first 50 kB come at once.",
		[]listing{newListing(http.MethodGet, "/http/download", downloadRules, true)}}}
}

func newListing(method, path string, rules limit.RuleSet, user bool) listing {
	return listing{method, path, rulesOf(rules), rules.String(), user}
}

func rulesOf(set limit.RuleSet) []rule {
	var rules []rule
	for _, r := range set.Rules() {
		text, name := r, r.Name
		text.Name = "" // it follows from the key and the window
		quota := r.Quota()
		how, fullAfter := refill(r, &quota)
		rules = append(rules, rule{name, text.String(), quota.Capacity(), how, fullAfter.Milliseconds()})
	}
	return rules
}

// refill returns how the page refills the bar of a rule: "steady" like a bucket, all
// at once after a "window", one unit after the other in a "sliding" window, or at the
// "release" of the requests in flight. It also returns how long a quota takes to
// become full.
func refill(r limit.Rule, quota *core.Quota) (how string, fullAfter time.Duration) {
	switch r.Algorithm.(type) {
	case limit.TokenBucket, limit.LeakyBucket, limit.Queue:
		return "steady", time.Duration(quota.Capacity()) * r.Window / time.Duration(r.Limit)
	case limit.FixedWindow:
		return "window", r.Window
	case limit.Concurrency:
		return "release", r.Window
	}
	return "sliding", time.Duration(quota.Span()) * time.Microsecond
}

// whatToTry returns four commands for a terminal.
func whatToTry(base string) string {
	return fmt.Sprintf(`In a terminal:

  # on Gin: five requests in two seconds are admitted, the sixth is refused
  curl -i -X POST '%[1]s/gin/update?[1-6]'

  # on Echo: a forged address changes nothing
  curl -i -X POST -H 'X-Forwarded-For: 203.0.113.7' '%[1]s/echo/update?[1-6]'

  # on net/http: two requests in ten seconds for each user
  curl -i -H 'X-User: alice' '%[1]s/http/test?[1-3]'

  # on net/http: a megabyte at 100 kB/s, which concurrent downloads share
  curl -o /dev/null -H 'X-User: alice' '%[1]s/http/download'
`, base)
}

// page answers GET / with HTML for clients that accept it, and with text otherwise.
func page(place string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := "http://" + r.Host
		h := w.Header()
		h.Set("Vary", "Accept")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "Rules are decided together: either every rule admits a request, or none is charged.\nThe quotas are %s.\n\n", place)
			for _, section := range sections() {
				fmt.Fprintf(w, "%s: %s\n", section.Title, section.Text)
				for _, l := range section.Routes {
					fmt.Fprintf(w, "%-4s %-27s %s\n", l.Method, l.Path, l.Text)
				}
				fmt.Fprintln(w)
			}
			fmt.Fprint(w, whatToTry(base))
			return
		}
		nonce := rand.Text()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+
			"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		// An error means that the client disconnected.
		_ = pageTemplate.Execute(w, map[string]any{"Nonce": nonce, "Place": place, "Base": base, "Sections": sections()})
	})
}
