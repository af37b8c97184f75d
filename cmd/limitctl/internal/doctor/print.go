package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// cleaned returns the finding in text that is safe to display.
func (f Finding) cleaned() Finding {
	list := func(texts []string) (all []string) {
		for _, s := range texts {
			all = append(all, clean(s))
		}
		return all
	}
	f.Found, f.Nodes, f.Fix = clean(f.Found), list(f.Nodes), list(f.Fix)
	return f
}

// Print writes findings as text, and their number by verdict.
func Print(w io.Writer, findings []Finding) error {
	var b strings.Builder
	count := make(map[Verdict]int)
	nodes := make(map[string]bool)
	for _, f := range findings {
		for _, n := range f.Nodes {
			nodes[n] = true
		}
	}
	for _, f := range findings {
		f = f.cleaned()
		count[f.Verdict]++
		where := ""
		if len(nodes) > 1 && len(f.Nodes) > 0 {
			where = " [" + strings.Join(f.Nodes, ", ") + "]"
			if len(f.Nodes) == len(nodes) {
				where = " [all nodes]"
			}
		}
		fmt.Fprintf(&b, "%-8s %-16s %s%s\n", f.Verdict, f.Check, f.Found, where)
		if f.Verdict == Warn || f.Verdict == Fail {
			fmt.Fprintf(&b, "%26s%s\n", "", f.Why)
			for _, fix := range f.Fix {
				mark := "-"
				if isCommand(fix) > 0 {
					mark = ">"
				}
				fmt.Fprintf(&b, "%24s%s %s\n", "", mark, fix)
			}
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail, %d skipped\n", count[OK], count[Warn], count[Fail], count[Skipped])
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintJSON writes each finding as a line of JSON.
func PrintJSON(w io.Writer, findings []Finding) error {
	encoder := json.NewEncoder(w)
	for _, f := range findings {
		if err := encoder.Encode(f.cleaned()); err != nil {
			return err
		}
	}
	return nil
}
