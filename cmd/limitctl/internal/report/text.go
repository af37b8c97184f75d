package report

import (
	"bytes"
	_ "embed"
	"io"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
)

//go:embed page.txt
var textPage string

var textTemplate = template.Must(template.New("text").Funcs(functions).Parse(strings.ReplaceAll(textPage, " ¦ ", "\t")))

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if err := textTemplate.Execute(table, r); err != nil {
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
	Gaps          bool          // whether time without requests is left out
}

// bars are the heights of a spark.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// Spark shows the refused requests over time; nil if there are none.
func (r *Report) Spark() *spark {
	list, gaps := columns(r.Buckets, r.Width, 60)
	if r.Refused == 0 || len(list) == 0 {
		return nil
	}
	most := int64(1)
	for _, c := range list {
		most = max(most, c.Refused)
	}
	plot := make([]rune, len(list))
	for i, c := range list {
		plot[i] = bars[(c.Refused*int64(len(bars)-1)+most-1)/most]
	}
	return &spark{busiest(list), string(plot), list[0].Width, gaps}
}
