package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

func newResetCommand() *cobra.Command {
	var d deployment
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset --key KEY",
		Short: "Make the quotas of a key full again",
		Long: `Make the quotas of a key full again, in all rules or in those that --policy and
--rule name, and end the bans of rules (limit.Ban). Bans by hand stay: see
limitctl ban --lift. Requests in flight (limit.Concurrency) cannot be reset.
Debts are forgiven. Holds end, and what their requests cost is not charged.
Rules whose keys have several values are found as by limitctl inspect.

Running instances admit the key within a second, also requests that wait.
Instances that cannot reach Redis now admit it once they do, and do not charge
what they admitted before the reset. An instance that could not charge Redis for
all that it admitted in an outage may refuse the key for up to a window: its
live page and its log say so.

It shows what it will reset, and asks. Without a terminal, write --yes. The exit
code is 0 if something was reset, 1 if there was nothing to reset or Redis
failed, 2 if the change was not confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl reset --key alice --file policy.yaml
  limitctl reset --policy login --rule per-ip-1m --key 203.0.113.9 --yes`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.found(cmd, func(s *session, f *finding) error { return s.reset(cmd, f, yes, d.json) })
		},
	}
	d.flags(cmd, true)
	yesFlag(cmd, &yes)
	return cmd
}

func (s *session) reset(cmd *cobra.Command, f *finding, yes, asJSON bool) error {
	var states []live.State
	complete := len(f.Composite)+len(f.Bans) == 0 // whether no rule that still refuses the key is known
	for _, state := range f.States {
		switch {
		case !state.Any():
		case state.Of().Resettable():
			states = append(states, state)
		default:
			fmt.Fprintf(cmd.ErrOrStderr(), "left as it is: policy %s, rule %s: requests in flight end by themselves\n", shown(state.Policy), shown(state.Rule))
			complete = false
		}
	}
	switch {
	case len(states) == 0 && len(f.Composite) > 0:
		return fmt.Errorf("%w: %s used nothing of these rules that can be reset; %s", errNothing, f.who(), f.notLookedAt())
	case len(states) == 0:
		return fmt.Errorf("%w: %s used nothing of these rules that can be reset", errNothing, f.who())
	case len(f.Composite) > 0:
		fmt.Fprintln(cmd.ErrOrStderr(), f.notLookedAt())
	}
	f.printBans(cmd.ErrOrStderr())
	if !yes {
		if err := table(cmd.ErrOrStderr(), states); err != nil {
			return err
		}
	}
	if err := confirm(cmd, yes, "This resets %s.\n", words.Count(int64(len(states)), "quota")); err != nil {
		return err
	}
	type reset struct {
		Policy string `json:"policy"`
		Rule   string `json:"rule"`
		Key    string `json:"key"`
	}
	done := []reset{}
	for _, state := range states {
		if err := s.limits.Reset(cmd.Context(), state.Of(), state.Key); err != nil {
			return fmt.Errorf("after %d resets: %w", len(done), err)
		}
		done = append(done, reset{state.Policy, state.Rule, state.Key})
		if !asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "reset: policy %s, rule %s, key %s\n", shown(state.Policy), shown(state.Rule), shownKey(&state))
		}
	}
	if asJSON {
		return words.WriteJSON(cmd.OutOrStdout(), map[string]any{"reset": done, "not_looked_at": f.Composite}, true)
	}
	if complete {
		by := ""
		if f.named {
			by = " by these rules"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Running instances admit the key%s within a second, or once they reach Redis.\n", by)
	}
	return nil
}
