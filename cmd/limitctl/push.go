package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/ops/policyfile"
)

func newPushCommand() *cobra.Command {
	var at connection
	var name, by string
	var expires time.Duration
	var withdraw, yes bool
	cmd := &cobra.Command{
		Use:   "push FILE",
		Short: "Put a policy file in force on all instances, through Redis",
		Long: `Put a policy file in force on all instances that follow its name on a Redis. It
replaces their own file as a whole until it ends or is withdrawn. A file with a
mistake is not pushed. It warns of the limits of the file pushed before that the
new one lifts; limitctl check --replaces FILE says the same of the programs' own
file.

It shows what it will do, and asks. Without a terminal, write --yes. The exit
code is 0 if the file was pushed or withdrawn, 1 if it is not valid, if nothing
was pushed that could be withdrawn, or if Redis failed, 2 if the change was not
confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl push policy.yaml --redis redis://127.0.0.1:6379 --by ann --for 2h
  limitctl push --withdraw --redis redis://127.0.0.1:6379 --by ann --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if withdraw != (len(args) == 0) || len(args) > 1 {
				return usageError{errors.New("name one file, or write --withdraw and none")}
			}
			if expires < 0 {
				return usageError{fmt.Errorf("--for %v: write how long the file is in force, or 0 until it is withdrawn", expires)}
			}
			if err := checkBy(by); err != nil {
				return err
			}
			s, err := at.session(at.prefix)
			if err != nil {
				return err
			}
			defer s.end()
			if withdraw {
				if err := confirm(cmd, yes, "This withdraws %q: the programs return to their own files.\n", name); err != nil {
					return err
				}
				was, err := policyfile.Withdraw(cmd.Context(), s.control, name, by)
				switch {
				case err != nil:
					return err
				case !was:
					return fmt.Errorf("nothing is pushed as %q", name)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "withdrawn: %q\n", name)
				return err
			}
			f, err := policyfile.Read(args[0])
			if err != nil {
				return err
			}
			earlier, unread := policyfile.Pushed(cmd.Context(), s.control) // which may fail though the push does not
			lifts(cmd.ErrOrStderr(), f, earlier[name])
			if err := confirm(cmd, yes, "This pushes %s as %q, in place of the programs' own files.\n", words.Printable(args[0]), name); err != nil {
				return err
			}
			if err := policyfile.Push(cmd.Context(), s.control, name, f, expires, by); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "pushed: %q%s\n", name, pushed(cmd.Context(), s.control, name, by))
			if unread != nil && earlier[name] == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "not compared with the file pushed before, so limits may be lifted: %s\n", words.Lines(unread.Error()))
			}
			return nil
		},
	}
	at.flags(cmd, "control.Options.Prefix of the programs")
	cmd.Flags().StringVar(&name, "name", "policies", "policyfile.Options.Name of the programs")
	cmd.Flags().StringVar(&by, "by", os.Getenv("USER"), "who changes the policies, for the history")
	cmd.Flags().DurationVar(&expires, "for", 0, "how long the file is in force; 0 until it is withdrawn")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "end what is pushed")
	yesFlag(cmd, &yes)
	return cmd
}

// pushed describes what has just been pushed, as the history does.
func pushed(ctx context.Context, c *control.Control, name, by string) string {
	changes, _ := policyfile.History(ctx, c) // which may be refused though the push was not
	for _, change := range changes {
		if change.Name == name && change.By == by && !change.Deleted {
			return ", " + change.Note + ", " + until(change.Expires, "withdrawn")
		}
	}
	return ""
}

// until says when what a change has set ends. Ended is the word for an end by hand.
func until(end time.Time, ended string) string {
	if end.IsZero() {
		return "until it is " + ended
	}
	return "until " + end.UTC().Format(time.RFC3339)
}

func newHistoryCommand() *cobra.Command {
	var at connection
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List who changed pushed policy files, bans and overrides, and when",
		Long: `List who pushed and withdrew policy files, and who set and ended bans and
overrides, the newest first: the last changes of each kind. For each file it
prints its SHA-256, as programs log it, and the number of its policies. The exit
code is 0, 1 if Redis cannot be read, and 3 for wrong arguments.`,
		Args:    noArgs,
		Example: "  limitctl history --redis redis://127.0.0.1:6379",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := at.session(at.prefix)
			if err != nil {
				return err
			}
			defer s.end()
			changes, err := history(cmd.Context(), s.control)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, change := range changes {
				fmt.Fprintf(w, "%s\t%s %s\tby %s\t%s\n", change.At.UTC().Format(time.RFC3339),
					change.kind, words.Printable(change.Name), shown(change.By), change.what())
			}
			return w.Flush()
		},
	}
	at.flags(cmd, "control.Options.Prefix of the programs")
	return cmd
}

// A dated is a change of a pushed file, a ban or an override.
type dated struct {
	kind string
	control.Change
}

// history returns the last changes of each kind, the newest first.
func history(ctx context.Context, c *control.Control) (all []dated, err error) {
	for kind, of := range map[string]func(context.Context) ([]control.Change, error){
		"file":     func(ctx context.Context) ([]control.Change, error) { return policyfile.History(ctx, c) },
		"ban":      access.NewBans(ctx, c, &access.Options{Log: quiet}).History,
		"override": overrides.New(ctx, c, &overrides.Options{Log: quiet}).History,
	} {
		changes, err := of(ctx)
		if err != nil {
			return nil, err
		}
		for _, change := range changes {
			all = append(all, dated{kind, change})
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.kind, b.kind))
	})
	return all, nil
}

func (d dated) what() string {
	set, ended := "set ", "ended"
	if d.kind == "file" {
		set, ended = "pushed ", "withdrawn"
	}
	text := set + until(d.Expires, ended)
	switch {
	case d.Deleted:
		text = ended
	case d.Name == "":
		text = "restored after a loss of data"
	}
	if d.Note != "" {
		text += "\t" + words.Printable(d.Note)
	}
	return text
}
