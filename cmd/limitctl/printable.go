package main

import (
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/report"
)

// printable returns an error whose text may be printed, although parts of it may be from
// elsewhere. Unlike harmless, it keeps the tabs before an excerpt and its caret.
func printable(err error) error {
	if err == nil {
		return nil
	}
	return printableError{err}
}

type printableError struct{ error }

func (e printableError) Unwrap() error { return e.error }

func (e printableError) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		indent := ""
		if text, indented := strings.CutPrefix(line, "\t"); indented && i > 0 {
			indent, line = "\t", text
		}
		lines[i] = indent + report.Printable(line)
	}
	return strings.Join(lines, "\n")
}
