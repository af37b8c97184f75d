package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"

	"github.com/routelimit/limit/cmd/limitctl/replay"
)

//go:embed page.html
var page string

// pageTemplate makes texts of clients printable before it escapes them: browsers obey
// characters that turn text around.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"text":     func(s string) string { return shorten(s, 300) },
	"short":    func(s string) string { return shorten(s, 80) },
	"number":   number,
	"count":    count,
	"percent":  percent,
	"share":    shareText,
	"moment":   moment,
	"duration": duration,
	"look":     lookName,
	"longest":  longest,
	"key":      keyName,
	"part":     partBar,
	"peaks":    peakBar,
	"distinct": distinct,
	"shadows":  shadows,
	"leftOut":  leftOut,
	"outcomes": outcomes,
	"policies": func(caption string, list []replay.PolicyResult) map[string]any {
		return map[string]any{"Caption": caption, "List": list}
	},
}).Parse(page))

// HTML writes the report as one page that needs no other file, and runs no script.
func (r *Report) HTML(w io.Writer) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, r); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Title returns the title of the page.
func (r *Report) Title() string {
	if r.Policy == "" {
		return "Limits for " + r.files()
	}
	return shorten(r.Policy, 60) + " on " + r.files()
}

// MoreClients is how many refused clients the page does not list.
func (r *Report) MoreClients() int64 { return r.RefusedClients - int64(len(r.Refusals)) }

// maxSuggestions is how many suggestions a page has: it is read on phones.
const maxSuggestions = 50

// ShownSuggestions are the suggestions on the page.
func (r *Report) ShownSuggestions() []replay.Suggestion {
	return r.Suggestions[:min(maxSuggestions, len(r.Suggestions))]
}

// MoreSuggestions is how many others there are.
func (r *Report) MoreSuggestions() int64 { return int64(max(0, len(r.Suggestions)-maxSuggestions)) }

// ShownRoutes are the routes on the page.
func (r *Report) ShownRoutes() []replay.RouteResult {
	return r.Routes[:min(max(r.top(), maxSuggestions), len(r.Routes))]
}

// MoreRoutes is how many others there are.
func (r *Report) MoreRoutes() int64 { return int64(len(r.Routes) - len(r.ShownRoutes())) }

// shadows reports whether a rule would have refused a request as a shadow.
func shadows(list []replay.PolicyResult) bool {
	return slices.ContainsFunc(list, func(p replay.PolicyResult) bool {
		return slices.ContainsFunc(p.Rules, func(r replay.RuleResult) bool { return r.Shadowed > 0 })
	})
}

// distinct returns the choices of a window without those that repeat a rule, the lowest
// limit first.
func distinct(choices []replay.Choice) (list []replay.Choice) {
	seen := make(map[int64]bool)
	for _, c := range choices {
		if !seen[c.Limit] {
			seen[c.Limit] = true
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b replay.Choice) int { return cmp.Compare(a.Limit, b.Limit) })
	return list
}
