package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// A change is the flags of a command that changes something for one client on all
// instances, lists such changes, or ends one.
type change struct {
	deployment
	length    time.Duration
	reason    string
	yes, ends bool
}

// flags adds them. The name of the flag that ends a change is ending.
func (c *change) flags(cmd *cobra.Command, rules bool, what, ending string) {
	c.deployment.flags(cmd, rules)
	f := cmd.Flags()
	f.StringVar(&c.by, "by", os.Getenv("USER"), "who makes the change, for the history")
	f.DurationVar(&c.length, "for", 0, "how long it lasts; 0 until it is ended by --"+ending)
	f.StringVar(&c.reason, "reason", "", "why, for those who read the list")
	f.BoolVar(&c.list, "list", false, "list the "+what+"s in force")
	f.BoolVar(&c.ends, ending, false, "end the "+what)
	yesFlag(cmd, &c.yes)
}

func (c *change) check(cmd *cobra.Command, args []string) error {
	switch {
	case c.list && (c.ends || len(args) > 0 || cmd.Flags().Changed("pattern") || c.subject != subject{}):
		return usageError{errors.New("--list: write it alone")}
	case c.list:
		return nil
	case !c.ends && !cmd.Flags().Changed("for"):
		return usageError{errors.New("--for: write how long it lasts, such as --for 24h, or --for 0 for a change without an end")}
	case c.length < 0:
		return usageError{fmt.Errorf("--for %v: write a time from 0 up, such as --for 24h, or --for 0 for a change without an end", c.length)}
	case len(c.reason) > 1000 || !utf8.ValidString(c.reason):
		return usageError{fmt.Errorf("--reason of %d bytes: write at most 1000 bytes of UTF-8", len(c.reason))}
	}
	return checkBy(c.by)
}

// checkBy checks the text of --by as package control does, before a command asks whether to go on.
func checkBy(by string) error {
	switch {
	case by == "":
		return usageError{errors.New(`--by "": write a name, such as --by ann, or set $USER`)}
	case len(by) > 512 || !utf8.ValidString(by) || strings.ContainsFunc(by, unicode.IsControl):
		return usageError{fmt.Errorf("--by %s: write at most 512 bytes of UTF-8 without control characters", shortened(by))}
	}
	return nil
}

func (c *change) lasting() (time.Duration, string) {
	if c.length == 0 {
		return math.MaxInt64, "until it is removed"
	}
	return c.length, "for " + c.length.String()
}

func (c *change) make(cmd *cobra.Command, question string, apply func() error, done string) error {
	if err := confirm(cmd, c.yes, "%s\n", question); err != nil {
		return err
	}
	if err := apply(); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), done)
	return nil
}

// errNothing says that a change had nothing to do.
var errNothing = errors.New("there is nothing to change")

type terms struct {
	Until  time.Time `json:"until,omitzero"` // zero if it does not end
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

func (t terms) String() string {
	text := ", " + until(t.Until, "removed") + ", by " + shown(t.By)
	if t.Reason != "" {
		text += ": " + words.Printable(t.Reason)
	}
	return text
}

func printList[T fmt.Stringer](cmd *cobra.Command, name string, list []T, asJSON bool) error {
	if asJSON {
		return words.WriteJSON(cmd.OutOrStdout(), map[string][]T{name: list}, true)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	for _, item := range list {
		fmt.Fprintln(out, item)
	}
	if len(list) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "There are no %s.\n", name)
	}
	return out.Flush()
}

// notConfirmed is the exit code of what was not confirmed, and so not done.
const notConfirmed findings = 2

// isTerminal reports whether a person reads or writes there. Tests replace it.
var isTerminal = func(stream any) bool {
	f, ok := stream.(*os.File)
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
