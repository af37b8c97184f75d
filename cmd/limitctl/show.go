package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

const wide = 128 // characters of a key in a table: programs hash longer ones

// shown returns a text that clients may have chosen, for a terminal: in quotes if it has
// anything but the characters of addresses and names.
func shown(s string) string {
	if s != "" && words.Plain(s, "/._-:@=+,~") {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// shortened is shown for a table.
func shortened(s string) string {
	if len(s) > wide {
		return fmt.Sprintf("%s… (%d bytes)", shown(s[:wide]), len(s))
	}
	return shown(s)
}

func shownKey(s *live.State) string {
	if s.Key == "" && s.Of().Shared() {
		return "(all requests)"
	}
	return shortened(s.Of().Shown(s.Key))
}

func table(out io.Writer, states []live.State) error {
	now := time.Now()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tRULE\tUSED\tOF\t\tFULL AGAIN IN\tREFUSED FOR\tKEY")
	for i := range states {
		s := &states[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d%s\t%.0f%%\t%s\t%s\t%s\n", shown(s.Policy), shown(s.Rule), s.Used, s.Capacity,
			whose(s), s.Percent, in(now, s.FullAt), refusedFor(now, s), shownKey(s))
	}
	return w.Flush()
}

// whose says why a limit is not the usual one.
func whose(s *live.State) string {
	switch {
	case s.Override:
		return " (override)"
	case s.Plan != "":
		return " (plan " + shown(s.Plan) + ")"
	case s.Shadow:
		return " (shadow)"
	}
	return ""
}

func in(now, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return words.Duration(at.Sub(now))
}

func refusedFor(now time.Time, s *live.State) string {
	if s.Refused && s.Until.IsZero() {
		return "ever"
	}
	return in(now, s.Until)
}

// printAccount prints what a key owes and holds, if anything.
func printAccount(out io.Writer, s *live.State) {
	now := time.Now()
	of := fmt.Sprintf("policy %s, rule %s, key %s", shown(s.Policy), shown(s.Rule), shownKey(s))
	if s.Owed > 0 {
		fmt.Fprintf(out, "in debt: %s: owes %s, repaid in %s\n", of, words.Count(s.Owed, "unit"), refusedFor(now, s))
	}
	if s.Holds > 0 {
		fmt.Fprintf(out, "held: %s: %s of %s, the next ends in %s unless it is extended\n", of,
			words.Count(s.Holds, "hold"), words.Count(s.Held, "unit"), in(now, s.NextEnd))
	}
	if s.Ended > 0 {
		fmt.Fprintf(out, "ended: %s: %s, which the next hold on the key gives back\n", of, words.Count(s.Ended, "hold"))
	}
}
