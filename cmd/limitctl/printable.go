package main

import "github.com/routelimit/limit/cmd/limitctl/internal/words"

// printable returns an error whose text may be printed, although parts of it may be from
// elsewhere, such as the name of a file or of a format. It keeps the lines, and the tabs
// before an excerpt and its caret.
func printable(err error) error {
	if err == nil {
		return nil
	}
	return printableError{err}
}

type printableError struct{ error }

func (e printableError) Unwrap() error { return e.error }

func (e printableError) Error() string { return words.Lines(e.error.Error()) }
