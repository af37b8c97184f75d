package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/ops/overrides"
)

func newOverrideCommand() *cobra.Command {
	var c change
	var o overrides.Override
	cmd := &cobra.Command{
		Use:   "override --key KEY --limit N | --list | --remove",
		Short: "Give keys another limit, list such overrides, or remove one",
		Long: `Give one key of a rule, or each key that begins with a text, another limit on
all instances, list such overrides, or remove one. These are the overrides of
package overrides, which the programs must have in their limit.Options.Override.
An IPv6 address stands for its /64. A change is in force within a second, and a
key keeps what it has used. An override of a key comes first, then that of the
longest pattern.

It checks the policy and the rule against --file, --rules with --on, or the
pushed file, by which --list shows keys of several values as people read them.
It shows what it will do, and asks. Without a terminal, write --yes. The exit
code is 0 if it was done, 1 if there was no such override or Redis failed, 2 if
the change was not confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl override --policy api --rule per-user-1h --key alice \
    --limit 5000 --for 24h --reason launch --by ann
  limitctl override --policy api --rule per-user-1h --pattern "free-*" \
    --limit 50 --for 24h --by ann
  limitctl override --list
  limitctl override --remove --policy api --rule per-user-1h --key alice`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Policy, o.Rule, o.Key, o.Reason = c.policy, c.rule, c.key, c.reason
			named := o.Policy != "" && o.Rule != "" && o.Key+o.Pattern != ""
			switch star := strings.Index(o.Pattern, "*"); {
			case o.Pattern != "" && (o.Key != "" || star < 1 || star < len(o.Pattern)-1):
				return usageError{fmt.Errorf("--pattern %q: write what keys begin with and a star, such as \"free-*\", and no --key", o.Pattern)}
			case c.ends && !c.list && !named:
				return usageError{errors.New("name a policy, a rule, and a key or a pattern: limitctl override --remove --policy api --rule per-user-1h --key alice")}
			case !c.ends && !c.list && !(named && cmd.Flags().Changed("limit")):
				return usageError{errors.New("name a policy, a rule, a key or a pattern, and its limit: limitctl override --policy api --rule per-user-1h --key alice --limit 5000 --for 24h")}
			case !c.ends && !c.list && (o.Limit < 1 || o.Limit > core.MaxLimit):
				return usageError{fmt.Errorf("--limit %d: write a number from 1 up to %d; to refuse all requests, see limitctl ban", o.Limit, int64(core.MaxLimit))}
			}
			if err := c.check(cmd, args); err != nil {
				return err
			}
			s, err := c.open(cmd, c.list)
			if err != nil {
				return err
			}
			defer s.end()
			if c.list {
				return printList(cmd, "overrides", s.shownOverrides(s.overrides.List()), c.json)
			}
			if err := s.resolve(cmd, &c, &o); err != nil {
				return err
			}
			if c.ends {
				return s.removeOverride(cmd, &c, o)
			}
			return s.setOverride(cmd, &c, o)
		},
	}
	c.flags(cmd, true, "override", "remove")
	cmd.Flags().Int64Var(&o.Limit, "limit", 0, "the limit of the key, from 1 up")
	cmd.Flags().StringVar(&o.Pattern, "pattern", "", "in place of --key, what keys begin with and a star, such as \"free-*\"")
	return cmd
}

