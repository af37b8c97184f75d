package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

//go:embed page.txt
var page string

var pageTemplate = template.Must(template.New("page").Funcs(functions).Parse(strings.ReplaceAll(page, " ¦ ", "\t")))

// functions make texts of clients printable: terminals obey characters that move a cursor.
var functions = template.FuncMap{
	"cut":      func(n int, s string) string { return words.Cut(s, n) },
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
	"leftOut":  leftOut,
	"outcomes": outcomes,
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

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if err := pageTemplate.Execute(table, r); err != nil {
		return err
	}
	table.Flush()
	_, err := b.WriteTo(w)
	return err
}

// A spark is a plot in one line.
type spark struct {
	Busiest, Bars string
	Width         time.Duration // of a column
}

// bars are the heights of a spark.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// MoreClients is how many refused clients are not listed.
func (r *Report) MoreClients() int64 { return r.RefusedClients - int64(len(r.Refusals)) }

// Spark shows the refused requests over time; nil if there are none.
func (r *Report) Spark() *spark {
	if r.Refused == 0 {
		return nil
	}
	list := columns(r.Buckets, r.Width, 60)
	most := int64(1)
	for _, c := range list {
		most = max(most, c.Refused)
	}
	plot := make([]rune, len(list))
	for i, c := range list {
		plot[i] = bars[(c.Refused*int64(len(bars)-1)+most-1)/most]
	}
	return &spark{busiest(list), string(plot), list[0].Width}
}
