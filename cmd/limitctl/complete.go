package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/policyfile"
)

// completeKey completes the policy and the rule of POLICY RULE KEY, from --policy and
// --rules. It asks no Redis: a shell waits for it.
func (d *deployment) completeKey(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return d.complete(args), cobra.ShellCompDirectiveNoFileComp
}

// completeOverride is completeKey for a command that takes a limit too.
func (d *deployment) completeOverride(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return d.completeKey(cmd, args, text)
}

func (d *deployment) complete(args []string) (names []string) {
	sets := make(map[string]limit.RuleSet)
	var policies []string
	if f, err := policyfile.Read(d.policy); err == nil {
		for _, p := range f.Policies() {
			sets[p.Name], policies = p.Rules, append(policies, p.Name)
		}
	}
	for i, text := range d.rules {
		if rules, err := limit.Parse(text); err == nil && i < len(d.on) {
			name := strings.TrimPrefix(d.on[i], "each ")
			sets[name], policies = rules, append(policies, name)
		}
	}
	switch len(args) {
	case 0:
		return policies
	case 1:
		for _, r := range sets[args[0]].Rules() {
			names = append(names, r.Name+"\t"+strings.TrimPrefix(r.String(), r.Name+": "))
		}
	}
	return names
}
