package report

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

const (
	terminal = 80 // columns that tables fit
	narrow   = 8  // to which a column of text may be cut
)

// tables aligns the lines of a text that have tabs. A run of such lines is a table, and its first
// line is the head. A head with » is that of a column of numbers, which are never cut.
func tables(text string) string {
	var out strings.Builder
	var rows [][]string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "\t") {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
			continue
		}
		writeTable(&out, rows)
		rows = nil
		out.WriteString(line)
	}
	writeTable(&out, rows)
	return out.String()
}

func writeTable(out *strings.Builder, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	numbers := make([]bool, len(rows[0]))
	widths := make([]int, len(rows[0]))
	over := 2*(len(widths)-1) - terminal
	for i := range widths {
		rows[0][i], numbers[i] = strings.CutPrefix(rows[0][i], "»")
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		over += widths[i]
	}
	for ; over > 0; over-- {
		i := widest(widths, numbers)
		if widths[i] <= narrow {
			break
		}
		widths[i]--
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

// widest returns the column to cut: the last one, since the first ones identify a row, and then
// the widest text.
func widest(widths []int, numbers []bool) int {
	last := len(widths) - 1
	if !numbers[last] && widths[last] > narrow {
		return last
	}
	texts := slices.Clone(widths)
	for i := range texts {
		if numbers[i] {
			texts[i] = 0
		}
	}
	return slices.Index(texts, slices.Max(texts))
}
