package main

import (
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
		Use:   "inspect KEY | POLICY RULE [KEY]",
		Short: "Say how full the quotas of a key are, and what overrides and bans it has",
		Long: `Say how full the quotas of a key are in each rule, until when it is refused, and what
overrides and bans it has. KEY is an address, a user, or any other key as limitctl top
shows it. An IPv6 address stands for its /64, as rules see it. A rule that all requests
share has no KEY.

Keys of several values, as those of "per ip and user", are found only with their policy
and rule, and as limitctl top shows them. It takes nothing from a quota.

It shows what Redis has. An instance that cannot reach Redis decides by its own counts,
which only its live page shows.

The exit code is 0 whatever it finds, 1 if Redis or a file cannot be read, and 3 for
wrong arguments.`,
		Example: `  limitctl inspect 203.0.113.9 --redis redis://127.0.0.1:6379 --policy policy.yaml
  limitctl inspect alice --redis redis://127.0.0.1:6379 --json
  limitctl inspect login per-ip-1m 2001:db8::1 --redis redis://127.0.0.1:6379
  limitctl inspect "POST /update" per-ip-2s 203.0.113.9 --redis redis://127.0.0.1:6379 \
    --rules "5/2s per ip" --on "POST /update"`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := d.withRules(cmd, args)
			if err != nil {
				return err
			}
			defer s.end()
			f, err := s.find(cmd, args)
			if err != nil {
				return err
			}
			if d.json {
				return words.WriteJSON(cmd.OutOrStdout(), f, true)
			}
			return f.print(cmd.OutOrStdout(), s)
		},
	}
	d.flags(cmd, true)
	return cmd
}

// withRules opens a deployment for a command about a key.
func (d *deployment) withRules(cmd *cobra.Command, args []string) (*session, error) {
	if len(args) < 1 || len(args) > 3 {
		return nil, usageError{fmt.Errorf("name a key, or a policy, a rule and a key: limitctl %[1]s 203.0.113.9, or limitctl %[1]s login per-ip-1m 203.0.113.9", cmd.Name())}
	}
	if len(args) == 1 && args[0] == "" { // an unset variable of a shell, which would mean the quotas of all requests
		return nil, usageError{fmt.Errorf("the key is empty: name a policy and a rule for the quota of all requests: limitctl %s api global-1m", cmd.Name())}
	}
	s, err := d.open(cmd, false)
	if err == nil && s.source == "" {
		s.end()
		return nil, usageError{errNoRules}
	}
	return s, err
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
}

// find looks for a key in all rules, or in one.
func (s *session) find(cmd *cobra.Command, args []string) (*finding, error) {
	f := &finding{Rules: s.source, Key: args[len(args)-1], States: []live.State{}, Overrides: []shownOverride{}, Bans: []shownBan{}, Composite: []string{}}
	rules := s.limits.Rules()
	if len(args) > 1 {
		one, err := s.limits.Rule(args[0], args[1])
		switch {
		case err != nil:
			return nil, usageError{err}
		case len(args) == 2 && !one.Shared():
			return nil, usageError{fmt.Errorf("rule %s has a quota for each key: name the key after the rule", shown(one.Name))}
		case len(args) == 3 && one.Shared() && args[2] != "":
			return nil, usageError{fmt.Errorf("rule %s is one quota of all requests: leave out the key", shown(one.Name))}
		case len(args) == 2:
			f.Key = ""
		}
		rules = []*live.Rule{one}
	}
	for _, r := range rules {
		if len(args) == 1 && r.Composite() {
			f.Composite = append(f.Composite, r.Policy+" "+r.Name)
		}
		if err := s.look(cmd, f, r, len(args) > 1); err != nil {
			return nil, err
		}
	}
	f.Overrides = s.overridesOf(f, rules)
	if len(args) != 2 {
		f.Bans = shownBans(s.bansOf(cmd.Context(), f.Key))
	}
	return f, nil
}

// look adds the states of the key in a rule. Of a rule that was named, it adds a state that
// has used nothing too.
func (s *session) look(cmd *cobra.Command, f *finding, r *live.Rule, named bool) error {
	keys := s.limits.Keys(r, f.Key)
	found := false
	var unused []live.State
	for _, key := range keys {
		states, err := s.limits.States(cmd.Context(), r, key)
		if err != nil {
			return err
		}
		for i := range states {
			if states[i].Any() {
				f.States, found = append(f.States, states[i]), true
				continue
			}
			unused = append(unused, states[i])
		}
	}
	if !found && len(unused) > 0 {
		f.Unused++
		if named {
			f.States = append(f.States, unused[0])
		}
	}
	return nil
}

// overridesOf returns the overrides of the key, also of rules that are not known.
func (s *session) overridesOf(f *finding, rules []*live.Rule) []shownOverride {
	keys := map[string]bool{f.Key: true}
	for _, r := range rules {
		for _, key := range s.limits.Keys(r, f.Key) {
			keys[key] = true
		}
	}
	return shownOverrides(slices.DeleteFunc(s.overrides.List(), func(o overrides.Override) bool {
		return !keys[o.Key] || len(rules) == 1 && (o.Policy != rules[0].Policy || o.Rule != rules[0].Name)
	}))
}

// who says who has used quotas.
func (f *finding) who() string {
	if f.Key == "" {
		return "requests have"
	}
	return fmt.Sprintf("key %s has", shortened(f.Key))
}

func (f *finding) print(out io.Writer, s *session) error {
	if len(f.States) == 0 {
		fmt.Fprintf(out, "%s used nothing of the rules of %s.\n", f.who(), words.Printable(s.source))
		fmt.Fprintln(out, "If the programs set redisstore.Options.Secret, write --secret-env.")
	} else if err := s.table(out, f.States); err != nil {
		return err
	}
	for _, o := range f.Overrides {
		fmt.Fprintf(out, "override: %s\n", o)
	}
	for _, b := range f.Bans {
		fmt.Fprintf(out, "banned: %s\n", b)
	}
	if len(f.Composite) > 0 {
		fmt.Fprintf(out, "not looked at, since their keys have several values: %s\n", words.Printable(strings.Join(f.Composite, ", ")))
	}
	return nil
}
