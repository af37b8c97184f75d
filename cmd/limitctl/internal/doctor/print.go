package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// Print writes findings as text that is safe to display, and their number by verdict.
func Print(w io.Writer, findings []Finding) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(words.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	count := make(map[Verdict]int)
	nodes := make(map[string]bool)
	for _, f := range findings {
		for _, n := range f.Nodes {
			nodes[n] = true
		}
	}
	for _, f := range findings {
		count[f.Verdict]++
		where := ""
		if len(nodes) > 1 && len(f.Nodes) > 0 {
			where = " [" + strings.Join(f.Nodes, ", ") + "]"
			if len(f.Nodes) == len(nodes) {
				where = " [all nodes]"
			}
		}
		line("%-8s %-16s %s%s", f.Verdict, f.Check, f.Found, where)
		if f.Verdict == Warn || f.Verdict == Fail {
			line("%26s%s", "", f.Why)
			for _, fix := range f.Fix {
				mark := "-"
				if isCommand(fix) > 0 {
					mark = ">"
				}
				line("%24s%s %s", "", mark, fix)
			}
		}
	}
	line("")
	line("%d ok, %d warn, %d fail, %d skipped", count[OK], count[Warn], count[Fail], count[Skipped])
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintJSON writes each finding as a line of JSON.
func PrintJSON(w io.Writer, findings []Finding) error {
	for _, f := range findings {
		if err := words.WriteJSON(w, f, false); err != nil {
			return err
		}
	}
	return nil
}