// resolve sets the key that --key stands for. Without rules, it is that.
func (s *session) resolve(cmd *cobra.Command, c *change, o *overrides.Override) error {
	if strings.HasSuffix(o.Key, "*") && !c.ends {
		fmt.Fprintln(cmd.ErrOrStderr(), "The star is a part of the key: for each key that begins so, write --pattern in place of --key.")
	}
	if s.source == "" {
		if !c.ends { // otherwise the answer says whether there was such an override
			fmt.Fprintln(cmd.ErrOrStderr(), "The policy, the rule and the form of the key are not checked: to check them, write --file, or --rules and --on.")
			if numbers.MatchString(o.Pattern) {
				fmt.Fprintf(cmd.ErrOrStderr(), "A pattern is text, and no prefix of addresses: of a rule by address, %s may match other networks.\n", shown(o.Pattern))
			}
		}
		return nil
	}
	found, err := s.limits.Matching(o.Policy, o.Rule)
	switch {
	case err != nil:
	case o.Pattern != "" && found[0].Rule.Key.String() == "ip":
		err = fmt.Errorf("rule %q is by address: patterns are for rules whose keys are text, such as users: write --key for each address; "+
			"for a network, write exempt ip 10.0.0.0/8 in the rule, or limitctl ban 10.0.0.0/8", o.Rule)
	case o.Pattern != "":
		o.Pattern, err = found[0].Pattern(o.Pattern)
	case s.there(*o) == 0: // one that is there is meant as it is
		o.Key, err = found[0].One(o.Key)
	}
	if err == nil && !c.ends {
		// Programs would use another limit in place of one that the rule cannot have.
		given := found[0].WithLimit(o.Limit)
		if problem := given.Quota().Validate(); problem != nil {
			err = fmt.Errorf("rule %q: %w", o.Rule, problem)
		}
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// numbers matches a pattern that may be meant as a prefix of addresses.
var numbers = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,3})*\.?\*$`)

// there returns the limit of the override for the same key or pattern, or 0.
func (s *session) there(as overrides.Override) int64 {
	for _, o := range s.overrides.List() {
		if o.Policy == as.Policy && o.Rule == as.Rule && o.Key == as.Key && o.Pattern == as.Pattern {
			return o.Limit
		}
	}
	return 0
}

func (s *session) setOverride(cmd *cobra.Command, c *change, o overrides.Override) error {
	was := ""
	if now := s.there(o); now > 0 {
		was = fmt.Sprintf(" in place of the override of %d", now)
	}
	length, words := c.lasting()
	return c.make(cmd, fmt.Sprintf("This gives %s the limit %d%s on all instances %s.", s.keyOf(o), o.Limit, was, words),
		func() error { return s.overrides.Set(cmd.Context(), o, length, c.by) },
		fmt.Sprintf("override: %s has the limit %d %s", s.keyOf(o), o.Limit, words))
}

func (s *session) removeOverride(cmd *cobra.Command, c *change, o overrides.Override) error {
	return c.make(cmd, fmt.Sprintf("This removes the override of %s on all instances.", s.keyOf(o)), func() error {
		err := s.overrides.Remove(cmd.Context(), o, c.by)
		if errors.Is(err, overrides.ErrNone) {
			err = fmt.Errorf("%w: %s has no override: limitctl override --list lists them", errNothing, s.keyOf(o))
		}
		return err
	}, "removed: the override of "+s.keyOf(o))
}

// keyOf names what an override is for, with the key as people read it if the rule is known.
func (s *session) keyOf(o overrides.Override) string {
	if o.Pattern != "" {
		return fmt.Sprintf("policy %s, rule %s, pattern %s", shown(o.Policy), shown(o.Rule), shown(o.Pattern))
	}
	key := o.Key
	if found, err := s.limits.Matching(o.Policy, o.Rule); err == nil {
		key = found[0].Shown(key)
	}
	return fmt.Sprintf("policy %s, rule %s, key %s", shown(o.Policy), shown(o.Rule), shown(key))
}

type shownOverride struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	Quoted  string `json:"key_quoted,omitempty"` // in the syntax of Go, if it is not UTF-8
	Pattern string `json:"pattern,omitempty"`    // in place of Key
	Limit   int64  `json:"limit"`
	terms
	of string // see session.keyOf
}

func (o shownOverride) String() string { return fmt.Sprintf("%s: limit %d%s", o.of, o.Limit, o.terms) }

func (s *session) shownOverrides(all []overrides.Override) []shownOverride {
	list := []shownOverride{}
	for _, o := range all {
		quoted := ""
		if !utf8.ValidString(o.Key) {
			quoted = strconv.QuoteToASCII(o.Key)
		}
		list = append(list, shownOverride{o.Policy, o.Rule, o.Key, quoted, o.Pattern, o.Limit, terms{o.Until.UTC(), o.By, o.Reason, o.At}, s.keyOf(o)})
	}
	return list
}
