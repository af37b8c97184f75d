package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/ops/overrides"
)

func newOverrideCommand() *cobra.Command {
	var d deployment
	var length time.Duration
	var reason string
	var yes, list, remove bool
	cmd := &cobra.Command{
		Use:   "override POLICY RULE KEY LIMIT | --list | --remove POLICY RULE KEY",
		Short: "Give one key another limit, list such overrides, or remove one",
		Long: `Give one key of a rule another limit on all instances, list such overrides, or remove
one. These are the overrides of package overrides, which the programs must have in their
limit.Options.Override. KEY is an address, a user, or any other key as limitctl top
shows it; an IPv6 address stands for its /64. A change is in force within a second, and
a key keeps what it has used.

It checks the policy and the rule against --policy, --rules with --on, or the pushed
file. It shows what it will do, and asks. Without a terminal, write --yes. The exit code
is 0 if it was done, 1 if there was no such override or Redis failed, 2 if the change
was not confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl override api per-user-1h alice 5000 --for 24h --reason launch --by ann --redis redis://127.0.0.1:6379
  limitctl override --list --redis redis://127.0.0.1:6379
  limitctl override --remove api per-user-1h alice --redis redis://127.0.0.1:6379`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list && (remove || len(args) > 0):
				return usageError{errors.New("--list: write it alone")}
			case remove && len(args) != 3:
				return usageError{errors.New("name a policy, a rule and a key: limitctl override --remove api per-user-1h alice")}
			case !list && !remove && len(args) != 4:
				return usageError{errors.New("name a policy, a rule, a key and its limit: limitctl override api per-user-1h alice 5000 --for 24h")}
			case !list && d.by == "":
				return usageError{errors.New(`--by "": write who makes the change`)}
			case !list && !remove && !cmd.Flags().Changed("for"):
				return usageError{errors.New("--for: write how long the limit lasts, such as --for 24h, or --for 0 until it is removed")}
			case !list && !remove && length < 0:
				return usageError{fmt.Errorf("--for %v: write a time from 0 up, such as --for 24h, or --for 0 until it is removed", length)}
			}
			if list {
				s, err := d.connect(cmd.Context())
				if err != nil {
					return err
				}
				defer s.end()
				all := []shownOverride{}
				for _, o := range s.overrides.List() {
					all = append(all, overrideOf(o))
				}
				return printList(cmd, "overrides", all, d.json)
			}
			s, err := d.open(cmd, false)
			if err != nil {
				return err
			}
			defer s.end()
			key, err := s.overrideKey(cmd, args, remove)
			if err != nil {
				return err
			}
			if remove {
				return s.removeOverride(cmd, args[0], args[1], key, d.by, yes)
			}
			o := overrides.Override{Policy: args[0], Rule: args[1], Key: key, Reason: reason}
			if o.Limit, err = strconv.ParseInt(args[3], 10, 64); err != nil || o.Limit < 1 {
				return usageError{fmt.Errorf("limit %s: write a number from 1 up; to refuse all requests, see limitctl ban", shown(args[3]))}
			}
			return s.setOverride(cmd, o, length, d.by, yes)
		},
	}
	f := cmd.Flags()
	d.flags(cmd, true)
	d.changes(cmd)
	yesFlag(cmd, &yes)
	f.DurationVar(&length, "for", 0, "how long the limit lasts; 0 until it is removed")
	f.StringVar(&reason, "reason", "", "why, for those who read the list")
	f.BoolVar(&list, "list", false, "list the overrides in force")
	f.BoolVar(&remove, "remove", false, "end the override of KEY")
	return cmd
}

// overrideKey returns the key that an argument stands for. Without rules, it is the
// argument.
func (s *session) overrideKey(cmd *cobra.Command, args []string, remove bool) (string, error) {
	policy, rule, key := args[0], args[1], args[2]
	if s.source == "" && remove {
		return key, nil // the answer says whether there was such an override
	}
	if s.source == "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "The policy, the rule and the form of the key are not checked: to check them, write --policy, or --rules and --on.")
		return key, nil
	}
	r, err := s.limits.Rule(policy, rule)
	if err != nil {
		return "", usageError{err}
	}
	for _, o := range s.overrides.List() { // one that is there is meant as it is
		if o.Policy == policy && o.Rule == rule && o.Key == key {
			return key, nil
		}
	}
	key, err = s.limits.Key(r, key)
	if err != nil {
		return "", usageError{printable(err)}
	}
	return key, nil
}

func (s *session) setOverride(cmd *cobra.Command, o overrides.Override, length time.Duration, by string, yes bool) error {
	end := "until it is removed"
	if length > 0 {
		end = "for " + length.String()
	}
	was := ""
	if now := s.overrides.Limit(o.Policy, o.Rule, o.Key); now > 0 {
		was = fmt.Sprintf(" in place of the override of %d", now)
	}
	if err := confirm(cmd, yes, "This gives key %s of policy %s, rule %s the limit %d%s on all instances %s.\n",
		shown(o.Key), shown(o.Policy), shown(o.Rule), o.Limit, was, end); err != nil {
		return err
	}
	if length == 0 {
		length = forGood
	}
	if err := s.overrides.Set(cmd.Context(), o, length, by); err != nil {
		return printable(redisclient.Explain(err))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "override: policy %s, rule %s, key %s has the limit %d %s\n", shown(o.Policy), shown(o.Rule), shown(o.Key), o.Limit, end)
	return nil
}

func (s *session) removeOverride(cmd *cobra.Command, policy, rule, key, by string, yes bool) error {
	if err := confirm(cmd, yes, "This removes the override of key %s of policy %s, rule %s on all instances.\n", shown(key), shown(policy), shown(rule)); err != nil {
		return err
	}
	err := s.overrides.Remove(cmd.Context(), policy, rule, key, by)
	if errors.Is(err, overrides.ErrNone) {
		return fmt.Errorf("%w: policy %s, rule %s, key %s has no override: limitctl override --list lists them", errNothing, shown(policy), shown(rule), shown(key))
	}
	if err != nil {
		return printable(redisclient.Explain(err))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "removed: the override of policy %s, rule %s, key %s\n", shown(policy), shown(rule), shown(key))
	return nil
}

// A shownOverride is an override as commands print it.
type shownOverride struct {
	Policy string     `json:"policy"`
	Rule   string     `json:"rule"`
	Key    string     `json:"key"`
	Limit  int64      `json:"limit"`
	Until  *time.Time `json:"until,omitempty"` // none if it does not end
	By     string     `json:"by"`
	Reason string     `json:"reason,omitempty"`
	At     time.Time  `json:"at"`
}

func (o shownOverride) String() string {
	return fmt.Sprintf("policy %s, rule %s, key %s: limit %d%s", shown(o.Policy), shown(o.Rule), shown(o.Key), o.Limit, terms(o.Until, o.By, o.Reason))
}
