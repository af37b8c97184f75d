package report

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// What tables fit.
const (
	Terminal = 80            // columns
	File     = math.MaxInt32 // in which nothing is cut
)

const narrow = 8 // columns, to which one of text may be cut

// tables aligns the lines of a text that have tabs. A run of such lines is a table, and its first
// line is the head. A head with » is that of a column of numbers, which are never cut.
func tables(text string, fit int) string {
	var out strings.Builder
	var rows [][]string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "\t") {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
			continue
		}
		writeTable(&out, rows, fit)
		rows = nil
		out.WriteString(line)
	}
	writeTable(&out, rows, fit)
	return out.String()
}

func writeTable(out *strings.Builder, rows [][]string, fit int) {
	if len(rows) == 0 {
		return
	}
	numbers := make([]bool, len(rows[0]))
	widths := make([]int, len(rows[0]))
	over := 2*(len(widths)-1) - fit
	for i := range widths {
		rows[0][i], numbers[i] = strings.CutPrefix(rows[0][i], "»")
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		over += widths[i]
	}
	for i := len(widths) - 1; i >= 0 && over > 0; i-- { // the first columns identify a row
		if !numbers[i] {
			cut := min(over, max(0, widths[i]-narrow))
			widths[i], over = widths[i]-cut, over-cut
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = words.Cut(cell, widths[i])
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numbers[i] {
				cell, gap = gap+cell, ""
			}
			line.WriteString(cell + gap + "  ")
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
