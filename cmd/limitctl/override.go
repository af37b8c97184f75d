package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/ops/overrides"
)

func newOverrideCommand() *cobra.Command {
	var c change
	var most int64
	cmd := &cobra.Command{
		Use:   "override --key KEY --limit N | --list | --remove",
		Short: "Give one key another limit, list such overrides, or remove one",
		Long: `Give one key of a rule another limit on all instances, list such overrides, or
remove one. These are the overrides of package overrides, which the programs
must have in their limit.Options.Override. An IPv6 address stands for its /64. A
change is in force within a second, and a key keeps what it has used.

It checks the policy and the rule against --file, --rules with --on, or the
pushed file. It shows what it will do, and asks. Without a terminal, write
--yes. The exit code is 0 if it was done, 1 if there was no such override or
Redis failed, 2 if the change was not confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl override --policy api --rule per-user-1h --key alice \
    --limit 5000 --for 24h --reason launch --by ann
  limitctl override --list
  limitctl override --remove --policy api --rule per-user-1h --key alice`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			named := c.policy != "" && c.rule != "" && c.key != ""
			switch {
			case c.ends && !c.list && !named:
				return usageError{errors.New("name a policy, a rule and a key: limitctl override --remove --policy api --rule per-user-1h --key alice")}
			case !c.ends && !c.list && !(named && cmd.Flags().Changed("limit")):
				return usageError{errors.New("name a policy, a rule, a key and its limit: limitctl override --policy api --rule per-user-1h --key alice --limit 5000 --for 24h")}
			case !c.ends && !c.list && most < 1:
				return usageError{fmt.Errorf("--limit %d: write a number from 1 up; to refuse all requests, see limitctl ban", most)}
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
			o := overrides.Override{Policy: c.policy, Rule: c.rule, Limit: most, Reason: c.reason}
			if o.Key, err = s.overrideKey(cmd, &c); err != nil {
				return err
			}
			if c.ends {
				return s.removeOverride(cmd, &c, o)
			}
			return s.setOverride(cmd, &c, o)
		},
	}
	c.flags(cmd, true, "override", "remove")
	cmd.Flags().Int64Var(&most, "limit", 0, "the limit of the key, from 1 up")
	return cmd
}

// overrideKey returns the key that --key stands for. Without rules, it is that.
func (s *session) overrideKey(cmd *cobra.Command, c *change) (string, error) {
	policy, rule, key := c.policy, c.rule, c.key
	if s.source == "" {
		if !c.ends { // otherwise the answer says whether there was such an override
			fmt.Fprintln(cmd.ErrOrStderr(), "The policy, the rule and the form of the key are not checked: to check them, write --file, or --rules and --on.")
		}
		return key, nil
	}
	found, err := s.limits.Matching(policy, rule)
	if err != nil {
		return "", usageError{err}
	}
	if s.overrides.Limit(policy, rule, key) > 0 {
		return key, nil // one that is there is meant as it is
	}
	key, err = s.limits.Key(found[0], key)
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
