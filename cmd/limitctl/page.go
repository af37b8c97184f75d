package main

import (
	"crypto/rand"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
	texts "text/template"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.txt
	pageText string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
	textTemplate = texts.Must(texts.New("text").Parse(pageText))
)

type listing struct {
	Method, Path string
	Rules        limit.RuleSet
	User         bool // whether a rule is by user
}

type rule struct {
	Name, Text string
	Most       int64  // the most units that can be left
	Refill     string // how units come back: see refill
	FullAfter  int64  // ms until an unused quota is full
}

type section struct {
	Class, Title, Text string
	Routes             []listing
}

func sections() []section {
	frameworks := section{"frameworks", "Frameworks", "The same rules on Gin, Echo and net/http.", nil}
	for _, framework := range []string{"gin", "echo", "http"} {
		frameworks.Routes = append(frameworks.Routes,
			listing{http.MethodPost, "/" + framework + "/update", updateRules, false},
			listing{http.MethodGet, "/" + framework + "/test", testRules, true})
	}
	each := section{"algorithms", "Algorithms", "One rule each, on net/http. The queue delays requests until their slots come. A request of concurrency takes a second.", nil}
	for _, a := range algorithms {
		each.Routes = append(each.Routes, listing{http.MethodGet, "/algorithms/" + a.name, a.rules, false})
	}
	return []section{frameworks, each, {"bandwidth", "Bandwidth",
		"A megabyte, slowed to 100 kB/s for each user over all connections. Nothing is refused. The first 50 kB come at once.",
		[]listing{{http.MethodGet, "/http/download", downloadRules, true}}}}
}

func (l listing) Bars() (rules []rule) {
	for _, r := range l.Rules.Rules() {
		text, quota := r, r.Quota()
		text.Name = "" // it follows from the key and the window
		how, fullAfter := refill(r, &quota)
		rules = append(rules, rule{r.Name, text.String(), quota.Capacity(), how, fullAfter.Milliseconds()})
	}
	return rules
}

// refill returns how the page refills the bar of a rule: "steady" like a bucket, all at once after
// a "window", one unit after the other in a "sliding" window, or at the "release" of the requests
// in flight. It also returns how long a quota takes to become full.
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

// page answers GET / with HTML for clients that accept it, and with text otherwise.
func page(place string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nonce := rand.Text()
		data := map[string]any{"Nonce": nonce, "Place": place, "Base": "http://" + r.Host, "Sections": sections()}
		h := w.Header()
		h.Set("Vary", "Accept")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			_ = textTemplate.Execute(w, data) // an error means that the client disconnected
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+
			"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		_ = pageTemplate.Execute(w, data)
	})
}
