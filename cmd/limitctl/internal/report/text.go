package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
)

//go:embed page.txt
var page string

var pageTemplate = template.Must(template.New("page").Funcs(functions).Parse(strings.ReplaceAll(page, " ¦ ", "\t")))

// functions make texts of clients printable: terminals obey characters that move a cursor.
var functions = template.FuncMap{
	"cut":      func(n int, s string) string { return words.Cut(s, n) },
	"first":    first,
	"more":     func(n int, list any) int64 { return int64(max(0, reflect.ValueOf(list).Len()-n)) },
	"number":   words.Number,
	"count":    words.Count,
	"percent":  words.Percent,
	"share":    func(share float64) string { return fmt.Sprintf("%g%%", 100*share) },
	"minute":   func(t time.Time) string { return t.UTC().Format("01-02 15:04") },
	"duration": words.Duration,
	"leftOut":  leftOut,
	"rules":    rulesOf,
}

func first(n int, list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(n, v.Len())).Interface()
}

// JSON writes the result as an object.
func (r *Report) JSON(w io.Writer) error { return words.WriteJSON(w, r.Result, true) }

// Text writes the report with tables that fit the Terminal or a File.
func (r *Report) Text(w io.Writer, fit int) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, r); err != nil {
		return err
	}
	_, err := io.WriteString(w, tables(b.String(), fit))
	return err
}

// A ruleTable is the rules of policies, without those beyond the length of lists.
type ruleTable struct {
	Rows []ruleRow
	More int
}

type ruleRow struct {
	Policy replay.PolicyResult
	Rule   replay.RuleResult
}

func rulesOf(most int, policies []replay.PolicyResult) (t ruleTable) {
	for _, p := range policies {
		for _, rule := range p.Rules {
			t.Rows = append(t.Rows, ruleRow{p, rule})
		}
	}
	t.More = max(0, len(t.Rows)-most)
	t.Rows = t.Rows[:len(t.Rows)-t.More]
	return t
}

// A spark is a plot in one line.
type spark struct {
	Busiest, Bars string
	Width         time.Duration // of a column
}

var bars = []rune(" ▁▂▃▄▅▆▇█")

// MoreClients is how many refused clients are not listed.
func (r *Report) MoreClients() int64 { return r.RefusedClients - int64(len(r.Refusals)) }

// Spark shows the refused requests over time; nil if there are none.
func (r *Report) Spark() *spark {
	if r.Refused == 0 {
		return nil
	}
	list, width := columns(r.Buckets, r.Width, 60)
	worst := slices.MaxFunc(list, func(a, b replay.Bucket) int { return cmp.Compare(a.Refused, b.Refused) })
	plot := make([]rune, len(list))
	for i, c := range list {
		plot[i] = bars[(c.Refused*int64(len(bars)-1)+worst.Refused-1)/worst.Refused]
	}
	busiest := fmt.Sprintf("The worst %s, from %s UTC on: %s of %s refused.", words.Duration(width), moment(worst.Start),
		words.Number(worst.Refused), words.Count(worst.Requests, "request"))
	return &spark{busiest, string(plot), width}
}
