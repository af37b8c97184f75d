package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

func newTopCommand() *cobra.Command {
	var d deployment
	var q live.Question
	cmd := &cobra.Command{
		Use:   "top",
		Short: "List the keys in Redis that are at or near a limit",
		Long: `List the keys in Redis that are at or near a limit: the addresses, users and
other keys that have used most of their quota, when they are full again, and
until when they are refused.

The rules are those of --file, of --rules with --on, or of the pushed file. It
looks at keys by SCAN, and at most --pace of them in a second. It takes nothing
from a quota. It counts states of rules that it does not know by their policy
and rule.

The exit code is 0 whatever it finds, 1 if Redis or a file cannot be read, and 3
for wrong arguments.`,
		Example: `  limitctl top --redis redis://127.0.0.1:6379 --file policy.yaml
  limitctl top --redis redis://127.0.0.1:7000 --cluster --at 50 --n 100 --json
  limitctl top --rules "5/2s per ip" --on "POST /update"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !(q.At >= 0 && q.At <= 100): // or NaN
				return usageError{fmt.Errorf("--at %g: write a percentage from 0 to 100", q.At)}
			case q.N < 1 || q.N > 10_000:
				return usageError{fmt.Errorf("--n %d: write how many keys to list, from 1 to 10000", q.N)}
			case q.Scan < 1 || q.Scan > 10_000_000:
				return usageError{fmt.Errorf("--scan %d: write how many keys to look at, from 1 to 10000000", q.Scan)}
			case q.Pace < 100 || q.Pace > 1_000_000:
				return usageError{fmt.Errorf("--pace %d: write how many keys to look at in a second, from 100 to 1000000", q.Pace)}
			case d.secret != "" && d.spread > 0:
				return usageError{errors.New("--secret-env and --spread: top cannot find the part of a hashed key: look at single keys with limitctl inspect")}
			}
			s, err := d.open(cmd, true)
			if err != nil {
				return err
			}
			defer s.end()
			if q.Matches, err = s.matcher(&d.subject); err != nil {
				return usageError{err}
			}
			answer, err := s.limits.Top(cmd.Context(), s.client, q)
			if err != nil {
				return err
			}
			if d.json {
				return words.WriteJSON(cmd.OutOrStdout(), struct {
					Rules string `json:"rules"`
					*live.Answer
				}{s.source, answer}, true)
			}
			return s.print(cmd.OutOrStdout(), answer, q)
		},
	}
	f := cmd.Flags()
	d.flags(cmd, true)
	f.Float64Var(&q.At, "at", 80, "list keys that have used this `percentage` of their quota, or are refused")
	f.IntVar(&q.N, "n", 20, "how many keys to list")
	f.IntVar(&q.Scan, "scan", 100_000, "how many keys to look at, at most")
	f.IntVar(&q.Pace, "pace", 20_000, "how many keys to look at in a second, at most")
	return cmd
}

// matcher returns which keys of rules a subject names. A key may be written as requests have it,
// such as an IPv6 address of a prefix.
func (s *session) matcher(of *subject) (matches func(policy, rule, key string) bool, err error) {
	rules := s.limits.Rules()
	if len(rules) > 0 && of.policy+of.rule != "" {
		if rules, err = s.limits.Matching(of.policy, of.rule); err != nil {
			return nil, err
		}
	}
	meant := map[subject]bool{}
	for _, r := range rules {
		for _, key := range r.Keys(of.key) {
			meant[subject{r.Policy, r.Name, key}] = true
		}
	}
	return func(policy, rule, key string) bool {
		return of.matches(policy, rule, key) || of.key != "" && meant[subject{policy, rule, key}]
	}, nil
}

func (s *session) print(to io.Writer, a *live.Answer, q live.Question) error {
	out := bufio.NewWriter(to)
	if s.source == "" {
		fmt.Fprintln(out, "No rules are known: name them by --file, or by --rules and --on.")
	} else {
		fmt.Fprintf(out, "%s  rules of %s\n", a.At.UTC().Format(time.RFC3339), words.Printable(s.source))
	}
	fmt.Fprintf(out, "looked at %d keys in %.1fs: %d of these rules", a.Looked, a.Took, a.Known)
	if a.Partial {
		fmt.Fprintf(out, "; there are more: raise --scan to look at all")
	}
	if a.Looked == 0 {
		fmt.Fprintf(out, "\nno quota is in use under the prefix %s: check --prefix, and the server and the database of --redis", shown(s.prefix))
	}
	fmt.Fprintf(out, "\n%d at %g%% or more, or refused", a.Near, q.At)
	if a.Near > len(a.Keys) {
		fmt.Fprintf(out, "; the fullest %d:", len(a.Keys))
	}
	fmt.Fprintln(out)
	if len(a.Keys) > 0 {
		fmt.Fprintln(out)
		if err := table(out, a.Keys); err != nil {
			return err
		}
	}
	printUnknown(out, a)
	return out.Flush()
}

// printUnknown prints what the rules say nothing about.
func printUnknown(out io.Writer, a *live.Answer) {
	const most = 10
	if len(a.Unknown) > 0 {
		fmt.Fprintln(out, "\nkeys of rules that are not known:")
	}
	for _, u := range a.Unknown[:min(most, len(a.Unknown))] {
		fmt.Fprintf(out, "  %d of policy %s, rule %s\n", u.Keys, shown(u.Policy), shown(u.Rule))
	}
	if rest := len(a.Unknown) - most; rest > 0 {
		fmt.Fprintf(out, "  and of %d more rules: see --json\n", rest)
	}
	if a.Other > 0 {
		fmt.Fprintf(out, "\nother keys under the prefix, without a quota: %d (units that were given back, or data of other programs)\n", a.Other)
	}
	if a.Invalid > 0 {
		fmt.Fprintf(out, "\n%d keys have the name of a state, but something else in them: limitctl doctor looks for keys of another type\n", a.Invalid)
	}
	if a.InParts > 0 {
		fmt.Fprintf(out, "\n%d keys are in other parts of policies: write --spread as redisstore.Options.Spread of the programs\n", a.InParts)
	}
}
