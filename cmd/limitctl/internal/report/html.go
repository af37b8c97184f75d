package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"reflect"
	"slices"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Funcs(functions).Parse(page))

// functions are those of both templates. They make texts of clients printable before
// a page escapes them: browsers obey characters that turn text around.
var functions = template.FuncMap{
	"cut":      func(n int, s string) string { return words.Cut(s, n) },
	"text":     func(s string) string { return words.Cut(s, 300) },
	"short":    func(s string) string { return words.Cut(s, 80) },
	"right":    func(s string) string { return fmt.Sprintf("%9s", s) },
	"first":    first,
	"more":     func(n int, list any) int64 { return int64(max(0, reflect.ValueOf(list).Len()-n)) },
	"number":   words.Number,
	"count":    words.Count,
	"percent":  words.Percent,
	"share":    func(share float64) string { return fmt.Sprintf("%g%%", 100*share) },
	"moment":   moment,
	"duration": words.Duration,
	"longest":  longest,
	"key":      keyName,
	"peaks":    peaksOf,
	"distinct": distinct,
	"shadows":  shadows,
	"leftOut":  leftOut,
	"outcomes": outcomes,
	"policies": func(caption string, list []replay.PolicyResult) map[string]any {
		return map[string]any{"Caption": caption, "List": list}
	},
}

// first returns the first n entries of a slice.
func first(n int, list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(n, v.Len())).Interface()
}

func keyName(key string) string {
	if key == "user" {
		return "user"
	}
	return "client"
}

// JSON writes the result as an object.
func (r *Report) JSON(w io.Writer) error { return words.WriteJSON(w, r.Result, true) }

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
	return words.Cut(r.Policy, 60) + " on " + r.files()
}

// MoreClients is how many refused clients are not listed.
func (r *Report) MoreClients() int64 { return r.RefusedClients - int64(len(r.Refusals)) }

// ShownRoutes is how many routes and suggestions a page has at most: it is read on phones.
func (r *Report) ShownRoutes() int { return max(r.Top, 50) }

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
