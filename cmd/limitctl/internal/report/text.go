package report

import (
	_ "embed"
	"io"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

//go:embed page.txt
var textPage string

var textTemplate = template.Must(template.New("text").Funcs(functions).Parse(strings.ReplaceAll(textPage, "¦", "\t")))

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	if err := textTemplate.Execute(&b, r); err != nil {
		return err
	}
	_, err := io.WriteString(w, align(b.String()))
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

// align makes columns of the lines that have tabs. The first line of a table names the
// columns; a name that ends in > aligns its column to the right.
func align(text string) string {
	var b strings.Builder
	var rows [][]string
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(cells) > 1 {
			rows = append(rows, cells)
			continue
		}
		writeTable(&b, rows)
		rows = nil
		b.WriteString(line)
	}
	writeTable(&b, rows)
	return b.String()
}

func writeTable(b *strings.Builder, rows [][]string) {
	widths, right := make(map[int]int), make(map[int]bool)
	for n, row := range rows {
		for i, cell := range row {
			row[i] = strings.TrimSpace(cell)
			if n == 0 {
				row[i], right[i] = strings.CutSuffix(row[i], ">")
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if row[i] = cell + space; right[i] {
				row[i] = space + cell
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(row, "  "), " ") + "\n")
	}
}
