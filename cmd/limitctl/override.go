package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/ops/overrides"
)

func newOverrideCommand() *cobra.Command {
	var c change
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
			case c.ends && !c.list && len(args) != 3:
				return usageError{errors.New("name a policy, a rule and a key: limitctl override --remove api per-user-1h alice")}
			case !c.ends && !c.list && len(args) != 4:
				return usageError{errors.New("name a policy, a rule, a key and its limit: limitctl override api per-user-1h alice 5000 --for 24h")}
			}
			if err := c.check(cmd, args); err != nil {
				return err
			}
			if c.list {
				s, err := c.connect(cmd.Context())
				if err != nil {
					return err
				}
				defer s.end()
				return printList(cmd, "overrides", shownOverrides(s.overrides.List()), c.json)
			}
			s, err := c.open(cmd, false)
			if err != nil {
				return err
			}
			defer s.end()
			key, err := s.overrideKey(cmd, args, c.ends)
			if err != nil {
				return err
			}
			o := overrides.Override{Policy: args[0], Rule: args[1], Key: key, Reason: c.reason}
			if c.ends {
				return s.removeOverride(cmd, &c, o)
			}
			if o.Limit, err = strconv.ParseInt(args[3], 10, 64); err != nil || o.Limit < 1 {
				return usageError{fmt.Errorf("limit %s: write a number from 1 up; to refuse all requests, see limitctl ban", shown(args[3]))}
			}
			return s.setOverride(cmd, &c, o)
		},
	}
	c.flags(cmd, true, "override", "remove")
	return cmd
}

// overrideKey returns the key that an argument stands for. Without rules, it is the
// argument.
func (s *session) overrideKey(cmd *cobra.Command, args []string, remove bool) (string, error) {
	policy, rule, key := args[0], args[1], args[2]
	if s.source == "" {
		if !remove { // otherwise the answer says whether there was such an override
			fmt.Fprintln(cmd.ErrOrStderr(), "The policy, the rule and the form of the key are not checked: to check them, write --policy, or --rules and --on.")
		}
		return key, nil
	}
	r, err := s.limits.Rule(policy, rule)
	if err != nil {
		return "", usageError{err}
	}
	if s.overrides.Limit(policy, rule, key) > 0 {
		return key, nil // one that is there is meant as it is
	}
	key, err = s.limits.Key(r, key)
	if err != nil {
		return "", usageError{err}
	}
	return key, nil
}

func (s *session) setOverride(cmd *cobra.Command, c *change, o overrides.Override) error {
	was := ""
	if now := s.overrides.Limit(o.Policy, o.Rule, o.Key); now > 0 {
		was = fmt.Sprintf(" in place of the override of %d", now)
	}
	length, words := c.lasting()
	return c.make(cmd, fmt.Sprintf("This gives %s the limit %d%s on all instances %s.", keyOf(o), o.Limit, was, words),
		func() error { return s.overrides.Set(cmd.Context(), o, length, c.by) },
		fmt.Sprintf("override: %s has the limit %d %s", keyOf(o), o.Limit, words))
}

func (s *session) removeOverride(cmd *cobra.Command, c *change, o overrides.Override) error {
	return c.make(cmd, fmt.Sprintf("This removes the override of %s on all instances.", keyOf(o)), func() error {
		err := s.overrides.Remove(cmd.Context(), o.Policy, o.Rule, o.Key, c.by)
		if errors.Is(err, overrides.ErrNone) {
			err = fmt.Errorf("%w: %s has no override: limitctl override --list lists them", errNothing, keyOf(o))
		}
		return err
	}, "removed: the override of "+keyOf(o))
}

func keyOf(o overrides.Override) string {
	return fmt.Sprintf("policy %s, rule %s, key %s", shown(o.Policy), shown(o.Rule), shown(o.Key))
}

// A shownOverride is an override as commands print it.
type shownOverride struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Limit  int64  `json:"limit"`
	terms
}

func (o shownOverride) String() string {
	key := keyOf(overrides.Override{Policy: o.Policy, Rule: o.Rule, Key: o.Key})
	return fmt.Sprintf("%s: limit %d%s", key, o.Limit, o.terms)
}

func shownOverrides(all []overrides.Override) []shownOverride {
	list := []shownOverride{}
	for _, o := range all {
		list = append(list, shownOverride{o.Policy, o.Rule, o.Key, o.Limit, terms{o.Until.UTC(), o.By, o.Reason, o.At}})
	}
	return list
}
