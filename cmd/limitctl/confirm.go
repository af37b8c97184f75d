package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// notConfirmed is the exit code of what was not confirmed, and so not done.
const notConfirmed findings = 2

// isTerminal reports whether a person can answer. Tests replace it.
var isTerminal = func(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// confirm says what a command is about to do, and asks on a terminal.
func confirm(cmd *cobra.Command, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	out := cmd.ErrOrStderr() // the standard output may be JSON
	fmt.Fprintf(out, format, args...)
	if !isTerminal(cmd.InOrStdin()) {
		fmt.Fprintln(out, "Nothing was done: without a terminal to ask on, write --yes.")
		return notConfirmed
	}
	fmt.Fprint(out, "Go on? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
	case <-cmd.Context().Done(): // which the read does not notice
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "Nothing was done.")
	return notConfirmed
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}
