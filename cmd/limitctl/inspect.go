package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/overrides"
)

func newInspectCommand() *cobra.Command {
	var d deployment
	cmd := &cobra.Command{
		Use:   "inspect --key KEY",
		Short: "Say what a key has used and owes, its holds, overrides and bans",
		Long: `Say how full the quotas of a key are in each rule, until when it is refused,
what it owes, what is held of it, and its overrides and bans. An IPv6 address
stands for its /64, as rules see it. --policy and --rule leave out other rules.
A rule that all requests share has no key.

A key of several values, as those of "per ip and user", has commas between
them: --key "203.0.113.9, alice". It takes nothing from a quota.

It shows what Redis has. An instance that cannot reach Redis decides by its own
counts, which only its live page shows.

The exit code is 0 whatever it finds, 1 if Redis or a file cannot be read, and 3
for wrong arguments.`,
		Example: `  limitctl inspect --key 203.0.113.9 --file policy.yaml
  limitctl inspect --key alice --json
  limitctl inspect --policy login --rule per-ip-1m --key 2001:db8::1
  limitctl inspect --key 203.0.113.9 --rules "5/2s per ip" --on "POST /update"`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.found(cmd, func(_ *session, f *finding) error {
				if d.json {
					return words.WriteJSON(cmd.OutOrStdout(), f, true)
				}
				return f.print(cmd.OutOrStdout())
			})
		},
	}
	d.flags(cmd, true)
	return cmd
}

// found opens a deployment for a command about a key, and has do act on what it finds.
func (d *deployment) found(cmd *cobra.Command, do func(*session, *finding) error) error {
	switch named := cmd.Flags().Changed("key"); {
	case named && d.key == "": // an unset variable of a shell, which would mean the quotas of all requests
		return usageError{fmt.Errorf("--key is empty: leave it out for the quota of all requests: limitctl %s --policy api --rule global-1m", cmd.Name())}
	case !named && (d.policy == "" || d.rule == ""):
		return usageError{fmt.Errorf("name a key, or a rule that all requests share: limitctl %[1]s --key 203.0.113.9, or limitctl %[1]s --policy api --rule global-1m", cmd.Name())}
	}
	s, err := d.open(cmd, false)
	if err != nil {
		return err
	}
	defer s.end()
	if s.source == "" {
		return usageError{errors.New("no rules are known, since no file is pushed: write --file FILE, or --rules \"5/2s per ip\" --on \"POST /update\"")}
	}
	f, err := s.find(cmd, &d.subject)
	if err != nil {
		return err
	}
	return do(s, f)
}

// A finding is what there is about a key.
type finding struct {
	Key       string          `json:"key"`
	Rules     string          `json:"rules"`  // where they are from
	States    []live.State    `json:"states"` // of rules in which the key has used something, and of a named one
	Unused    int             `json:"unused"` // rules in which the key has used nothing
	Overrides []shownOverride `json:"overrides"`
	Bans      []shownBan      `json:"bans"`
	Composite []string        `json:"not_looked_at"` // rules with keys of several values
	named     bool            // whether rules were named
}

func (f *finding) printBans(out io.Writer) {
	for _, b := range f.Bans {
		fmt.Fprintf(out, "banned: %s\n", b)
	}
}

// find looks for a key in all rules, or in those that are named.
func (s *session) find(cmd *cobra.Command, of *subject) (*finding, error) {
	f := &finding{named: of.policy != "" || of.rule != "", Rules: s.source, Key: of.key, States: []live.State{}, Overrides: []shownOverride{}, Bans: []shownBan{}, Composite: []string{}}
	rules, err := s.limits.Matching(of.policy, of.rule)
	if err != nil {
		return nil, usageError{err}
	}
	for _, r := range rules {
		switch {
		case of.key == "" && !r.Shared():
			return nil, usageError{fmt.Errorf("rule %s has a quota for each key: name one by --key", shown(r.Name))}
		case of.rule != "" && of.key != "" && r.Shared():
			return nil, usageError{fmt.Errorf("rule %s is one quota of all requests: leave out --key", shown(r.Name))}
		case r.Composite() && of.key != "":
			switch _, err := r.One(of.key); {
			case err != nil && of.rule != "":
				return nil, usageError{err}
			case err != nil:
				f.Composite = append(f.Composite, r.Policy+" "+r.Name)
			}
		}
		if err := s.look(cmd, f, r, of.rule != ""); err != nil {
			return nil, err
		}
	}
	f.Overrides = s.overridesOf(f, of, rules)
	if of.key != "" {
		bans, err := s.bansOf(cmd.Context(), f.Key, rules)
		if err != nil {
			return nil, err
		}
		f.Bans = shownBans(bans)
	}
	return f, nil
}

// look adds the states of the key in a rule. Of a rule that was named, it adds a state that
// has used nothing too.
func (s *session) look(cmd *cobra.Command, f *finding, r *live.Rule, named bool) error {
	var used, unused []live.State
	for _, key := range r.Keys(f.Key) {
		states, err := s.limits.States(cmd.Context(), r, key)
		if err != nil {
			return err
		}
		for _, state := range states {
			if state.Any() {
				used = append(used, state)
			} else {
				unused = append(unused, state)
			}
		}
	}
	if len(used) == 0 && len(unused) > 0 {
		f.Unused++
		if named {
			used = unused[:1]
		}
	}
	f.States = append(f.States, used...)
	return nil
}

// overridesOf returns the overrides of the key, also of rules that are not known.
func (s *session) overridesOf(f *finding, of *subject, rules []*live.Rule) []shownOverride {
	keys := []string{f.Key}
	for _, r := range rules {
		keys = append(keys, r.Keys(f.Key)...)
	}
	return s.shownOverrides(slices.DeleteFunc(s.overrides.List(), func(o overrides.Override) bool {
		return !slices.ContainsFunc(keys, o.Matches) || of.policy != "" && o.Policy != of.policy || of.rule != "" && o.Rule != of.rule
	}))
}

func (f *finding) who() string {
	if f.Key == "" {
		return "requests have"
	}
	return fmt.Sprintf("key %s has", shortened(f.Key))
}

func (f *finding) print(to io.Writer) error {
	out := bufio.NewWriter(to)
	if len(f.States) == 0 {
		fmt.Fprintf(out, "%s used nothing of the rules of %s.\n", f.who(), words.Printable(f.Rules))
		fmt.Fprintln(out, "If the programs set redisstore.Options.Secret, write --secret-env.")
	} else if err := table(out, f.States); err != nil {
		return err
	}
	for i := range f.States {
		printAccount(out, &f.States[i])
	}
	for _, o := range f.Overrides {
		fmt.Fprintf(out, "override: %s\n", o)
	}
	f.printBans(out)
	if len(f.Composite) > 0 {
		fmt.Fprintln(out, f.notLookedAt())
	}
	return out.Flush()
}

func (f *finding) notLookedAt() string {
	return "not looked at, since their keys have several values: " + words.Printable(strings.Join(f.Composite, ", "))
}
